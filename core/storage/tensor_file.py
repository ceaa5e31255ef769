"""Tensors and JSON facts in one safetensors file that carries its own checksum; nothing is ever unpickled.

The file is an ordinary safetensors file. Its metadata are three texts: ``format``, ``facts`` (JSON) and ``sha256``, the
SHA-256 of the whole file with zeros in place of these 64 digits. It is checked before anything else is believed:
safetensors itself has no checksum, and takes most damage for other numbers.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from core.storage.atomic import write_atomically
from core.storage.errors import LabError

FORMAT = "attention-lab-2"
UNSEALED_FORMAT = "attention-lab-1"  # of files written before there were checksums
MAX_HEADER_BYTES = 1_000_000
MAX_TENSORS = 10_000
_LENGTH_BYTES = 8  # a little-endian number in front of the header
_ZEROS = b"0" * 64
_SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_OTHERS = {
    b"PK\x03\x04": "a zip archive, as PyTorch's .pt files are",
    b"\x80": "a pickle, as old PyTorch files are",
    b"\x1f\x8b": "a gzip archive",
}
T = TypeVar("T")
_log = logging.getLogger(__name__)


class CheckpointError(LabError):
    """A checkpoint cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Header:
    """What the beginning of a file says about the rest.

    Attributes:
        raw: its bytes, those of its length included.
        shapes: dtype (as safetensors writes it: ``F32``) and shape of every tensor by name, not yet compared with
            the rest of the file.
        sealed: whether the file carries a checksum.
    """

    raw: bytes
    shapes: dict[str, tuple[str, tuple[int, ...]]]
    facts: dict[str, Any]
    sealed: bool


def previous_of(path: Path) -> Path:
    """Return where the file is kept that a newer one took the place of: ``last.previous.safetensors``."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def write_tensors(
    path: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any], *, keep_previous: bool = False
) -> None:
    """Write tensors and JSON facts about them into one file, atomically.

    Args:
        keep_previous: keep the old file as ``previous_of(path)``, unless it is damaged.
    """
    data = packed(tensors, facts)
    write_atomically(path, data, previous=previous_of(path) if keep_previous and is_intact(path) else None)


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read what ``write_tensors`` wrote.

    Raises:
        CheckpointError: the file is missing, damaged or of another format.
    """
    try:
        with path.open("rb") as file:
            header = read_header(file, path.name)
            return unpacked(header, file.read(), path.name), header.facts
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {error.strerror or error}") from error


def read_or_previous(path: Path, read: Callable[[Path], T]) -> tuple[T, str]:
    """Read a file or, where that cannot be used, the one that was kept when it was written.

    Args:
        read: makes of a file what is wanted, or raises CheckpointError.

    Returns:
        What was read, and what to tell about it: "" if it is the newest.

    Raises:
        CheckpointError: neither can be used; the message says of both why.
    """
    try:
        return read(path), ""
    except CheckpointError as error:
        previous, why = previous_of(path), str(error)
        if not previous.exists():
            raise
    try:
        found = read(previous)
    except CheckpointError as error:
        raise CheckpointError(f"{why}; nor can the one before it be used: {error}") from error
    note = f"{why}; the one saved before it is used"
    _log.warning("%s: %s", path, note)
    return found, note


