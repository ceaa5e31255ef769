"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.storage.errors import InputError, LabError
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS, bug_notice
from core.teaching.lessons import SECTIONS, Lesson, lesson_names, load_lesson
from ui.attention_blocks import BLOCK_NAMES
from ui.components.component import component


def lesson_view(*, elem_id: str = "lesson") -> gr.HTML:
    """The list of lessons and the selected one. Value: ``{"lessons": [{"name", "title"}]}``.

    Event: ``.train(fn)`` with ``evt.lesson``.
    """
    value = {"lessons": [{"name": name, "title": _title(name)} for name in lesson_names()]}
    scripts = ["history.js", "plot.js", "series_chart.js", "attention_map.js", "lights.js"]
    styles = ["series_chart.css", "lights.css"]
    return component(
        "lesson", elem_id=elem_id, value=value, server_functions={"lesson": lesson}, scripts=scripts, styles=styles
    )


FIRST_BLOCK = {"no-causal-mask": "decoder", "targets-not-shifted": "decoder"}  # where the bug shows; else cross


class LessonRequest(BaseModel):
    """Which lesson a browser asks for; anybody may, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=100)


def lesson(request: dict[str, Any]) -> dict[str, Any]:
    """Return a lesson for the component, or ``{"error": …}``."""
    try:
        return as_value(load_lesson(LessonRequest.model_validate(request).name))
    except ValidationError as error:
        return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}
    except LabError as error:
        return {"error": str(error)}


def as_value(found: Lesson) -> dict[str, Any]:
    """Return a lesson as plain data: its text in paragraphs of plain and code pieces, and the results of its pair."""
    results = found.results
    if results is None:
        raise InputError(f"lesson {found.name} has no results yet: python -m core lesson {found.name}")
    sides = {side: dict(results[side]) for side in ("right", "broken")}
    for side in sides.values():
        side["titles"] = [BUG_DESCRIPTIONS[bug].title for bug in side["doctor"]["bugs"]]
    blocks = list(sides["right"]["attention"])
    return {
        "name": found.name,
        "title": found.title,
        "broken": bug_notice(found.broken),
        "text": {section: _paragraphs(found.text.get(section, "")) for section in SECTIONS},
        "sides": sides,
        "seconds": results["seconds"],
        "blocks": [{"block": block, "name": BLOCK_NAMES[block]} for block in blocks],
        "first_block": FIRST_BLOCK.get(found.name, "cross"),
    }


def _paragraphs(text: str) -> list[list[str]]:
    """Split Markdown into paragraphs, and those at backticks: every second piece is code."""
    return [" ".join(block.split()).split("`") for block in text.split("\n\n") if block.strip()]


def _title(name: str) -> str:
    return BUG_DESCRIPTIONS[name].title
