"""Safetensors files with JSON facts and a checksum. Nothing is unpickled.

A file is an ordinary safetensors file. Its metadata has three strings: ``format``, ``facts`` (JSON that describes the
tensors) and ``sha256``, the SHA-256 of the whole file with zeros in place of these 64 digits. The checksum is verified
before anything else is used, since safetensors has none and most damage would only change numbers.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from core.storage.atomic import previous_path, write_atomically
from core.storage.errors import CheckpointError

FORMAT = "attention-lab-2"
MAX_HEADER_BYTES = 48_000_000
MAX_TENSORS = 10_000
_CHUNK_BYTES = 1_000_000  # read at a time to verify a checksum
_LENGTH_BYTES = 8  # the file starts with the header's length, a little-endian integer
_ZEROS = b"0" * 64
_CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_FORMAT_LIMIT = 100_000_000  # header bytes that any reader accepts; a pickle may begin like a smaller length
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive, such as PyTorch's .pt files",
    b"\x80": "a pickle, such as old PyTorch files",
    b"\x1f\x8b": "a gzip archive",
}
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Header:
    """The parsed header of a file.

    Attributes:
        raw: the header's bytes, those of its length included.
        shapes: dtype (as safetensors writes it, such as ``F32``) and shape of every tensor by name; not yet compared
            with the rest of the file.
        facts: the JSON facts.
    """

    raw: bytes
    shapes: dict[str, tuple[str, tuple[int, ...]]]
    facts: dict[str, Any]


def write_tensors(
    path: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any], *, keep_previous: bool = False
) -> None:
    """Write tensors and JSON facts to one file, atomically.

    Args:
        keep_previous: keep the old file as ``previous_path(path)``, unless it is damaged.
    """
    previous = previous_path(path) if keep_previous and is_intact(path) else None
    write_atomically(path, *_serialized(tensors, facts), previous=previous)


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read tensors and facts from a file that ``write_tensors`` wrote.

    Raises:
        CheckpointError: the file is missing, damaged or of another format.
    """
    try:
        with path.open("rb") as file:
            header = read_header(file, path.name)
            return deserialize(header, file.read(), path.name), header.facts
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {error.strerror or error}") from error


def read_with_fallback(path: Path, read: Callable[[Path], T]) -> tuple[T, str]:
    """Read a file; if it is missing or damaged, read ``previous_path(path)`` instead.

    Args:
        read: reads a file, or raises CheckpointError.

    Returns:
        The result of ``read``, and a notice for the user: "" unless the previous file was read.

    Raises:
        CheckpointError: neither file can be read; the message gives both reasons.
    """
    try:
        return read(path), ""
    except CheckpointError as error:
        previous, reason = previous_path(path), str(error)
        if not previous.exists():
            raise
    try:
        result = read(previous)
    except CheckpointError as error:
        raise CheckpointError(f"{reason}; the previous file cannot be read either: {error}") from error
    notice = f"{reason}; the previous file is used instead"
    _log.warning("%s: %s", path, notice)
    return result, notice


