"""Runs to take away whole: a zip or a folder with weights, preset, vocabularies, model card and somebody's pairs."""

import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from core.runs import RunFolder
from core.runs.export import export_run
from core.runs.folder import PAIRS
from core.runs.imports import MAX_IMPORT_BYTES, import_run
from core.runs.model_card import model_card, vocabulary_json
from core.storage.errors import InputError
from core.storage.tensor_file import CheckpointError
from core.tasks import build_task
from core.tasks.ingest import check_kept

WEIGHTS, PRESET, VOCABULARY, CARD = "model.safetensors", "preset.yaml", "vocabulary.json", "README.md"
_ZIP = b"PK\x03\x04"


def packed_run(folder: RunFolder) -> dict[str, bytes]:
    """Return the files of a package, by name.

    Raises:
        RunError: there is no such run, or it has no weights yet.
        CheckpointError: its weights are damaged.
    """
    with tempfile.TemporaryDirectory() as place:
        weights = Path(place) / WEIGHTS
        export_run(folder, weights)
        files = {WEIGHTS: weights.read_bytes()}
    preset = folder.preset()
    task = build_task(preset.task, pairs=folder.pairs)
    files[PRESET] = (folder.path / "preset.yaml").read_bytes()
    files[VOCABULARY] = vocabulary_json(task).encode()
    files[CARD] = model_card(folder.name, preset, folder.info(), task).encode()
    if preset.task.own_data:
        files[PAIRS] = folder.pairs.read_bytes()
    return files


def write_zip(files: Mapping[str, bytes], path: Path) -> None:
    """Write a package as a zip whose bytes depend on its files only."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def export_package(folder: RunFolder, path: Path) -> None:
    """Write a package: a zip if the name says so, else a folder.

    Raises:
        InputError: there is such a file or folder already, or it cannot be written; else as for ``packed_run``.
    """
    if path.exists():
        raise InputError(f"--out={str(path)[:200]} exists already")
    files = packed_run(folder)
    try:
        if path.suffix == ".zip":
            write_zip(files, path)
            return
        path.mkdir(parents=True)
        for name, content in files.items():
            (path / name).write_bytes(content)
    except OSError as error:
        raise InputError(f"--out={str(path)[:200]} cannot be written: {error.strerror or error}") from error


def import_any(
    root: Path,
    source: Path,
    *,
    name: str | None = None,
    max_bytes: int = MAX_IMPORT_BYTES,
    max_pairs: int | None = None,
) -> RunFolder:
    """Make a finished run of a package, or of a file of weights: what it is is told by its content.

    Args:
        max_bytes: of the whole, and of each file in it.
        max_pairs: that somebody's own data may have.

    Raises:
        CheckpointError: it is none, or not a sound one.
        RunError: there is a run of that name.
        LabError: its pairs are not those that its preset names, or are missing.
        OSError: the folder cannot be written to.
    """
    if source.is_dir():
        return _imported(root, lambda file: _in_folder(source / file, max_bytes), name, max_pairs)
    if _is_package(source, max_bytes):
        with zipfile.ZipFile(source) as archive:
            return _imported(root, lambda file: _in_zip(archive, file, max_bytes), name, max_pairs)
    return import_run(root, source, name=name, max_bytes=max_bytes)


def _imported(root: Path, read: Callable[[str], bytes | None], name: str | None, max_pairs: int | None) -> RunFolder:
    weights = read(WEIGHTS)
    if weights is None:
        raise CheckpointError(f"the package has no {WEIGHTS}")
    with tempfile.TemporaryDirectory() as place:
        pairs = Path(place) / PAIRS
        if (content := read(PAIRS)) is not None:
            pairs.write_bytes(content)
            check_kept(pairs, max_pairs=max_pairs)
        return import_run(root, weights, name=name, max_bytes=len(weights), pairs=pairs)


def _is_package(path: Path, max_bytes: int) -> bool:
    """Tell whether a file is a zip with weights in it; what is no zip, or too large, is left to who reads weights."""
    try:
        if path.stat().st_size > max_bytes:
            return False
        with path.open("rb") as file:
            if file.read(len(_ZIP)) != _ZIP:
                return False
        with zipfile.ZipFile(path) as archive:
            return WEIGHTS in archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def _in_zip(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes | None:
    if name not in archive.namelist():
        return None
    try:
        with archive.open(name) as file:  # what it says of its size is not believed
            return _checked(name, file.read(max_bytes + 1), max_bytes)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise CheckpointError(f"the package: {name} cannot be read: {error}") from error


def _in_folder(path: Path, max_bytes: int) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return _checked(path.name, file.read(max_bytes + 1), max_bytes)


def _checked(name: str, content: bytes, max_bytes: int) -> bytes:
    if len(content) > max_bytes:
        raise CheckpointError(f"the package: {name} has more than {max_bytes:,} bytes, as many as are read")
    return content