def save_weights(path: Path, weights: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Write a model's state dict and JSON facts about it atomically; the old file is kept as the previous one."""
    write_tensors(path, weights, facts, keep_previous=True)


def load_weights(path: Path, model: torch.nn.Module) -> dict[str, Any]:
    """Load a weight file into a model of the same shape and return the facts saved with it.

    Raises:
        CheckpointError: the file is missing, damaged, of another format or of another model.
    """
    tensors, facts = read_tensors(path)
    load_into(model, tensors, path.name)
    return facts


def load_into(model: torch.nn.Module, tensors: dict[str, torch.Tensor], label: str) -> None:
    """Load a state dict into a model; CheckpointError, which names ``label``, if it is of another model."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{label} does not fit the model: {error}") from error


def packed(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> bytearray:
    """Return the content of a file with these tensors and facts."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "facts": json.dumps(facts), "sha256": _ZEROS.decode()}
    data = bytearray(save(contiguous, metadata=metadata))
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if end > MAX_HEADER_BYTES or len(tensors) > MAX_TENSORS:
        raise ValueError(f"{len(tensors)} tensors and a header of {end} bytes could not be read again")
    place = _SEAL.search(data, 0, end).start(1)
    data[place : place + len(_ZEROS)] = hashlib.sha256(data).hexdigest().encode()
    return data


def read_header(file: BinaryIO, name: str) -> Header:
    """Read the beginning of a file, at most a megabyte, whatever it claims.

    Args:
        name: of the file, for messages.

    Raises:
        CheckpointError: it is not the beginning of a file that ``packed`` made.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(_LENGTH_BYTES)
    length = int.from_bytes(start, "little")
    for magic, kind in _OTHERS.items():
        if start.startswith(magic) and length > MAX_HEADER_BYTES:
            raise CheckpointError(f"{name} is {kind}; only safetensors files are read")
    if len(start) < _LENGTH_BYTES or length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{name} cannot be read: it does not begin like a safetensors file")
    text = file.read(length)
    if len(text) < length:
        raise CheckpointError(f"{name} cannot be read: it ends within its header")
    try:
        content = json.loads(text)
        metadata = content.pop("__metadata__", {})
        shapes = {key: (str(each["dtype"]), tuple(map(int, each["shape"]))) for key, each in content.items()}
        missing = len(start + text) + max((int(each["data_offsets"][1]) for each in content.values()), default=0) - size
        version, facts = metadata.get("format"), metadata.get("facts")
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{name} cannot be read: its header is damaged") from error
    if len(shapes) > MAX_TENSORS:
        raise CheckpointError(f"{name} has {len(shapes)} tensors; at most {MAX_TENSORS} are read")
    if missing:
        raise CheckpointError(
            f"{name} cannot be read: it has {_short(abs(missing))} bytes too {'few' if missing > 0 else 'many'}"
        )
    if version not in (FORMAT, UNSEALED_FORMAT):
        raise CheckpointError(f"{name} has format {_short(version)}, not {FORMAT!r}")
    return Header(start + text, shapes, _parsed(facts, name), version == FORMAT or "sha256" in metadata)


def unpacked(header: Header, rest: bytes, name: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a file whose header was read.

    Args:
        rest: what follows the header.
        name: of the file, for messages.

    Raises:
        CheckpointError: the file is damaged.
    """
    if header.sealed:
        _check_seal(header.raw, rest, name)
    try:
        return load(header.raw + rest)
    # The library checks that tensors neither overlap nor leave a gap; what torch says of odd shapes is the rest.
    except (SafetensorError, ValueError, KeyError, RuntimeError, AssertionError, OverflowError, TypeError) as error:
        raise CheckpointError(f"{name} cannot be read: {_short(error)}") from error


def is_intact(path: Path) -> bool:
    """Tell whether a file is one that ``write_tensors`` wrote, undamaged."""
    try:
        read_tensors(path)
    except CheckpointError:
        return False
    return True


def _check_seal(raw: bytes, rest: bytes, name: str) -> None:
    found = _SEAL.findall(raw)
    if len(found) != 1:
        raise CheckpointError(f"{name} is damaged: it has {len(found)} checksums, not one")
    digest = hashlib.sha256(_SEAL.sub(b'"sha256":"' + _ZEROS + b'"', raw))
    digest.update(rest)
    if digest.hexdigest().encode() != found[0]:
        raise CheckpointError(f"{name} is damaged: its content does not match its checksum")


def _parsed(facts: Any, name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(facts)
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{name} does not say what it holds: {_short(error)}") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{name} does not say what it holds: its facts are no mapping")
    return parsed


def _short(value: Any) -> str:
    """Show what is in a file without letting a stranger's megabyte into a message."""
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
