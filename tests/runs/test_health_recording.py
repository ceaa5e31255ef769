"""Health is recorded with every snapshot, survives a resume bit for bit, and leaves the training as it was."""

import dataclasses

import pytest
import torch

from core.interpret.health import HealthTaker
from core.interpret.snapshots import Snapshot, SnapshotTaker
from core.runs import RunFolder
from core.runs.recorder import Recorder
from core.runs.replay import Replay
from core.runs.training_state import load_state
from core.storage.tensor_file import read_tensors, write_tensors
from core.teaching.bugs import new_state
from core.training.loop import EvaluationEvent, StepEvent, train
from tests.support.old_replay import remove_health
from tests.support.trainings import train_run

FAMILIES = {
    "transformer": {"model.dropout": 0.2},
    "decoder-only": {"model.family": "decoder-only"},
    "encoder-only": {"model.family": "encoder-only"},
    "gru": {},
}


@pytest.fixture(params=FAMILIES, scope="module")
def preset(request, tiny, tiny_gru):
    base = tiny_gru if request.param == "gru" else tiny
    return base.with_changes({"training.steps": 8, "training.evaluate_every": 4} | FAMILIES[request.param])


def snapshots_of(folder: RunFolder) -> list[Snapshot]:
    return Replay.load(folder.replay_file, folder.read_preset().training.evaluate_every).snapshots()


@pytest.fixture(scope="module")
def straight(tmp_path_factory, preset) -> list[Snapshot]:
    """What a run that never stopped records."""
    folder = RunFolder.create(tmp_path_factory.mktemp("straight"), preset, name="straight")
    train_run(folder)
    return snapshots_of(folder)


def test_every_snapshot_has_the_figures_of_its_step(preset, straight):
    course = [each.health for each in straight]
    assert [each.step for each in straight] == [0, 4, 8]
    assert course[0].gradient_norm is course[0].update_size is None  # no update was made yet
    assert course[0].heads.change == {}
    state = new_state(preset)
    taker = HealthTaker(state.task, state.model, SnapshotTaker(state.task, state.model).pairs)
    rows: dict[str, torch.Tensor] = {}
    expected = []
    for event in train(state):
        if isinstance(event, EvaluationEvent):
            heads, rows = taker.measure(state.model, rows)
            norms = state.update_norms
            expected.append((heads, norms and norms.gradient_norm, norms and norms.update_size))
            assert course[len(expected) - 1].perplexity == event.evaluation.perplexity
    assert [(each.heads, each.gradient_norm, each.update_size) for each in course] == expected
    assert course[2].heads.change.keys() == course[2].heads.entropy.keys()


@pytest.mark.parametrize("stop", [4, 6])
def test_a_resumed_run_records_what_one_that_never_stopped_records(root, preset, straight, stop):
    """Step 4 stops between the update and its snapshot: gradients and weights before the update are gone."""
    stopped = RunFolder.create(root, preset, name="stopped")
    train_run(stopped, stop_after=stop)
    train_run(stopped)
    assert snapshots_of(stopped) == straight
    assert all(each.health.update_size for each in snapshots_of(stopped)[1:])


def test_a_training_with_snapshots_equals_one_without_bit_for_bit(root, preset):
    def trained(name: str, *, with_replay: bool):
        folder, state = RunFolder.create(root, preset, name=name), new_state(preset)
        recorder = Recorder(folder, state, with_replay=with_replay)
        losses = []
        for event in train(state):
            recorder.record(event)
            if isinstance(event, StepEvent):
                losses.append(event.loss.hex())
        return losses, state

    (losses, recorded), (without, plain) = trained("with", with_replay=True), trained("without", with_replay=False)
    assert losses == without
    assert torch.equal(recorded.generator.get_state(), plain.generator.get_state())
    for one, other in zip(recorded.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_run_recorded_before_there_was_health_opens_and_resumes(root, tiny):
    folder = RunFolder.create(root, tiny, name="a")
    train_run(folder, stop_after=6)
    whole = snapshots_of(folder)
    remove_health(folder.replay_file)
    tensors, facts = read_tensors(folder.last)
    del facts["update_norms"]
    write_tensors(folder.last, {name: each for name, each in tensors.items() if "snapshot." not in name}, facts)
    assert snapshots_of(folder) == [dataclasses.replace(each, health=None) for each in whole]
    assert load_state(folder.last, tiny).snapshot_rows == {}
    train_run(folder)
    last = snapshots_of(folder)[-1]
    assert (last.step, last.health.heads.change) == (8, {})


def test_large_maps_are_not_kept_in_the_training_state(root, tiny, monkeypatch):
    monkeypatch.setattr("core.interpret.health.MAX_WEIGHTS", 10)
    folder = RunFolder.create(root, tiny, name="a")
    train_run(folder)
    assert all(each.health.heads.change == {} for each in snapshots_of(folder))
    assert not any(name.startswith("snapshot.") for name in read_tensors(folder.last)[0])
