"""The Lessons tab: pick a bug, predict what it does, see it beside the right run, and train the pair oneself."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config.bugs import BUG_FACTS
from core.server.access import VisitorRuns, without_secret
from core.storage.errors import InputError, LabError
from core.teaching.lessons import SECTIONS, Lesson, lesson_names, load_lesson
from ui.blocks import BLOCK_NAMES
from ui.components import lesson_view, notice
from ui.preset_form import QUIET

FIRST_BLOCK = {"no-causal-mask": "decoder", "targets-not-shifted": "decoder"}  # where the bug shows; else cross


@dataclass(frozen=True)
class LessonsTab:
    """The parts of the tab."""

    view: gr.HTML
    message: gr.HTML


def build(runs: VisitorRuns, run: gr.State) -> LessonsTab:
    """Build the tab and wire its own events; a pair that is begun makes its broken run the current one."""
    view = lesson_view(lesson, value={"lessons": [{"name": name, "title": _title(name)} for name in lesson_names()]})
    tab = LessonsTab(view, notice(elem_id="lesson-message"))
    start = partial(begin_pair, runs)

    def begin(event: gr.EventData) -> list[Any]:  # Gradio hands an event only to what declares one
        return start(str(event.lesson))

    view.train(begin, None, [tab.message, run], **QUIET)
    return tab


def begin_pair(runs: VisitorRuns, name: str) -> list[Any]:
    """Start the two runs of a lesson; return the message to show and the run to follow."""
    try:
        found = load_lesson(name)
        started = [
            runs.start(preset, like=f"{name}-{side}")
            for side, preset in (("right", found.right), ("broken", found.broken))
        ]
    except LabError as error:
        return [{"text": str(error), "problem": True}, gr.skip()]
    right, broken = map(without_secret, started)
    text = f"{right} and {broken} train now: watch them on the Train tab, and compare them when they are done."
    return [{"text": text}, started[1]]


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
        side["titles"] = [BUG_FACTS[bug].title for bug in side["doctor"]["bugs"]]
    blocks = list(sides["right"]["attention"])
    return {
        "name": found.name,
        "title": found.title,
        "broken": found.broken.broken,
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
    return BUG_FACTS[name].title
