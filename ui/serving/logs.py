"""What the server has to say, on standard error: one JSON object a line for machines, or plain lines for people."""

import json
import logging
from datetime import UTC, datetime

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, and whatever else was given with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class PlainLines(logging.Formatter):
    """A record as a line: time, level, message, and whatever else was given with it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Write a record without its exception."""
        extras = {name: value for name, value in record.__dict__.items() if name not in _OWN}
        return super().formatMessage(record) + "".join(f" {name}={value!r}" for name, value in extras.items())


def log_to_stderr(*, as_json: bool) -> None:
    """Send everything that is logged to standard error; of libraries, only what is a warning at least."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for own in ("core", "ui", "app"):
        logging.getLogger(own).setLevel(logging.INFO if as_json else logging.WARNING)
