"""Attention snapshots of a run: bounded, rewindable, saved; a damaged file never stops the run."""

import json
import logging
from pathlib import Path

import pytest
import torch

from core.interpret.snapshots import MAX_SNAPSHOTS, PackedMaps, Snapshot, SnapshotInput, SnapshotOutput
from core.runs.replay import Replay
from core.storage.tensor_file import read_tensors, write_tensors

INPUTS = (SnapshotInput(("4", "8"), ("8", "4"), ((0, 2), (1, 1))),)


def snapshot(step: int) -> Snapshot:
    """A snapshot whose weights tell its step; the answer grows with it."""
    tokens = ("8",) * (1 + step % 3)
    weights = torch.full((1, 2, len(tokens), 4), (step % 100) / 100)
    return Snapshot(step, INPUTS, (SnapshotOutput(tokens, {"cross": PackedMaps.of(weights)}),), ((0.25, 0.5),), 0.25)


def replay_of(*steps: int, every: int = 10) -> Replay:
    replay = Replay(every)
    for step in steps:
        replay.add(snapshot(step))
    return replay


def steps_of(replay: Replay) -> list[int]:
    return [each.step for each in replay.snapshots()]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "replay.safetensors"


def test_packed_weights_are_rounded_to_the_nearest_byte():
    weights = torch.rand(2, 2, 5, 7)
    packed = PackedMaps.of(weights)
    assert (torch.from_numpy(packed.array().copy()) / 255 - weights).abs().max() <= 0.5 / 255 + 1e-6
    assert PackedMaps.of(torch.tensor([[[[float("nan"), 1.0]]]])).array().tolist() == [[[[0, 255]]]]


def test_first_and_last_snapshot_stay_within_the_maximum_number():
    replay = Replay(10)
    for step in range(0, 20_000, 10):
        replay.add(snapshot(step))
        kept = steps_of(replay)
        assert len(kept) <= MAX_SNAPSHOTS
        assert (kept[0], kept[-1]) == (0, step)


def test_an_irregular_last_step_is_kept_until_the_next_snapshot():
    replay = replay_of(0, 10, 20, 25)
    assert steps_of(replay) == [0, 10, 20, 25]
    replay.add(snapshot(30))
    assert steps_of(replay) == [0, 10, 20, 30]


def test_rewind_removes_later_snapshots():
    replay = replay_of(0, 10, 20, 30)
    replay.rewind(20)
    assert steps_of(replay) == [0, 10, 20]
    replay.rewind(-1)
    assert steps_of(replay) == []


def test_a_saved_replay_loads_unchanged(path):
    replay = replay_of(0, 10, 20)
    replay.save(path)
    assert Replay.load(path, 10).snapshots() == replay.snapshots()
    replay_of().save(path)
    assert Replay.load(path, 10).snapshots() == []


def test_a_missing_replay_file_is_empty_without_a_warning(path, caplog):
    assert Replay.load(path, 10).snapshots() == []
    assert caplog.text == ""


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def garbage(path: Path) -> None:
    path.write_bytes(b"no tensors here")


def changed(path: Path, change) -> None:
    tensors, _ = read_tensors(path)
    facts = json.loads(tensors.pop("facts").numpy().tobytes())
    tensors = change(tensors["weights"], facts["snapshots"]) or tensors
    write_tensors(path, tensors, facts)  # in the header, as they once were


def of_other_shape(path: Path) -> None:
    changed(path, lambda _, taken: taken[1]["outputs"][0]["shapes"].update(cross=[2, 1, 4, 2]))


def of_endless_shape(path: Path) -> None:
    changed(path, lambda _, taken: taken[1]["outputs"][0]["shapes"].update(cross=[10**12, 2, 2, 4]))


def of_an_unknown_block(path: Path) -> None:
    changed(path, lambda _, taken: taken[1]["outputs"][0]["shapes"].update(other=[1, 1, 1, 1]))


def of_other_type(path: Path) -> None:
    changed(path, lambda weights, _: {"weights": weights.float()})


def with_weights_missing(path: Path) -> None:
    changed(path, lambda weights, _: {"weights": weights[:-1]})


def with_weights_left_over(path: Path) -> None:
    changed(path, lambda weights, _: {"weights": torch.cat([weights, weights])})


def with_an_answer_missing(path: Path) -> None:
    changed(path, lambda _, taken: taken[1]["outputs"].clear())


def of_something_else(path: Path) -> None:
    write_tensors(path, {}, {"step": 3})


DAMAGES = [torn, garbage, of_other_shape, of_endless_shape, of_an_unknown_block, of_other_type, with_weights_missing]
DAMAGES += [with_weights_left_over, with_an_answer_missing, of_something_else]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_replay_is_ignored_with_a_warning(path, caplog, damage):
    replay_of(0, 10).save(path)
    damage(path)
    with caplog.at_level(logging.WARNING):
        replay = Replay.load(path, 10)
    assert replay.snapshots() == []
    assert "a damaged replay" in caplog.text
    replay.add(snapshot(20))  # and the run goes on
    replay.save(path)
    assert steps_of(Replay.load(path, 10)) == [20]
