"""A training that is told to stop ends in order, and soon even inside an update that takes minutes."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, time
from core.cli import signals
signals.PATIENCE = {patience}
with signals.stopped_by_signals(lambda: os.write(1, b"told\\n")) as arrived:
    os.write(1, b"ready\\n")  # print is not reentrant
    while not arrived or {busy}:
        time.sleep(0.01)
print("in order", arrived, flush=True)
"""


def started(*, patience: float, busy: bool) -> subprocess.Popen[str]:
    script = SCRIPT.format(patience=patience, busy=busy)
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_block_that_ends_after_a_signal_ends_in_order():
    process = started(patience=60, busy=False)
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (0, "told\nin order [15]\n", "")


@pytest.mark.parametrize(("patience", "signals"), [(0.2, [signal.SIGTERM]), (60, [signal.SIGINT, signal.SIGTERM])])
def test_one_that_goes_on_is_ended_when_patience_ends_or_a_second_signal_comes(patience: float, signals: list):
    process = started(patience=patience, busy=True)
    assert process.stdout is not None
    for each in signals:
        process.send_signal(each)
        assert process.stdout.readline() in ("told\n", "")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signals[0]
    assert "without saving it; resume goes on from the last save" in error
