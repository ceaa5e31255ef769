"""Import a run from an untrusted file: a weight file (``best.safetensors`` of any run is one) or a package.

Nothing in a file is trusted before it is checked: its size, its header, its checksum, the preset in its metadata, then
whether its tensors are, by name, shape and dtype, those of that preset's model. Nothing but the file itself is
allocated until then, and nothing is ever unpickled.
"""

import contextlib
import io
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config import ConfigError, Preset, preset_to_yaml, read_preset
from core.config.tasks import SUBWORDS, VOCABULARY
from core.evaluation.headline import HeadlineFigures
from core.models import count_parameters, outline_model
from core.runs.export import WEIGHTS
from core.runs.folder import BEST, PAIRS, RunFolder
from core.runs.info import Provenance, RunInfo, RunQuality, StartingPoint
from core.runs.names import TITLE_FILE, Naming, title_content, validate_title
from core.storage.error_messages import short_repr, shortened
from core.storage.errors import InputError
from core.storage.tensor_file import MAX_HEADER_BYTES, CheckpointError, Header, deserialize, read_header, serialize
from core.storage.validation_errors import first_problem
from core.tasks import build_task
from core.tasks.ingest import check_pairs_file
from core.tasks.subword_pairs import MAX_BYTES as MAX_SUBWORD_BYTES
from core.tasks.vocabularies import MAX_BYTES as MAX_VOCABULARY_BYTES
from core.tasks.vocabularies import StoredVocabularies
from core.text.subwords import SubwordTokenizers

MAX_IMPORT_BYTES = 64 * 1024 * 1024
MAX_UPLOADED_HEADER_BYTES = 4_000_000  # from strangers; a model imported on one's own machine may need more
_DTYPES = {"F32", "F16"}  # of weights; they are loaded into a float32 model
_READ = {WEIGHTS, PAIRS}  # the files of a package that are read
_NULLABLE = ("validation_loss", "exact_match")
MAX_ZIP_ENTRIES = 1_000  # a package has five
_MAX_ZIP_DIRECTORY = 256 * 1024  # bytes
_ZIP_MAGIC = b"PK\x03\x04"
_ZIP_END = struct.Struct("<4s4H2LH")  # signature, two disks, entries twice, size and offset of the directory, comment
_ZIP_END_MAGIC = b"PK\x05\x06"
_ZIP64_LOCATOR_BYTES, _ZIP64_LOCATOR_MAGIC = 20, b"PK\x06\x07"


