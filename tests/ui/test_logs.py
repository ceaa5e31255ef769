"""The log: one line per record, without the secrets that open shared runs."""

import json
import logging
import sys

import pytest

from core.runs.names import new_names
from tests.serving import SHIPPED
from ui.serving.logs import JsonFormatter, TextFormatter

ENDING = "a1b2c3d4e5f6g7h8i9j0k1l2"
NAME = next(new_names("digits-reversal", [], secret=ENDING))


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_no_secret_of_a_run_is_logged(formatter: logging.Formatter):
    try:
        raise OSError(f"/checkpoints/.{NAME}.1f2e3d4c.deleted/run.json")
    except OSError:
        exception = sys.exc_info()
    record = logging.LogRecord("core", logging.INFO, "", 0, "not listed: run=%r", (NAME,), exception)
    record.run, record.path = NAME, f"/download/{NAME}.zip"
    line = formatter.format(record)
    assert ENDING[4:] not in line
    assert line.count("digits-reversal-1-a1b2...") == 4  # enough to find the run


def test_other_names_are_logged_whole():
    names = [SHIPPED, "digits-reversal-3", "no-positional-encoding-broken-2", "a" * 40, "f" * 64]
    record = logging.LogRecord("core", logging.INFO, "", 0, " ".join(names), (), None)
    assert json.loads(JsonFormatter().format(record))["message"] == " ".join(names)
