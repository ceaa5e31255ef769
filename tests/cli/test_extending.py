"""``resume --set training.steps=N`` extends a run, also a finished one, as its help promises."""

import pytest
import torch
from torch.testing import assert_close

from core.runs import RunFolder, check_resumable
from core.runs.importing import import_weights
from core.runs.training_state import load_state
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import train
from core.training.schedules import learning_rate_at
from core.training.state import TrainingState
from tests.support.command_output import last_json

SIZES = {"steps": 6, "warmup_steps": 2, "evaluate_every": 3, "validation_sequences": 8, "batch_size": 8}


@pytest.fixture
def trained_run(lab, root):
    """Train a run with dropout: its folder."""

    def run(name: str, **training) -> RunFolder:
        values = {f"training.{key}": value for key, value in (SIZES | training).items()} | {"model.dropout": 0.2}
        changes = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        assert lab("train", "--preset", "tiny", "--run", name, "--device", "cpu", *changes)[0] == 0
        return RunFolder(root, name)

    return run


def state_of(folder: RunFolder) -> TrainingState:
    return load_state(folder.last, folder.read_preset())


def assert_same(one: TrainingState, other: TrainingState) -> None:
    """Weights, optimizer, generator and counters are equal bit for bit."""
    assert_close(dict(one.model.state_dict()), dict(other.model.state_dict()), atol=0, rtol=0)
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert_close(one.optimizer.state[mine], other.optimizer.state[theirs], atol=0, rtol=0)
    assert torch.equal(one.generator.get_state(), other.generator.get_state())
    for name in ("step", "evaluated_step", "best_loss", "best_step", "last_evaluation", "sequences_seen"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("schedule", ["constant", "inverse-sqrt"])
def test_with_a_schedule_without_an_end_it_is_the_longer_run_bit_for_bit(lab, trained_run, schedule):
    short, straight = trained_run("short", schedule=schedule), trained_run("long", schedule=schedule, steps=12)
    code, output, _ = lab("resume", "--run", "short", "--set", "training.steps=12", "--json")
    assert code == 0
    assert {"status": "finished", "steps": 12}.items() <= last_json(output).items()
    assert short.read_preset() == straight.read_preset()
    assert_same(state_of(short), state_of(straight))
    assert History.load(short.metrics).points()["loss"] == History.load(straight.metrics).points()["loss"]
    assert History.load(short.metrics).evaluations() == History.load(straight.metrics).evaluations()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_decaying_learning_rate_goes_on_as_that_of_a_run_of_so_many_steps(lab, trained_run, schedule):
    folder = trained_run("a", schedule=schedule, teacher_forcing_ratio=0.5, teacher_forcing_schedule="linear")
    before = folder.read_preset()
    code, output, _ = lab("resume", "--run", "a", "--set", "training.steps=12")
    assert code == 0
    after = folder.read_preset()
    assert after == before.with_changes({"training.steps": 12})
    planned = [learning_rate_at(step, before.training) for step in range(1, 7)]
    planned += [learning_rate_at(step, after.training) for step in range(7, 13)]
    assert History.load(folder.metrics).points()["learning_rate"] == pytest.approx(planned, rel=1e-5)
    assert f"{planned[6]:.3g} at step 7, after {planned[5]:.3g} at step 6\n" in output
    state = new_state(before)  # the same by hand: trained to its end, and then with the other number of steps
    list(train(state))
    state.preset = after
    list(train(state))
    assert_same(state_of(folder), state)


def test_a_stopped_run_can_be_given_another_end(lab, root, tiny):
    folder = RunFolder.create(root, tiny, name="a", status="stopped")
    assert lab("resume", "--run", "a", "--set", "training.steps=4")[0] == 0
    assert (folder.read_info().status, folder.read_info().step) == ("finished", 4)


def test_what_is_no_extension_is_refused_and_changes_nothing(lab, trained_run):
    folder = trained_run("a")
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    for changes, message in (
        (["training.learning_rate=1"], "--set training.learning_rate: resume changes training.steps only"),
        (["training.steps=12", "model.d_model=8"], "--set model.d_model: resume changes training.steps only"),
        (["training.steps=6"], "run='a' has finished all its 6 steps; resume --set training.steps=N extends it to N"),
        (["training.steps=5"], "training.steps=5 must be above 6, the steps that run='a' has made"),
        (["training.steps=many"], "training.steps='many' should be a valid integer"),
        (["training.steps=2000000"], "training.steps=2000000 should be less than or equal to 1000000"),
        (["training.steps"], "must look like training.steps=500"),
    ):
        code, _, errors = lab("resume", "--run", "a", *(part for change in changes for part in ("--set", change)))
        assert code == 2
        assert message in errors
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_an_imported_run_has_no_state_to_extend(lab, trained_run, root):
    import_weights(root, trained_run("a").best.read_bytes(), name="b")
    code, _, errors = lab("resume", "--run", "b", "--set", "training.steps=12")
    assert code == 2
    assert "run='b' has finished, and no training state is left to continue from" in errors
    assert RunFolder(root, "b").read_preset().training.steps == 6


def test_an_extension_that_was_cut_off_before_its_first_step_can_be_resumed(lab, trained_run):
    folder = trained_run("a")
    folder.replace_preset(folder.read_preset().with_changes({"training.steps": 9}))  # and then the process was killed
    check_resumable(folder)
    assert lab("resume", "--run", "a")[0] == 0
    assert folder.read_info().step == 9
