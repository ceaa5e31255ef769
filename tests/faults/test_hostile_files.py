"""Hostile files are refused with a CheckpointError, quickly, in little memory, and no code in them runs."""

import os
import time

import pytest

from core.config import preset_to_yaml
from core.runs.importing import MAX_UPLOADED_HEADER_BYTES, import_weights
from core.runs.training_state import clone_weights
from core.storage.tensor_file import CheckpointError, serialize
from core.teaching.bugs import new_state
from tests.faults.hostile import misnamed_files, pt_files, safetensors_files

SECONDS, MEGABYTES = 1.0, 100.0  # of CPU time: other processes may be busy


@pytest.fixture
def facts(tiny) -> dict:
    return {"step": 4, "validation_loss": 0.5, "exact_match": 0.25, "preset": preset_to_yaml(tiny)}


@pytest.fixture
def refused(root, tmp_path, memory):
    """Import a file by path and by content, and expect a quick refusal that takes little memory."""

    def refuse(name: str, data: bytes, suffix: str) -> None:
        path = tmp_path / f"upload{suffix}"
        path.write_bytes(data)
        for source in (path, data):
            memory.restart()
            start = time.process_time()
            with pytest.raises(CheckpointError) as caught:
                import_weights(root, source, max_header_bytes=MAX_UPLOADED_HEADER_BYTES)
            assert time.process_time() - start < SECONDS, name
            assert memory.grown() < MEGABYTES, name
            assert len(str(caught.value)) < 1_000, name
        assert not root.exists() or not os.listdir(root), name

    return refuse


def test_a_valid_file_is_imported(root, tiny, facts):
    import_weights(root, bytes(serialize(clone_weights(new_state(tiny).model), facts)), name="good")


def test_pickles_are_refused_and_their_code_never_runs(tmp_path, refused):
    marker = tmp_path / "marker"
    files = list(pt_files(marker))
    assert len(files) >= 50
    for suffix in (".pt", ".safetensors"):
        for name, data in files:
            refused(name, data, suffix)
    assert not marker.exists()


def test_unpickling_such_a_file_would_create_the_marker(tmp_path):
    import pickle

    name, data = next(pt_files(tmp_path / "marker"))
    assert name == "system in protocol 0"
    pickle.loads(data)  # noqa: S301 - what the files above would do
    assert (tmp_path / "marker").exists()


def test_hostile_safetensors_are_refused(tiny, facts, refused):
    files = list(safetensors_files(clone_weights(new_state(tiny).model), facts))
    assert len(files) >= 36
    for name, data in files:
        refused(name, data, ".safetensors")


def test_files_of_other_types_are_refused(refused):
    files = list(misnamed_files())
    assert len(files) >= 8
    for name, data in files:
        refused(name, data, ".safetensors")
