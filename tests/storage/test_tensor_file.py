"""Tensor files: round trips, damage, other formats, and the previous file as a fallback."""

import hashlib
import io
import json
import tracemalloc

import pytest
import torch
from safetensors.torch import save

from core.storage.tensor_file import (
    FORMAT,
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    CheckpointError,
    deserialize,
    is_intact,
    previous_path,
    read_header,
    read_tensors,
    read_with_fallback,
    serialize,
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
    return deserialize(read_header(file, "x"), file.read(), "x")


def test_tensors_of_every_dtype_and_facts_survive_a_round_trip(path):
    tensors, facts = read_tensors(path)
    assert facts == FACTS
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_the_checksum_covers_the_whole_file_with_its_digits_zeroed(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    digest = json.loads(data[8 : 8 + length])["__metadata__"]["sha256"].encode()
    start = data.index(b'"sha256":"' + digest) + len('"sha256":"')
    zeroed = data[:start] + b"0" * 64 + data[start + 64 :]
    assert hashlib.sha256(zeroed).hexdigest().encode() == digest


def test_every_single_bit_flip_is_detected():
    data = bytearray(serialize({"a": torch.ones(3)}, {"step": 1}))
    assert read(data)["a"].tolist() == [1, 1, 1]
    for position in range(len(data)):
        for bit in (1, 128):
            damaged = data.copy()
            damaged[position] ^= bit
            with pytest.raises(CheckpointError):
                read(damaged)


def test_truncated_and_extended_files_are_refused(path):
    data = path.read_bytes()
    for end in (0, 3, 8, 50, -1):
        with pytest.raises(CheckpointError, match="x cannot be read"):
            read(data[:end])
    with pytest.raises(CheckpointError, match="x cannot be read: it has 1 bytes too many"):
        read(data + b"\0")


def with_header(header: dict | bytes, rest: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


METADATA = {"format": FORMAT, "facts": "{}"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x cannot be read: it is empty"),
        (b"text", "it is not a safetensors file with at most"),
        ((2**64 - 1).to_bytes(8, "little"), "it is not a safetensors file with at most"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{" * 2_000_000, "it is not a safetensors file with at most"),
        (with_header(b"[" * MAX_HEADER_BYTES), "its header is damaged"),
        (with_header(b"[]"), "its header is damaged"),
        (with_header({"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}, b"0000"), "header is damaged"),
        (with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 10**12]}}), "bytes too few"),
        (with_header({"__metadata__": METADATA}), "x has no checksum"),
        (
            with_header({"__metadata__": METADATA | {"sha256": "0" * 64}}),
            "0 checksums instead of one",
        ),  # written with a space
        (with_header({"__metadata__": METADATA | {"sha256": "?"}}), "0 checksums"),
        (with_header({"__metadata__": {"format": "attention-lab-1", "facts": "{}"}}), f"not '{FORMAT}'"),
        (with_header({"__metadata__": {"format": "pt"}}), f"x has format 'pt', not '{FORMAT}'"),
        (with_header({"__metadata__": METADATA | {"sha256": "", "facts": "[]"}}), "damaged facts: not a JSON object"),
        (with_header({"__metadata__": METADATA | {"sha256": "", "facts": "{"}}), "x has damaged facts"),
        (save({str(n): torch.empty(0) for n in range(MAX_TENSORS + 1)}), f"the maximum is {MAX_TENSORS}"),
        (b"PK\x03\x04" + b"\0\0\0\0\0\x08" * 20, "x is a zip archive, such as PyTorch's .pt files"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00", "x is a pickle, such as old PyTorch files"),
    ],
)
def test_other_formats_are_refused_with_the_reason(data, message):
    with pytest.raises(CheckpointError, match=message):
        read(data)


def test_at_most_the_header_size_is_read_of_a_foreign_file():
    class Endless(io.BytesIO):
        def read(self, count=-1):
            assert 0 <= count <= MAX_HEADER_BYTES
            return super().read(count)

    with pytest.raises(CheckpointError):
        read_header(Endless(b"\xff" * 3_000_000), "x")


def test_a_header_too_large_to_read_back_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="exceed what can be read back"):
        write_tensors(tmp_path / "x", TENSORS, {"long": "a" * MAX_HEADER_BYTES})


# --- the previous file ------------------------------------------------------------------------------------------


def step_of(path) -> int:
    return read_tensors(path)[1]["step"]


def test_the_previous_file_is_kept_only_on_request(path):
    write_tensors(path, TENSORS, {"step": 4})
    assert not previous_path(path).exists()
    for step in (5, 6):
        write_tensors(path, TENSORS, {"step": step}, keep_previous=True)
    assert (step_of(path), step_of(previous_path(path))) == (6, 5)
    assert sorted(each.name for each in path.parent.iterdir()) == ["x.previous.safetensors", "x.safetensors"]


def test_a_save_that_keeps_the_previous_file_holds_the_tensors_once(path):
    tensors = {"a": torch.ones(2_000_000)}
    tracemalloc.start()
    try:
        for step in (1, 2):
            write_tensors(path, tensors, {"step": step}, keep_previous=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 8_000_000 <= peak < 1.5 * 8_000_000


@pytest.mark.parametrize("damage", ["flipped", "emptied", "missing"])
def test_a_damaged_file_falls_back_to_the_previous_one_which_is_kept(path, caplog, damage):
    write_tensors(path, TENSORS, {"step": 4}, keep_previous=True)
    assert read_with_fallback(path, step_of) == (4, "")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"\xff" if damage == "flipped" else b"")
    assert not is_intact(path)
    step, notice = read_with_fallback(path, step_of)
    assert step == 3
    assert notice.startswith("x.safetensors ")
    assert notice.endswith("; the previous file is used instead")
    assert notice in caplog.text
    write_tensors(path, TENSORS, {"step": 5}, keep_previous=True)
    assert (step_of(path), step_of(previous_path(path))) == (5, 3)  # the damaged file did not replace it


def test_if_both_files_are_damaged_the_error_names_both(path):
    write_tensors(path, TENSORS, {"step": 4}, keep_previous=True)
    for each in (path, previous_path(path)):
        each.write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"^x\.safetensors .*; the previous file cannot .* x\.previous\.safetensors "
    ):
        read_with_fallback(path, step_of)


def test_the_previous_file_is_kept_without_hard_links(path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no hard links here")

    monkeypatch.setattr("os.link", refuse)
    write_tensors(path, TENSORS, {"step": 4}, keep_previous=True)
    assert (step_of(path), step_of(previous_path(path))) == (4, 3)
