"""Weights kept at a few training steps: which, in how many bytes, and in a file whose damage never stops the run."""

import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import load_preset
from core.interpret.snapshots import Snapshot, is_snapshot_step
from core.models import outline_model
from core.runs.replay import Replay
from core.runs.weights_by_step import MAX_BYTES, WeightsByStep, steps_to_keep
from core.storage.tensor_file import MAX_HEADER_BYTES, read_tensors, write_tensors
from core.tasks import build_task


def kept(*steps: int) -> WeightsByStep:
    weights = WeightsByStep()
    for step in steps:
        weights.add(step, {"layer.weight": torch.full((2, 3), float(step)), "layer.bias": torch.tensor(0.5)})
    return weights


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights-by-step.safetensors"


def test_start_end_and_three_steps_between_are_kept():
    assert steps_to_keep(1000, every=25, num_bytes=680_000) == (0, 25, 125, 500, 1000)
    assert steps_to_keep(64_000, every=1000, num_bytes=1) == (0, 2000, 8000, 32_000, 64_000)
    assert steps_to_keep(8, every=4, num_bytes=1) == (0, 4, 8)
    assert steps_to_keep(30, every=100, num_bytes=1) == (0, 30)


def test_a_large_model_keeps_fewer_steps_and_a_larger_one_none():
    sizes = (MAX_BYTES // 5, MAX_BYTES // 4, MAX_BYTES // 3, MAX_BYTES // 3 + 1, 10 * MAX_BYTES)
    every = [steps_to_keep(3200, every=100, num_bytes=size) for size in sizes]
    assert every == [(0, 100, 400, 1600, 3200), (0, 400, 1600, 3200), (0, 400, 3200), (), ()]


@given(steps=st.integers(1, 30_000), every=st.integers(1, 3000), num_bytes=st.integers(1, 2 * MAX_BYTES))
def test_the_steps_fit_the_budget_and_have_a_snapshot_to_the_end(steps: int, every: int, num_bytes: int):
    chosen = steps_to_keep(steps, every=every, num_bytes=num_bytes)
    assert len(chosen) * num_bytes <= MAX_BYTES
    assert not chosen or {0, steps} <= set(chosen) <= set(range(steps + 1))
    replay = Replay(every)
    for step in [*range(0, steps, every), steps]:
        if step == steps or is_snapshot_step(step, every=every):
            replay.add(Snapshot(step, (), ()))
    assert set(chosen) <= {each.step for each in replay.snapshots()}
    assert list(chosen) == sorted(set(chosen))


def test_the_model_with_the_most_tensors_fits_into_one_file():
    preset = load_preset("tiny").with_changes({"model.num_encoder_layers": 12, "model.num_decoder_layers": 12})
    names = outline_model(preset.model, build_task(preset.task)).state_dict()
    header = sum(
        len(f'"{10**6}.{name}":{{"dtype":"F32","shape":[1000,1000],"data_offsets":[{10**7},{10**7}]}},')
        for name in names
    )
    assert 5 * header < 0.7 * MAX_HEADER_BYTES


def test_saved_weights_load_unchanged(path):
    kept(0, 25, 1000).save(path)
    loaded = WeightsByStep.load(path)
    assert loaded.steps == (0, 25, 1000)
    assert loaded.at(25)["layer.weight"].tolist() == [[25.0] * 3] * 2
    assert loaded.at(25)["layer.bias"].item() == 0.5
    assert loaded.at(26) is None


def test_rewind_removes_later_steps_from_memory_and_from_the_next_file(path):
    kept(0, 25, 1000).save(path)
    weights = WeightsByStep.load(path)
    weights.rewind(999)
    assert weights.steps == (0, 25)
    weights.save(path)
    assert WeightsByStep.load(path).steps == (0, 25)
    weights.rewind(-1)
    weights.save(path)
    assert WeightsByStep.load(path).steps == ()


def test_a_file_is_written_only_if_something_changed(path):
    WeightsByStep().save(path)
    assert not path.exists()
    weights = kept(0)
    weights.save(path)
    path.unlink()
    weights.rewind(10)
    weights.save(path)
    assert not path.exists()
    weights.add(25, {"layer.weight": torch.zeros(1)})
    weights.save(path)
    assert WeightsByStep.load(path).steps == (0, 25)


def test_a_failed_write_is_repeated(path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    weights = kept(0)
    with monkeypatch.context() as patched:
        patched.setattr("core.storage.tensor_file.write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            weights.save(path)
    weights.save(path)
    assert WeightsByStep.load(path).steps == (0,)


def test_a_missing_file_holds_no_weights_without_a_warning(path, caplog):
    assert WeightsByStep.load(path).steps == ()
    assert caplog.text == ""


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def of_something_else(path: Path) -> None:
    tensors, _ = read_tensors(path)
    write_tensors(path, {"model." + name: tensor for name, tensor in tensors.items()}, {})


@pytest.mark.parametrize("damage", [torn, flipped, of_something_else])
def test_a_damaged_file_is_ignored_with_a_warning(path, caplog, damage):
    kept(0, 25).save(path)
    damage(path)
    with caplog.at_level(logging.WARNING):
        weights = WeightsByStep.load(path)
    assert weights.steps == ()
    assert "ignoring damaged weights by step" in caplog.text
    weights.add(50, {"layer.weight": torch.zeros(1)})  # and the run goes on
    weights.save(path)
    assert WeightsByStep.load(path).steps == (50,)
