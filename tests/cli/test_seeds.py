"""``train --seeds``: one run per seed, and mean and standard deviation of those that finished."""

import signal

import pytest

from core.__main__ import main
from core.evaluation.significance import Spread
from core.runs import RunFolder
from core.training import loop as training
from tests.support.command_output import last_json

QUICK = ["--set", "training.steps=6", "--set", "training.warmup_steps=2", "--set", "training.evaluate_every=3"]
SMALL = ["--set", "training.validation_sequences=8", "--set", "training.batch_size=8", "--set", "model.d_model=16"]


@pytest.fixture
def seeds(root, capsys):
    """Train seeds below a folder of its own: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(root), "train", "--preset", "tiny", *QUICK, *SMALL, *arguments])
        return code, *capsys.readouterr()

    return run


def test_seeds_train_one_run_each_and_print_mean_and_deviation(seeds, root):
    code, output, _ = seeds("--seeds", "3", "--run", "mine", "--seed", "4", "--json")
    assert code == 0
    assert sorted(folder.name for folder in root.iterdir()) == ["mine-seed-4", "mine-seed-5", "mine-seed-6"]
    assert RunFolder(root, "mine-seed-6").read_preset().training.seed == 6
    result = last_json(output)
    assert (result["group"], result["status"], [run["run"] for run in result["runs"]]) == (
        "mine",
        "finished",
        ["mine-seed-4", "mine-seed-5", "mine-seed-6"],
    )
    losses = [run["loss"] for run in result["runs"]]
    assert len(set(losses)) == 3
    assert result["loss"] == {
        "n": 3,
        "mean": pytest.approx(sum(losses) / 3),
        "sd": pytest.approx(Spread.of(losses).sd),
    }
    assert "(mean ± standard deviation, 3 seeds)" in output


def test_a_seed_trains_as_it_does_alone(seeds):
    together = last_json(seeds("--seeds", "2", "--json")[1])
    assert [run["run"] for run in together["runs"]] == ["tiny-seed-0", "tiny-seed-1"]  # named after the preset
    alone = last_json(seeds("--seed", "1", "--json")[1])
    assert together["runs"][1]["loss"] == alone["loss"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--seeds", "0"], "--seeds=0 must be from 1 to 100"),
        (["--seeds", "101"], "--seeds=101 must be from 1 to 100"),
        (["--seeds", "2", "--run", "x" * 45], "is not a valid name"),
        (["--seeds", "2", "--run", "mine"], "run='mine-seed-1' exists already; choose another name with --run"),
    ],
)
def test_invalid_or_existing_names_stop_all_seeds_before_the_first(seeds, root, tiny, arguments, reason):
    RunFolder.create(root, tiny, name="mine-seed-1")
    code, _, errors = seeds(*arguments)
    assert code == 2
    assert reason in errors
    assert [folder.name for folder in root.iterdir()] == ["mine-seed-1"]


def test_ctrl_c_stops_the_current_seed_and_starts_no_other(seeds, root, monkeypatch):
    import core.cli.train as command

    genuine = command._show

    def interrupted(event, *rest) -> None:
        if event.step == 4:
            signal.raise_signal(signal.SIGINT)
        genuine(event, *rest)

    monkeypatch.setattr(command, "_show", interrupted)
    code, output, errors = seeds("--seeds", "3", "--run", "mine", "--json")
    assert code == 130
    result = last_json(output)
    assert (result["status"], len(result["runs"])) == ("stopped", 1)
    assert "loss" not in result  # no run finished, so there is no mean
    assert "stopped: 2 of 3 seeds not started" in errors
    assert [folder.name for folder in root.iterdir()] == ["mine-seed-0"]


def test_a_failed_seed_is_left_out_of_the_mean(seeds, monkeypatch):
    genuine, calls = training.clip_gradients, []

    def once_broken(parameters, max_norm):
        calls.append(1)
        return float("nan") if len(calls) == 1 else genuine(parameters, max_norm)

    monkeypatch.setattr("core.training.loop.clip_gradients", once_broken)
    code, output, _ = seeds("--seeds", "3", "--json")
    assert code == 1
    result = last_json(output)
    assert [run["status"] for run in result["runs"]] == ["failed", "finished", "finished"]
    assert (result["status"], result["loss"]["n"]) == ("failed", 2)
