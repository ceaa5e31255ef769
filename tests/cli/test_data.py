"""``data``, stopped while it reads; and the exit code of a training that cannot be saved."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.__main__ import main
from core.runs import recorder
from tests.support.run_helpers import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_stopped_import_leaves_nothing_behind(tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"a{number}\tb{number}\n" for number in range(300_000)))
    command = [sys.executable, "-m", "core", "data", str(pairs), "--out", str(tmp_path / "out.yaml")]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: any(tmp_path.glob("*/*")), seconds=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == ["pairs.tsv"]


def test_a_training_that_cannot_be_saved_has_failed(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(recorder, "save_state", full)
    words = ["--checkpoints", str(tmp_path), "train", "--preset", "tiny", "--run", "a", "--set", "training.steps=2"]
    assert main([*words, "--set", "training.warmup_steps=1", "--set", "training.evaluate_every=2"]) == 1
    assert "the disk is full" in capsys.readouterr().err
