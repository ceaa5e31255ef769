"""What scripts rely on: exit codes."""

import contextlib
import json
import signal
from pathlib import Path

import pytest

from core.__main__ import main
from core.training.distributed import ProcessGroup

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = {"steps": 6, "warmup_steps": 2, "evaluate_every": 3, "validation_sequences": 8, "batch_size": 8}
CHANGES = [part for key, value in QUICK.items() for part in ("--set", f"training.{key}={value}")]


@pytest.fixture
def lab(root, capsys):
    """Run a command below a folder of its own: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(root), *arguments])
        return code, *capsys.readouterr()

    return run


def at_step_4(monkeypatch, action) -> None:
    """Let something happen when a training makes its fourth step."""
    import core.cli.train as command

    genuine = command._show

    def shown(event, *rest) -> None:
        if event.step == 4:
            action()
        genuine(event, *rest)

    monkeypatch.setattr(command, "_show", shown)


# --- exit codes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("seeds", [[], ["--seeds", "2"]])
def test_a_stopped_training_ends_with_the_code_of_its_signal(lab, monkeypatch, number, code, seeds):
    with monkeypatch.context() as stopping:
        at_step_4(stopping, lambda: signal.raise_signal(number))
        ended, output, _ = lab("train", "--preset", "tiny", "--run", "a", *CHANGES, *seeds, "--json")
    assert ended == code
    assert json.loads(output.splitlines()[-1])["status"] == "stopped"
    ended, output, _ = lab("resume", "--run", "a-seed-0" if seeds else "a", "--json")
    assert ended == 0
    assert json.loads(output.splitlines()[-1])["status"] == "finished"


def test_a_training_that_another_process_stopped_does_not_end_with_success(lab, monkeypatch):
    group = ProcessGroup()
    monkeypatch.setattr("core.cli.train.process_group", lambda *_: contextlib.nullcontext(group))
    at_step_4(monkeypatch, group.request_stop)
    assert lab("train", "--preset", "tiny", *CHANGES)[0] == 143
