"""Checkpoints restore what was saved; a damaged or incomplete one is named; a failing disk destroys nothing."""

import errno
import os
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from core.evaluation.accuracy import Evaluation
from core.runs.training_state import load_state
from core.storage.tensor_file import (
    FORMAT,
    CheckpointError,
    load_weights,
    previous_path,
    read_tensors,
    save_weights,
    write_tensors,
)
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.loop import train

FACTS = {"step": 7, "validation_loss": 0.25, "exact_match": None}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "best.safetensors"


def assert_refused(path: Path, preset, message: str) -> None:
    """Both loaders raise a CheckpointError that names the file."""
    for load in (lambda: load_weights(path, new_state(preset).model), lambda: load_state(path, preset)):
        with pytest.raises(CheckpointError, match=message) as caught:
            load()
        assert path.name in str(caught.value)


def test_weights_and_facts_are_restored(tiny, path):
    model, other = new_state(tiny).model, new_state(tiny.with_changes({"training.seed": 1})).model
    save_weights(path, model.state_dict(), FACTS)
    assert load_weights(path, other) == FACTS
    assert_close(dict(other.state_dict()), dict(model.state_dict()), atol=0, rtol=0)


def test_a_state_before_the_first_evaluation_is_restored(tiny, path):
    state = new_state(tiny)
    save_state(path, state)
    loaded = load_state(path, tiny)
    assert loaded.best_loss == float("inf")
    assert loaded.last_evaluation is None
    assert torch.equal(loaded.generator.get_state(), state.generator.get_state())


def test_bleu_and_chrf_are_restored_and_states_saved_without_them_open(tiny, path):
    state = new_state(tiny)
    state.last_evaluation = Evaluation(16, 0.5, 0.5, 0.0, bleu=23.6, chrf=51.2)
    save_state(path, state)
    assert load_state(path, tiny).last_evaluation == state.last_evaluation
    tensors, facts = read_tensors(path)
    del facts["last_evaluation"]["bleu"], facts["last_evaluation"]["chrf"]
    write_tensors(path, tensors, facts)
    assert load_state(path, tiny).last_evaluation == Evaluation(16, 0.5, 0.5, 0.0)


def test_threads_and_seconds_are_restored(tiny, path):
    state = new_state(tiny)
    list(islice(train(state), 3))
    state.threads = 3
    save_state(path, state)
    loaded = load_state(path, tiny)
    assert (loaded.threads, loaded.seconds) == (3, state.seconds)


# --- files that cannot be used ----------------------------------------------------------------------------------


def test_a_missing_file_and_a_folder_are_refused(tiny, path):
    assert_refused(path, tiny, "cannot be read")
    path.mkdir()
    assert_refused(path, tiny, "cannot be read")


def test_a_truncated_file_is_refused(tiny, path):
    save_state(path, new_state(tiny))
    data = path.read_bytes()
    for size in (0, 1, 7, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        assert_refused(path, tiny, "cannot be read")


def test_a_pickle_is_refused(tiny, path):
    path.write_bytes(b"\x80\x04\x95 this could be a pickle")
    assert_refused(path, tiny, "is a pickle")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "attention-lab-0", "facts": "{}"}])
def test_another_format_is_refused(tiny, path, metadata):
    save_file(dict(new_state(tiny).model.state_dict()), path, metadata=metadata)
    assert_refused(path, tiny, f"has format .*, not '{FORMAT}'")


def test_weights_of_another_shape_are_refused(tiny, path):
    wider = tiny.with_changes({"model.d_ff": 64})
    save_weights(path, new_state(wider).model.state_dict(), FACTS)
    with pytest.raises(CheckpointError, match=r"best\.safetensors does not fit the model"):
        load_weights(path, new_state(tiny).model)
    save_state(path, new_state(wider))
    with pytest.raises(CheckpointError, match=r"best\.safetensors does not fit the model"):
        load_state(path, tiny)


def test_weights_are_no_state_and_a_state_no_weights(tiny, path):
    save_weights(path, new_state(tiny).model.state_dict(), FACTS)
    with pytest.raises(CheckpointError, match=r"best\.safetensors"):
        load_state(path, tiny)
    save_state(path, new_state(tiny))
    with pytest.raises(CheckpointError, match=r"best\.safetensors"):
        load_weights(path, new_state(tiny).model)


def test_a_state_without_any_of_its_fields_is_refused(tiny, path):
    save_state(path, new_state(tiny))
    tensors, facts = read_tensors(path)
    del facts["update_norms"]  # older files have none
    assert {"step", "loss_sum", "last_loss", "device", "torch", "cpu"} < set(facts)
    for field in facts:
        write_tensors(path, tensors, {name: value for name, value in facts.items() if name != field})
        with pytest.raises(
            CheckpointError, match=f"best.safetensors is not a training state: it has no field '{field}'"
        ):
            load_state(path, tiny)


@pytest.mark.parametrize("field", ["torch", "cpu"])
def test_a_state_of_another_torch_or_cpu_loads_with_a_notice(tiny, path, field):
    save_state(path, new_state(tiny))
    assert load_state(path, tiny).notice == ""
    tensors, facts = read_tensors(path)
    write_tensors(path, tensors, facts | {field: "0.4.1"})
    notice = load_state(path, tiny).notice
    assert notice.startswith(f"saved with {field} 0.4.1, now ")
    assert notice.endswith("the rest of the run is not bit-exact")


# --- writing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(tiny, path, monkeypatch, failing):
    def disk_full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    state = new_state(tiny)
    save_state(path, state)
    before = path.read_bytes()
    list(islice(train(state), 3))
    with monkeypatch.context() as broken:
        broken.setattr(failing, disk_full)
        with pytest.raises(OSError, match="No space"):
            save_state(path, state)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    save_state(path, state)
    assert load_state(path, tiny).step == 2
    assert load_state(previous_path(path), tiny).step == 0
    assert sorted(os.listdir(path.parent)) == [previous_path(path).name, path.name]


def test_a_file_is_synced_to_disk_before_it_is_renamed(tiny, path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    save_state(path, new_state(tiny))
    assert calls[:2] == ["fsync", "replace"]
