"""A lesson: a folder with a text, a broken preset, and the results of training it and the correct preset."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from core.config import PRESET_FOLDER, BugName, Preset, read_preset
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS

LESSON_FOLDER = PRESET_FOLDER / "lessons"
TEXT_FILE, PRESET_FILE, RESULTS_FILE = "lesson.md", "preset.yaml", "results.json"
SECTIONS = ("Predict", "What happens", "What gives it away", "The fix")


@dataclass(frozen=True)
class Lesson:
    """One lesson.

    Attributes:
        name: of its folder and of its bug.
        text: Markdown by section; see ``SECTIONS``.
        broken: the preset with the bug.
        results: the result of ``measure_pair``; None if it has not been run.
    """

    name: str
    text: dict[str, str]
    broken: Preset
    results: dict[str, Any] | None

    @property
    def title(self) -> str:
        """The title of the bug."""
        return BUG_DESCRIPTIONS[cast(BugName, self.name)].title

    @property
    def right(self) -> Preset:
        """The same preset without the bug."""
        changes = {"name": f"{self.name}-right", "description": f"The lesson {self.name}, without the bug."}
        return self.broken.with_bug(None).model_copy(update=changes)


def lesson_names(folder: Path = LESSON_FOLDER) -> list[str]:
    """Return the names of the lessons, in the order of the bugs."""
    return [name for name in BUG_DESCRIPTIONS if (folder / name / TEXT_FILE).is_file()]


def load_lesson(name: str, *, folder: Path = LESSON_FOLDER) -> Lesson:
    """Load a lesson by name. The name may come from a visitor; names outside the folder are refused.

    Raises:
        InputError: there is no such lesson.
        ConfigError: its preset is not valid.
    """
    names = lesson_names(folder)
    if name not in names:
        raise InputError(f"lesson={short_repr(name)} is not one of {', '.join(names)}")
    path = folder / name
    results = path / RESULTS_FILE
    return Lesson(
        name,
        _sections((path / TEXT_FILE).read_text(encoding="utf-8")),
        read_preset((path / PRESET_FILE).read_bytes(), name=name),
        json.loads(results.read_text(encoding="utf-8")) if results.is_file() else None,
    )


def _sections(text: str) -> dict[str, str]:
    """Split Markdown at its second-level headings."""
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {heading.strip(): body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)}
