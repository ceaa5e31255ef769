"""Logging to standard error: one JSON object per line for machines, or plain lines for people.

On a public server a shared run can be opened by anyone who knows its name, so the secret in the name is not logged.
"""

import json
import logging
from datetime import UTC, datetime

from core.runs.names import hide_secrets

_STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message and the ``extra`` fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _extra_fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return hide_secrets(json.dumps(line, default=str))


class TextFormatter(logging.Formatter):
    """Formats a record as one line: time, level, message and the ``extra`` fields."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, with the exception in lines of its own."""
        return hide_secrets(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the base class
        """Return the line without the exception."""
        extras = _extra_fields(record)
        return super().formatMessage(record) + "".join(f" {name}={value!r}" for name, value in extras.items())


class OncePerMinute(logging.Filter):
    """Lets a message pass once a minute: an event loop without free files repeats it thousands of times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message has not passed within the last minute."""
        message = str(record.msg)[:100]
        if record.created - self._passed.get(message, -60.0) < 60.0:
            return False
        if len(self._passed) >= 100:
            self._passed.clear()
        self._passed[message] = record.created
        return True


def log_to_stderr(*, as_json: bool) -> None:
    """Log to standard error: the lab's own messages, and warnings and errors of libraries."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("asyncio").addFilter(OncePerMinute())
    for package in ("core", "ui", "app"):
        logging.getLogger(package).setLevel(logging.INFO if as_json else logging.WARNING)


def _extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS}
