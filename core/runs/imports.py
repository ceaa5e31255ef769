"""Take in a run that comes as one file, from whomever: ``best.safetensors`` of any run is one.

Nothing in the file is believed before it is checked: its size, its header, its checksum, the preset in it, then whether
its tensors are, by name, shape and type, those of that preset's model. Until then nothing is allocated but the file.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config import ConfigError, Preset, preset_to_yaml, read_preset
from core.models import count_parameters, outline_model
from core.runs import RunFolder, RunInfo
from core.storage.tensor_file import CheckpointError, Header, packed, read_header, unpacked
from core.tasks import build_task

MAX_IMPORT_BYTES = 64 * 1024 * 1024
_TYPES = {torch.float32: "F32"}


class BestFacts(BaseModel):
    """What is told of best weights."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    step: Annotated[int, Field(ge=0, le=1_000_000)]
    validation_loss: Annotated[float, Field(ge=0)]
    exact_match: Annotated[float, Field(ge=0, le=1)] | None
    preset: Annotated[str, Field(max_length=64 * 1024)]


def import_run(
    root: Path,
    source: Path | bytes,
    *,
    name: str | None = None,
    max_bytes: int = MAX_IMPORT_BYTES,
    pairs: Path | None = None,
) -> RunFolder:
    """Make a finished run of a file, complete or not at all.

    Args:
        root: the folder of runs.
        source: the file, or its content; which kind it is is told by what is in it, not by its name.
        name: of the new run; None makes up a free one.
        max_bytes: larger files are refused unread.
        pairs: the file of the task's own pairs, if it has any.

    Raises:
        CheckpointError: the file is too large, damaged, of another kind, or its parts do not belong together.
        ConfigError: the file of own pairs is missing or holds other pairs.
        RunError: there is a run of that name, or it is not one a run can have.
        OSError: the folder cannot be written to.
    """
    label = source.name[:60] if isinstance(source, Path) else "the file"
    with _opened(source, label) as file:
        _check_size(file, max_bytes, label)
        header = read_header(file, label)
        facts, preset = _facts_of(header, label)
        parameters = _check_outline(header, preset, pairs, label)
        tensors = unpacked(header, file.read(max_bytes), label)
    for tensor, values in tensors.items():
        if not values.isfinite().all():
            raise CheckpointError(f"{label}: tensor {tensor!r} has values that are not finite")
    info = RunInfo(
        status="finished",
        message="imported from a file, which has the best weights only",
        parameters=parameters,
        step=facts.step,
        best_step=facts.step,
        exact_match=facts.exact_match,
    )
    known = facts.model_copy(update={"preset": preset_to_yaml(preset)}).model_dump()
    contents = {"best.safetensors": packed(tensors, known), "run.json": info.model_dump_json(indent=1).encode()}
    return RunFolder.create(root, preset, name=name, pairs=pairs, contents=contents)


@contextlib.contextmanager
def _opened(source: Path | bytes, label: str) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    try:
        if not source.is_file():
            raise CheckpointError(f"{label} cannot be read: there is no such file")
        with source.open("rb") as file:
            yield file
    except OSError as error:
        raise CheckpointError(f"{label} cannot be read: {error.strerror or error}") from error


def _check_size(file: BinaryIO, max_bytes: int, label: str) -> None:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size > max_bytes:
        raise CheckpointError(f"{label} has {size:,} bytes; at most {max_bytes:,} are read")


def _facts_of(header: Header, label: str) -> tuple[BestFacts, Preset]:
    if not header.sealed:
        raise CheckpointError(
            f"{label} is of an older version and brings no preset; `python -m core export` makes a file that does"
        )
    if "generator" in header.shapes:
        raise CheckpointError(
            f"{label} is a state to continue from; only weights are imported: best.safetensors, or what export writes"
        )
    try:
        facts = BestFacts.model_validate(header.facts)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        raise CheckpointError(f"{label}: its {field} is wrong: {error.errors()[0]['msg']}") from error
    try:
        return facts, read_preset(facts.preset, name="imported")
    except ConfigError as error:
        raise CheckpointError(f"{label}: its preset is not valid: {error}") from error


def _check_outline(header: Header, preset: Preset, pairs: Path | None, label: str) -> int:
    """Check that the tensors are those of the preset's model, and return how many parameters they have."""
    model = outline_model(preset.model, build_task(preset.task, pairs=pairs))
    expected = {name: (_TYPES[each.dtype], tuple(each.shape)) for name, each in model.state_dict().items()}
    for name in sorted(expected.keys() | header.shapes.keys()):
        if header.shapes.get(name) == expected.get(name):
            continue
        has, wants = (_in_words(each.get(name)) for each in (header.shapes, expected))
        raise CheckpointError(f"{label}: tensor {name[:100]!r} is {has}; the model of its preset has {wants}")
    return count_parameters(model)


def _in_words(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "none" if tensor is None else f"{tensor[0][:20]} {tensor[1][:8]}"
