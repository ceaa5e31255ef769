"""Standard output that cannot be written to: closed by the caller, full, or left by its reader."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from core.__main__ import main
from core.runs import RunFolder

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = ["training.steps=600", "training.warmup_steps=1", "training.evaluate_every=5", "training.batch_size=8"]
FULL = "error: standard output, or a file of the command: No space left on device\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
@pytest.mark.parametrize(
    ("redirected", "code", "error"),
    [(">&-", 0, ""), (">&- 2>&-", 0, ""), (">/dev/full", 2, FULL), ("| true", 1, "")],
    ids=["closed", "all closed", "full", "reader gone"],
)
def test_a_command_needs_no_output(redirected: str, code: int, error: str):
    script = f"sleep 0.1; exec {sys.executable} -m core presets"
    command = ["bash", "-c", f"set -o pipefail; ( {script} ) {redirected}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (code, error)


class _LeftByItsReader(io.StringIO):
    def write(self, text: str) -> int:
        if "step  10" in self.getvalue():
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


def test_a_training_whose_reader_goes_away_stops_and_is_saved(root, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", _LeftByItsReader())
    monkeypatch.setattr("core.__main__._drop_output", lambda: None)  # of a stream without a descriptor
    words = [word for each in SETTINGS for word in ("--set", each)]
    assert main(["--checkpoints", str(root), "train", "--preset", "tiny", "--run", "left", *words]) == 1
    info = RunFolder(root, "left").read_info()
    assert (info.status, info.message) == ("stopped", "")
    assert 10 <= info.step < 20
    assert capsys.readouterr().err.count("standard output: Broken pipe; training stops and is saved\n") == 1
