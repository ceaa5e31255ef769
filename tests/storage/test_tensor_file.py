"""A file of tensors comes back as it was or is refused by name, and the one before it steps in."""

import hashlib
import io
import json

import pytest
import torch
from safetensors.torch import save

from core.storage.tensor_file import (
    FORMAT,
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    UNSEALED_FORMAT,
    CheckpointError,
    is_intact,
    packed,
    previous_of,
    read_header,
    read_or_previous,
    read_tensors,
    unpacked,
    write_tensors,
)

TENSORS = {
    "matrix": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "nothing": torch.empty(0, 4),
}
FACTS = {"step": 3, "text": '"sha256":"' + "0" * 64 + '"', "none": None}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS, FACTS)
    return path


def read(data: bytes) -> dict[str, torch.Tensor]:
    file = io.BytesIO(data)
    return unpacked(read_header(file, "x"), file.read(), "x")


def test_tensors_of_every_kind_and_facts_come_back(path):
    tensors, facts = read_tensors(path)
    assert facts == FACTS
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_the_checksum_is_of_the_whole_file_with_zeros_in_its_place(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    digest = json.loads(data[8 : 8 + length])["__metadata__"]["sha256"].encode()
    place = data.index(b'"sha256":"' + digest) + len('"sha256":"')
    zeroed = data[:place] + b"0" * 64 + data[place + 64 :]
    assert hashlib.sha256(zeroed).hexdigest().encode() == digest


def test_a_flip_of_any_single_bit_is_noticed():
    data = packed({"a": torch.ones(3)}, {"step": 1})
    assert read(data)["a"].tolist() == [1, 1, 1]
    for place in range(len(data)):
        for bit in (1, 128):
            damaged = data.copy()
            damaged[place] ^= bit
            with pytest.raises(CheckpointError):
                read(damaged)


@pytest.mark.parametrize("kept", [0, 3, 8, 50, -1])
def test_a_file_that_was_cut_off_or_grew_is_refused(path, kept):
    data = path.read_bytes()
    with pytest.raises(CheckpointError, match="x cannot be read"):
        read(data[:kept])
    with pytest.raises(CheckpointError, match="x cannot be read: it has 1 bytes too many"):
        read(data + b"\0")


def with_header(header: dict | bytes, rest: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


METADATA = {"format": FORMAT, "facts": "{}"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((2**64 - 1).to_bytes(8, "little"), "does not begin like a safetensors file"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{" * 2_000_000, "does not begin like a safetensors file"),
        (with_header(b"[" * MAX_HEADER_BYTES), "its header is damaged"),
        (with_header(b"[]"), "its header is damaged"),
        (with_header({"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}, b"0000"), "header is damaged"),
        (with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 10**12]}}), "bytes too few"),
        (with_header({"__metadata__": METADATA}), "damaged: it has 0 checksums"),
        (with_header({"__metadata__": METADATA | {"sha256": "0" * 64}}), "0 checksums"),  # written with a space
        (with_header({"__metadata__": {"format": UNSEALED_FORMAT, "sha256": "?", "facts": "{}"}}), "0 checksums"),
        (with_header({"__metadata__": {"format": "pt"}}), f"x has format 'pt', not '{FORMAT}'"),
        (with_header({"__metadata__": {"format": FORMAT, "facts": "[]"}}), "its facts are no mapping"),
        (with_header({"__metadata__": {"format": FORMAT, "facts": "{"}}), "does not say what it holds"),
        (save({str(n): torch.empty(0) for n in range(MAX_TENSORS + 1)}), f"at most {MAX_TENSORS} are read"),
        (b"PK\x03\x04" + b"\0\0\0\0\0\x08" * 20, "x is a zip archive, as PyTorch's .pt files are"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00", "x is a pickle, as old PyTorch files are"),
    ],
)
def test_what_is_something_else_is_refused_for_what_it_is(data, message):
    with pytest.raises(CheckpointError, match=message):
        read(data)


def test_only_the_header_of_a_wrong_file_is_read():
    class Endless(io.BytesIO):
        def read(self, count=-1):
            assert 0 <= count <= MAX_HEADER_BYTES
            return super().read(count)

    with pytest.raises(CheckpointError):
        read_header(Endless(b"\xff" * 3_000_000), "x")


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="could not be read again"):
        write_tensors(tmp_path / "x", TENSORS, {"long": "a" * MAX_HEADER_BYTES})


# --- the one before it ------------------------------------------------------------------------------------------


def step_of(path) -> int:
    return read_tensors(path)[1]["step"]


def test_the_one_before_is_kept_on_demand_only(path):
    write_tensors(path, TENSORS, {"step": 4})
    assert not previous_of(path).exists()
    for step in (5, 6):
        write_tensors(path, TENSORS, {"step": step}, keep_previous=True)
    assert (step_of(path), step_of(previous_of(path))) == (6, 5)
    assert sorted(each.name for each in path.parent.iterdir()) == ["x.previous.safetensors", "x.safetensors"]


@pytest.mark.parametrize("damage", ["flipped", "emptied", "missing"])
def test_where_the_newest_is_damaged_the_one_before_is_read_and_never_lost(path, caplog, damage):
    write_tensors(path, TENSORS, {"step": 4}, keep_previous=True)
    assert read_or_previous(path, step_of) == (4, "")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"\xff" if damage == "flipped" else b"")
    assert not is_intact(path)
    step, note = read_or_previous(path, step_of)
    assert step == 3
    assert note.startswith("x.safetensors ")
    assert note.endswith("; the one saved before it is used")
    assert note in caplog.text
    write_tensors(path, TENSORS, {"step": 5}, keep_previous=True)
    assert (step_of(path), step_of(previous_of(path))) == (5, 3)  # what was damaged did not take its place


def test_where_both_are_damaged_both_are_named(path):
    write_tensors(path, TENSORS, {"step": 4}, keep_previous=True)
    for each in (path, previous_of(path)):
        each.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"^x\.safetensors .*; nor can .* x\.previous\.safetensors "):
        read_or_previous(path, step_of)


def test_without_hard_links_the_one_before_is_kept_as_well(path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no hard links here")

    monkeypatch.setattr("os.link", refuse)
    write_tensors(path, TENSORS, {"step": 4}, keep_previous=True)
    assert (step_of(path), step_of(previous_of(path))) == (4, 3)