def save_weights(path: Path, weights: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Write a model's state dict and JSON facts about it, atomically; keep the old file as the previous one."""
    write_tensors(path, weights, facts, keep_previous=True)


def load_weights(path: Path, model: torch.nn.Module) -> dict[str, Any]:
    """Load a weight file into a model of the same shape and return its facts.

    Raises:
        CheckpointError: the file is missing, damaged, of another format or of another model.
    """
    tensors, facts = read_tensors(path)
    load_into(model, tensors, path.name)
    return facts


def load_into(model: torch.nn.Module, tensors: dict[str, torch.Tensor], label: str) -> None:
    """Load a state dict into a model.

    Args:
        label: the file's name, for the message.

    Raises:
        CheckpointError: the tensors belong to another model.
    """
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{label} does not fit the model: {error}") from error


def serialize(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> bytes:
    """Return the content of a file with these tensors and facts."""
    return b"".join(_serialized(tensors, facts))


def _serialized(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> tuple[bytearray, memoryview]:
    """Return the header and the rest of a file, because joining them would copy all tensors again."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "facts": json.dumps(facts), "sha256": _ZEROS.decode()}
    data = save(contiguous, metadata=metadata)
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    header = bytearray(data[:end])
    checksum = _CHECKSUM.search(header)
    if end > MAX_HEADER_BYTES or len(tensors) > MAX_TENSORS or not checksum:
        raise ValueError(f"{len(tensors)} tensors and a header of {end} bytes exceed what can be read back")
    header[checksum.start(1) : checksum.end(1)] = hashlib.sha256(data).hexdigest().encode()
    return header, memoryview(data)[end:]


def _what_else(start: bytes, name: str, max_bytes: int) -> str:
    """Say what a file is that does not start with the length of a header."""
    length = int.from_bytes(start, "little")
    for magic, kind in _OTHER_FORMATS.items():
        if start.startswith(magic) and length > (max_bytes if len(magic) > 1 else _FORMAT_LIMIT):
            return f"{name} is {kind}; only safetensors files are read"
    if not start:
        return f"{name} cannot be read: it is empty"
    kinds = "neither a zip archive nor a" if name.endswith(".zip") else "not a"
    return f"{name} cannot be read: it is {kinds} safetensors file with at most {max_bytes:,} header bytes"


def read_header(file: BinaryIO, name: str, *, max_bytes: int = MAX_HEADER_BYTES) -> Header:
    """Read a file's header, of which at most ``max_bytes`` are read.

    Args:
        name: the file's name, for messages.
        max_bytes: at most ``MAX_HEADER_BYTES``.

    Raises:
        CheckpointError: the header is damaged or of another format.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(_LENGTH_BYTES)
    length = int.from_bytes(start, "little")
    if len(start) < _LENGTH_BYTES or length > max_bytes:
        raise CheckpointError(_what_else(start, name, max_bytes))
    text = file.read(length)
    if len(text) < length:
        raise CheckpointError(f"{name} cannot be read: it ends inside its header")
    try:
        content = json.loads(text)
        metadata = content.pop("__metadata__", {})
        shapes = {key: (str(entry["dtype"]), tuple(map(int, entry["shape"]))) for key, entry in content.items()}
        data_end = max((int(entry["data_offsets"][1]) for entry in content.values()), default=0)
        missing = len(start + text) + data_end - size
        version, facts, checksum = metadata.get("format"), metadata.get("facts"), metadata.get("sha256")
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{name} cannot be read: its header is damaged") from error
    if len(shapes) > MAX_TENSORS:
        raise CheckpointError(f"{name} has {len(shapes)} tensors; the maximum is {MAX_TENSORS}")
    if missing:
        raise CheckpointError(
            f"{name} cannot be read: it has {_short(abs(missing))} bytes too {'few' if missing > 0 else 'many'}"
        )
    if version != FORMAT:
        raise CheckpointError(f"{name} has format {_short(version)}, not {FORMAT!r}")
    if checksum is None:
        raise CheckpointError(f"{name} has no checksum")
    return Header(start + text, shapes, _parse_facts(facts, name))


def deserialize(header: Header, rest: bytes, name: str) -> dict[str, torch.Tensor]:
    """Verify the checksum and return a file's tensors.

    Args:
        rest: the file's bytes after the header.
        name: the file's name, for messages.

    Raises:
        CheckpointError: the file is damaged.
    """
    _verify_checksum(header.raw, [rest], name)
    try:
        return load(header.raw + rest)
    # safetensors checks that tensors neither overlap nor leave gaps; torch raises the rest, for unusual shapes.
    except (SafetensorError, ValueError, KeyError, RuntimeError, AssertionError, OverflowError, TypeError) as error:
        raise CheckpointError(f"{name} cannot be read: {_short(error)}") from error


def is_intact(path: Path) -> bool:
    """Whether a file has a valid header and the correct checksum; its tensors are not kept in memory."""
    try:
        with path.open("rb") as file:
            header = read_header(file, path.name)
            _verify_checksum(header.raw, iter(lambda: file.read(_CHUNK_BYTES), b""), path.name)
    except (OSError, CheckpointError):
        return False
    return True


def _verify_checksum(raw: bytes, rest: Iterable[bytes], name: str) -> None:
    checksums = _CHECKSUM.findall(raw)
    if len(checksums) != 1:
        raise CheckpointError(f"{name} is damaged: it has {len(checksums)} checksums instead of one")
    digest = hashlib.sha256(_CHECKSUM.sub(b'"sha256":"' + _ZEROS + b'"', raw))
    for chunk in rest:
        digest.update(chunk)
    if digest.hexdigest().encode() != checksums[0]:
        raise CheckpointError(f"{name} is damaged: its content does not match its checksum")


def _parse_facts(text: Any, name: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{name} has damaged facts: {_short(error)}") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{name} has damaged facts: not a JSON object")
    return facts


def _short(value: Any) -> str:
    """Return the text of an exception or the repr of a value, shortened for a message."""
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