class WeightsFacts(BaseModel):
    """Metadata that a weight file must have."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    step: Annotated[int, Field(ge=0, le=1_000_000)]
    validation_loss: Annotated[float, Field(ge=0)] | None  # None if it was not measured
    exact_match: Annotated[float, Field(ge=0, le=1)] | None
    quality: RunQuality | None = None
    headline: HeadlineFigures = ()
    confidence_threshold: Annotated[float, Field(le=0)] | None = None
    preset: Annotated[str, Field(max_length=64 * 1024)]
    subwords: Annotated[str, Field(max_length=MAX_SUBWORD_BYTES)] | None = None
    vocabulary: Annotated[str, Field(max_length=MAX_VOCABULARY_BYTES)] | None = None
    start: StartingPoint | None = None
    provenance: Provenance = ()


def import_run(
    root: Path,
    source: Path,
    *,
    name: str | Naming | None = None,
    max_bytes: int = MAX_IMPORT_BYTES,
    max_pairs: int | None = None,
    max_header_bytes: int = MAX_HEADER_BYTES,
) -> RunFolder:
    """Create a finished run from a weight file, a zip or a folder; the content decides which it is, not the name.

    Args:
        root: the folder of runs.
        name: of the new run, see ``RunFolder.create``.
        max_bytes: size limit of a weight file or zip, and of each file inside a package.
        max_pairs: limit on the number of the user's own pairs in a package.
        max_header_bytes: size limit of the header of the weights, which is parsed before its checksum is verified.

    Raises:
        CheckpointError: the source is none of these, or it is damaged.
        RunError: a run of that name exists.
        LabError: the package's pairs are missing, or not those that its preset names.
        OSError: the folder of runs cannot be written to.
    """
    package: dict[str, Any] = {"name": name, "max_pairs": max_pairs, "max_header_bytes": max_header_bytes}
    if source.is_dir():
        return _import_package(root, lambda file: _read_from_folder(source / file, max_bytes), **package)
    if (files := _files_in_zip(source, max_bytes)) is not None:
        return _import_package(root, files.get, **package)
    return import_weights(root, source, name=name, max_bytes=max_bytes, max_header_bytes=max_header_bytes)


def import_weights(
    root: Path,
    source: Path | bytes,
    *,
    name: str | Naming | None = None,
    max_bytes: int = MAX_IMPORT_BYTES,
    pairs: Path | None = None,
    max_header_bytes: int = MAX_HEADER_BYTES,
) -> RunFolder:
    """Create a finished run from a weight file, either complete or not at all.

    The run keeps the title that it was exported with, if it is valid, even if another run has it.

    Args:
        source: path or content of the file.
        pairs: the file of the task's own pairs, if it has any.
        max_header_bytes: size limit of the file's header.

    Raises:
        CheckpointError: the file is too large, damaged, of another kind, or its parts do not belong together.
        ConfigError: the file of own pairs is missing or holds other pairs.
        RunError: a run of that name exists, or the name is not valid.
        OSError: the folder of runs cannot be written to.
    """
    label = shortened(source.name) if isinstance(source, Path) else "the file"
    with _opened(source, label) as file:
        _check_size(file, max_bytes, label)
        header = read_header(file, label, max_bytes=max_header_bytes)
        facts, preset = _checked_facts(header, label)
        tokens = _checked_tokens(facts, preset, label)
        with _task_files(pairs, tokens) as files:
            parameters = _check_tensors(header, preset, files, label)
        tensors = deserialize(header, file.read(max_bytes), label)
    for tensor, values in tensors.items():
        if not values.isfinite().all():
            raise CheckpointError(f"{label}: tensor {tensor!r} has values that are not finite")
    info = RunInfo(
        status="finished",
        message="imported from a file that holds only the best weights",
        parameters=parameters,
        step=facts.step,
        best_step=facts.step,
        exact_match=facts.exact_match,
        quality=facts.quality,
        start=facts.start,
        headline=facts.headline,
        provenance=facts.provenance,
    )
    stored = {"subwords": tokens.get(SUBWORDS), "vocabulary": tokens.get(VOCABULARY)}
    checked = facts.model_copy(update={"preset": preset_to_yaml(preset)} | stored).model_dump(mode="json")
    trusted = {name: value for name, value in checked.items() if value not in (None, []) or name in _NULLABLE}
    contents: dict[str, bytes | bytearray] = {
        BEST: serialize(tensors, trusted),
        "run.json": info.model_dump_json(indent=1).encode(),
    }
    contents |= {file: content.encode() for file, content in tokens.items()}
    if title := _valid_title(header):
        contents[TITLE_FILE] = title_content(title)
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
        raise CheckpointError(f"{label} has {size:,} bytes; the limit is {max_bytes:,}")


def _checked_facts(header: Header, label: str) -> tuple[WeightsFacts, Preset]:
    if "generator" in header.shapes:
        raise CheckpointError(
            f"{label} is a training state; only weights can be imported: best.safetensors, or a file made by export"
        )
    try:
        facts = WeightsFacts.model_validate(header.facts)
    except ValidationError as error:
        raise CheckpointError(f"{label}: {first_problem(error)}") from error
    try:
        return facts, read_preset(facts.preset, name="imported")
    except ConfigError as error:
        raise CheckpointError(f"{label}: its preset is not valid: {error}") from error


def _checked_tokens(facts: WeightsFacts, preset: Preset, label: str) -> dict[str, str]:
    """Return tokenizers or vocabularies as JSON by file name, validated and serialized again; {} if there are none."""
    if preset.task.has_subwords:
        if facts.subwords is None:
            raise CheckpointError(f"{label}: its tokenizers are missing, without which its token ids mean nothing")
        subwords = SubwordTokenizers.from_json(facts.subwords, f"{label}: its subword vocabulary")
        return {SUBWORDS: subwords.model_dump_json()}
    if preset.task.inherited_vocabulary:
        if facts.vocabulary is None:
            raise CheckpointError(f"{label}: its vocabularies are missing, without which its token ids mean nothing")
        vocabularies = StoredVocabularies.from_json(facts.vocabulary, f"{label}: its vocabularies")
        return {VOCABULARY: vocabularies.model_dump_json()}
    return {}


@contextlib.contextmanager
def _task_files(pairs: Path | None, tokens: Mapping[str, str]) -> Iterator[Path | None]:
    """Lay out the files that a task is built from as in a run's folder; the path is that of the pairs."""
    if not tokens:
        yield pairs
        return
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / PAIRS
        if pairs is not None and pairs.is_file():
            shutil.copyfile(pairs, files)
        for file, content in tokens.items():
            files.with_name(file).write_text(content, encoding="utf-8")
        yield files


def _valid_title(header: Header) -> str | None:
    """Return the title that the run was exported with; None if there is none, or it is not valid."""
    title = header.facts.get("title")
    try:
        return validate_title(title) if isinstance(title, str) else None
    except InputError:
        return None


