"""Checkpoints come back as they were, damaged ones are named, and a failing disk destroys nothing."""

import errno
import json
import os
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from core.config import load_preset
from core.runs.recorder import load_state
from core.storage.tensor_file import FORMAT, UNSEALED_FORMAT, CheckpointError, previous_of, read_tensors, write_tensors
from core.teaching.bugs import new_state
from core.training.checkpoint import load_weights, save_state, save_weights
from core.training.loop import train

FACTS = {"step": 7, "validation_loss": 0.25, "exact_match": None}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "best.safetensors"


def test_weights_and_facts_come_back_as_they_were(tiny, path):
    model, other = new_state(tiny).model, new_state(tiny.with_changes({"training.seed": 1})).model
    save_weights(path, model.state_dict(), FACTS)
    assert load_weights(path, other) == FACTS
    assert_close(dict(other.state_dict()), dict(model.state_dict()), atol=0, rtol=0)


def test_a_state_that_was_never_evaluated_comes_back(tiny, path):
    state = new_state(tiny)
    save_state(path, state)
    loaded = load_state(path, tiny)
    assert loaded.best_loss == float("inf")
    assert loaded.last_evaluation is None
    assert torch.equal(loaded.generator.get_state(), state.generator.get_state())


def test_a_state_remembers_its_threads_and_seconds(tiny, path):
    state = new_state(tiny)
    list(islice(train(state), 3))
    state.threads = 3
    save_state(path, state)
    loaded = load_state(path, tiny)
    assert (loaded.threads, loaded.seconds) == (3, state.seconds)


def test_a_state_saved_before_there_were_devices_comes_back(tiny, path):
    state = new_state(tiny)
    list(islice(train(state), 3))
    save_state(path, state)
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
    for later in ("device", "last_loss", "last_gradient_norm", "torch", "cpu"):
        del facts[later]
    save_file(load_file(path), path, metadata={"format": UNSEALED_FORMAT, "facts": json.dumps(facts)})
    loaded = load_state(path, tiny)
    assert (loaded.step, loaded.last_loss) == (2, None)
    assert torch.equal(loaded.generator.get_state(), state.generator.get_state())


def refuses(path: Path, preset, message: str) -> None:
    for load in (lambda: load_weights(path, new_state(preset).model), lambda: load_state(path, preset)):
        with pytest.raises(CheckpointError, match=message) as caught:
            load()
        assert path.name in str(caught.value)


def test_a_missing_file_is_named(tiny, path):
    refuses(path, tiny, "cannot be read")


def test_a_folder_in_place_of_a_file_is_named(tiny, path):
    path.mkdir()
    refuses(path, tiny, "cannot be read")


@pytest.mark.parametrize("kept", [0, 1, 7, 100, 0.5, -1])
def test_a_truncated_file_is_named(tiny, path, kept):
    save_state(path, new_state(tiny))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept) if isinstance(kept, float) else kept])
    refuses(path, tiny, "cannot be read")


def test_a_file_that_is_something_else_is_named(tiny, path):
    path.write_bytes(b"\x80\x04\x95 this could be a pickle")
    refuses(path, tiny, "is a pickle")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "attention-lab-0", "facts": "{}"}])
def test_another_format_is_named(tiny, path, metadata):
    save_file(dict(new_state(tiny).model.state_dict()), path, metadata=metadata)
    refuses(path, tiny, f"has format .*, not '{FORMAT}'")


@pytest.mark.parametrize("facts", [{}, {"facts": "{"}])
def test_the_right_format_without_proper_facts_is_named(tiny, path, facts):
    save_file(dict(new_state(tiny).model.state_dict()), path, metadata={"format": UNSEALED_FORMAT} | facts)
    with pytest.raises(CheckpointError, match=path.name):
        load_weights(path, new_state(tiny).model)


def test_weights_of_another_shape_are_named(tiny, path):
    wider = tiny.with_changes({"model.d_ff": 64})
    save_weights(path, new_state(wider).model.state_dict(), FACTS)
    with pytest.raises(CheckpointError, match=r"best\.safetensors does not fit the model"):
        load_weights(path, new_state(tiny).model)
    save_state(path, new_state(wider))
    with pytest.raises(CheckpointError, match=r"best\.safetensors does not fit the model"):
        load_state(path, tiny)


def test_weights_alone_are_not_a_state_nor_a_state_weights(tiny, path):
    save_weights(path, new_state(tiny).model.state_dict(), FACTS)
    with pytest.raises(CheckpointError, match=r"best\.safetensors"):
        load_state(path, tiny)
    save_state(path, new_state(tiny))
    with pytest.raises(CheckpointError, match=r"best\.safetensors"):
        load_weights(path, new_state(tiny).model)


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(tiny, path, monkeypatch, failing):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    state = new_state(tiny)
    save_state(path, state)
    before = path.read_bytes()
    list(islice(train(state), 3))
    with monkeypatch.context() as broken:
        broken.setattr(failing, full)
        with pytest.raises(OSError, match="No space"):
            save_state(path, state)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    save_state(path, state)
    assert load_state(path, tiny).step == 2
    assert load_state(previous_of(path), tiny).step == 0
    assert sorted(os.listdir(path.parent)) == [previous_of(path).name, path.name]


def test_a_file_is_on_disk_before_it_takes_its_name(tiny, path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    save_state(path, new_state(tiny))
    assert calls[:2] == ["fsync", "replace"]


def test_a_state_saved_before_the_mean_loss_was_kept_still_loads(tiny, path):
    save_state(path, new_state(tiny))
    tensors, facts = read_tensors(path)
    del facts["loss_sum"]
    write_tensors(path, tensors, facts)
    assert load_state(path, tiny).loss_sum == 0.0


@pytest.mark.parametrize("other", ["torch", "cpu"])
def test_a_state_of_another_torch_or_cpu_loads_and_says_it_is_not_bit_exact(tiny, path, other):
    save_state(path, new_state(tiny))
    assert load_state(path, tiny).notice == ""
    tensors, facts = read_tensors(path)
    write_tensors(path, tensors, facts | {other: "0.4.1"})
    notice = load_state(path, tiny).notice
    assert notice.startswith(f"saved with {other} 0.4.1, now ")
    assert notice.endswith("the rest of the run is not bit-exact")


@pytest.mark.parametrize(("data", "is_told"), [("fresh", True), ("fixed", False), ("pairs", False)])
def test_a_state_says_that_its_fresh_batches_of_like_lengths_were_drawn_otherwise(tiny, path, data, is_told):
    preset = load_preset("g2p-english") if data == "pairs" else tiny
    sequences = 20 if data == "fixed" else 0
    preset = preset.with_changes({"training.group_by_length": True, "training.training_sequences": sequences})
    save_state(path, new_state(preset))
    assert load_state(path, preset).notice == ""
    tensors, facts = read_tensors(path)
    facts.pop("fresh batches", None)
    write_tensors(path, tensors, facts)
    told = (
        "saved with fresh batches chosen from sixteen, now drawn sixteen at once: the rest of the run is not bit-exact"
    )
    assert load_state(path, preset).notice == (told if is_told else "")
