"""The file that holds a preset's own pairs. A preset names it by its SHA-256; callers pass the path."""

import hashlib
from pathlib import Path

from core.config.preset import ConfigError
from core.config.tasks import TaskConfig


def pairs_beside(preset_file: Path) -> Path:
    """Return the pairs file of a preset file: ``NAME.pairs.tsv`` beside ``NAME.yaml``."""
    return preset_file.with_suffix(".pairs.tsv")


def verified_pairs(task: TaskConfig, path: Path | None) -> Path:
    """Return ``path`` after checking that it holds the pairs that ``task.data`` names.

    Raises:
        ConfigError: there is no such file, or its SHA-256 is another one.
    """
    label = f"task.data={task.own_data[:12]}…"
    try:
        if path is None:
            raise FileNotFoundError
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        message = "the file with these pairs is missing; a run keeps it as pairs.tsv, a preset NAME.yaml needs it as "
        raise ConfigError([("task.data", f"{label}: {message}NAME.pairs.tsv in the same folder")]) from error
    if sha256 != task.own_data:
        raise ConfigError([("task.data", f"{label}: {path.name} holds other pairs, with SHA-256 {sha256[:12]}…")])
    return path
