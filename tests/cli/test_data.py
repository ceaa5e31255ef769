"""``data``: what it says, stopped while it reads; and the exit code of a training that cannot be saved."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.__main__ import main
from core.config.preset import load_preset_file
from core.runs import recorder
from core.tasks import build_task
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


def test_what_only_test_pairs_have_is_not_told_of_the_training_pairs(tmp_path, capsys):
    words = ["red", "green", "blue", "black"]
    train = "".join(f"{one} {two} {three}\tx\n" for one in words for two in words for three in words)
    tested = "omega red\tx\nred red red red red\ty\nred red red red red\tx\n"
    for name, text in (("train", train), ("one", tested), ("two", tested)):
        (tmp_path / f"{name}.tsv").write_text(text)
    tests = [f"--test={name}={tmp_path / name}.tsv" for name in ("one", "two")]
    words_of = ["data", str(tmp_path / "train.tsv"), *tests, "--tokens", "word", "--out", str(tmp_path / "a.yaml")]
    assert main(words_of) == 0
    said = capsys.readouterr().out
    assert "source vocabulary                4 words" in said
    assert "sources with several targets     1;" in said  # not of the pair in both sets
    task = build_task(load_preset_file(tmp_path / "a.yaml").task, pairs=tmp_path / "a.pairs.tsv")
    assert task.note(["red"] * 5).endswith("longer than any training input (3 tokens)")
    assert 5 in task.lengths
