"""The lessons as files: those on attention whose runs the site has, and those about bugs."""

import json
from collections.abc import Collection
from typing import Any

from core.teaching.attention_lessons import attention_lessons
from core.teaching.lessons import lesson_names, load_lesson
from ui.components.lesson import attention_lesson, lesson_value
from ui.components.lesson.live_figures import LessonRequest


def lesson_files(runs: Collection[str]) -> dict[str, bytes]:
    """Return the lessons by path; those on attention only if all their runs are among ``runs``."""
    found: dict[str, Any] = {
        each.name: attention_lesson(LessonRequest(name=each.name))
        for each in attention_lessons()
        if each.runs <= set(runs)
    }
    if found:
        found |= {name: lesson_value(load_lesson(name)) for name in lesson_names()}
    return {f"lessons/{name}.json": json.dumps(value).encode() for name, value in found.items()}


def lesson_list(files: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the value of the component ``lesson`` for the lessons among some files."""
    bugs = [name for name in lesson_names() if f"lessons/{name}.json" in files]
    return {
        "attention": [
            {"name": each.name, "title": each.title, "questions": [question.id for question in each.questions]}
            for each in attention_lessons()
            if f"lessons/{each.name}.json" in files
        ],
        "lessons": [{"name": name, "title": load_lesson(name).title} for name in bugs],
    }