def _check_tensors(header: Header, preset: Preset, pairs: Path | None, label: str) -> int:
    """Check that the tensors are those of the preset's model, and return how many parameters they have."""
    model = outline_model(preset.model, build_task(preset.task, pairs=pairs))
    expected = {name: ("F32", tuple(each.shape)) for name, each in model.state_dict().items()}
    for name in sorted(expected.keys() | header.shapes.keys()):
        dtype, shape = header.shapes.get(name, ("", None))
        if name in expected and dtype in _DTYPES and shape == expected[name][1]:
            continue
        actual, wanted = (_describe(each.get(name)) for each in (header.shapes, expected))
        raise CheckpointError(
            f"{label}: tensor {short_repr(name, 100)} is {actual}; in the model of its preset it is {wanted}"
        )
    return count_parameters(model)


def _describe(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if tensor is None else f"{tensor[0][:20]} {tensor[1][:8]}"


# ---- packages


def _import_package(
    root: Path,
    read: Callable[[str], bytes | None],
    *,
    name: str | Naming | None,
    max_pairs: int | None,
    max_header_bytes: int,
) -> RunFolder:
    weights = read(WEIGHTS)
    if weights is None:
        raise CheckpointError(f"the package has no {WEIGHTS}")
    with tempfile.TemporaryDirectory() as temporary:
        pairs = Path(temporary) / PAIRS
        if (content := read(PAIRS)) is not None:
            pairs.write_bytes(content)
            check_pairs_file(pairs, max_pairs=max_pairs)
        return import_weights(
            root, weights, name=name, max_bytes=len(weights), pairs=pairs, max_header_bytes=max_header_bytes
        )


def _files_in_zip(path: Path, max_bytes: int) -> dict[str, bytes] | None:
    """Return the files of a package, or None: anything else is left to ``import_weights`` to read or refuse.

    Raises:
        CheckpointError: the zip is damaged; nothing has been written by then, so no error here is one of writing.
    """
    if not _is_zip(path, max_bytes):
        return None
    label = shortened(path.name)
    try:
        with path.open("rb") as file:
            _check_directory(file, label)
            with zipfile.ZipFile(file) as archive:
                if WEIGHTS not in archive.namelist():
                    return None
                return {name: _read_from_zip(archive, name, max_bytes) for name in _READ & set(archive.namelist())}
    except CheckpointError:
        raise
    # What zipfile raises for damage is not documented: offsets and lengths in the file go straight into seek and struct
    except (
        ArithmeticError,
        EOFError,
        LookupError,
        OSError,
        RuntimeError,
        ValueError,
        struct.error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise CheckpointError(f"{label} is a zip archive that cannot be read: {_one_line(error)}") from error


def _is_zip(path: Path, max_bytes: int) -> bool:
    try:
        with path.open("rb") as file:
            return path.stat().st_size <= max_bytes and file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    except OSError:
        return False


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__


def _check_directory(file: BinaryIO, label: str) -> None:
    """Check the size of a zip's directory, which ``zipfile`` would read whole.

    Only plain zips end as ``zipfile`` itself writes them: with a directory of less than 4 GB and no comment. Of others
    the two readers could see different directories.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _ZIP64_LOCATOR_BYTES - _ZIP_END.size))
    tail = file.read()
    record, before = tail[-_ZIP_END.size :], tail[: -_ZIP_END.size]
    if len(record) < _ZIP_END.size or record[:4] != _ZIP_END_MAGIC:
        raise CheckpointError(f"{label} is a zip archive that does not end with its directory; it may be damaged")
    *_, entries, size, _, comment = _ZIP_END.unpack(record)
    if comment or before.startswith(_ZIP64_LOCATOR_MAGIC):
        raise CheckpointError(f"{label} is a zip archive with a comment or in Zip64 format, which is not read")
    if entries > MAX_ZIP_ENTRIES or size > _MAX_ZIP_DIRECTORY:
        raise CheckpointError(
            f"{label} is a zip archive of {entries:,} files with a directory of {size:,} bytes; the maximum is "
            f"{MAX_ZIP_ENTRIES:,} files and {_MAX_ZIP_DIRECTORY:,} bytes"
        )


def _read_from_zip(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise CheckpointError(f"the package: {name} must be stored or deflated")  # LZMA takes the memory it names
    with archive.open(name) as file:  # the size that the archive declares is not trusted
        return _bounded(name, file.read(max_bytes + 1), max_bytes)


def _read_from_folder(path: Path, max_bytes: int) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return _bounded(path.name, file.read(max_bytes + 1), max_bytes)


def _bounded(name: str, content: bytes, max_bytes: int) -> bytes:
    if len(content) > max_bytes:
        raise CheckpointError(f"the package: {name} has more than {max_bytes:,} bytes, which is the limit")
    return content
