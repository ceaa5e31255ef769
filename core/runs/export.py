"""Export a run: its weights as one file, or a package (zip or folder) that ``core.runs.importing`` reads back.

A package holds ``model.safetensors``, ``preset.yaml``, ``vocabulary.json``, a model card, and the user's own pairs if
the task has any.
"""

import io
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from core.config import preset_to_yaml
from core.runs.folder import PAIRS, RunFolder
from core.runs.load import load_run
from core.runs.model_card import model_card, vocabulary_json
from core.runs.names import stored_title
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.storage.tensor_file import serialize
from core.storage.text_checksum import without_checksum
from core.tasks.vocabularies import token_facts

WEIGHTS, PRESET, VOCABULARY, CARD = "model.safetensors", "preset.yaml", "vocabulary.json", "README.md"


def export_weights(folder: RunFolder, path: Path, *, half: bool = False) -> None:
    """Write a run's best weights, with preset, tokenizers and title in their metadata, to one safetensors file.

    Args:
        half: round the weights to float16, which halves the file. A run computes in float32 all the same.

    Raises:
        RunError: there is no such run, it has no weights yet, or they are damaged.
        InputError: the file exists already, it cannot be written, or a weight is too large for float16.
    """
    _refuse_existing(path)
    content = _weights_file(folder, half=half)
    try:
        write_atomically(path, content)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _weights_file(folder: RunFolder, *, half: bool = False) -> bytes:
    """Return the content of the file that ``export_weights`` writes."""
    loaded = load_run(folder.path)
    facts = {**loaded.facts, "preset": preset_to_yaml(loaded.preset), **token_facts(loaded.task, loaded.preset.task)}
    if title := stored_title(folder.path):
        facts["title"] = title
    weights = loaded.model.state_dict()
    if half:
        weights = {name: tensor.half() for name, tensor in weights.items()}
        if not all(tensor.isfinite().all() for tensor in weights.values()):
            raise InputError(f"--half: a weight of run={folder.name!r} is above 65,504, the largest float16")
    return serialize(weights, facts)


def export_package(folder: RunFolder, path: Path) -> None:
    """Write a run's package: a zip if the path ends in ``.zip``, else a folder.

    Raises:
        RunError: there is no such run, it has no weights yet, or they are damaged.
        InputError: the file or folder exists already, or it cannot be written.
    """
    _refuse_existing(path)
    files = package_files(folder)
    try:
        if path.suffix.lower() == ".zip":
            write_zip(files, path)
            return
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
        try:
            draft.mkdir(parents=True)
            for name, content in files.items():
                (draft / name).write_bytes(content)
            draft.rename(path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise _cannot_write(path, error) from error


def package_files(folder: RunFolder) -> dict[str, bytes]:
    """Return the content of a run's package by file name.

    Raises:
        RunError: there is no such run, it has no weights yet, or they are damaged.
    """
    files = {WEIGHTS: _weights_file(folder)}
    loaded = load_run(folder.path)
    files[PRESET] = without_checksum((folder.path / "preset.yaml").read_bytes())
    files[VOCABULARY] = vocabulary_json(loaded.task).encode()
    files[CARD] = model_card(loaded, folder.read_info(), title=folder.read_title()).encode()
    if loaded.preset.task.own_data and loaded.task.has_pairs:
        files[PAIRS] = folder.pairs.read_bytes()
    return files


def write_zip(files: Mapping[str, bytes], path: Path) -> None:
    """Write files to a zip whose bytes depend on nothing but their names and content (no timestamps)."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files.items():
            archive.writestr(zipfile.ZipInfo(name), file, zipfile.ZIP_DEFLATED)
    write_atomically(path, content.getbuffer())


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise InputError(f"--out={str(path)[:200]} exists already")


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"--out={str(path)[:200]} cannot be written: {error.strerror or error}")
