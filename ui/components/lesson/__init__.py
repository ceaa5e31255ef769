"""The course: lessons on attention with live figures, lessons about bugs, each beside a correct run, and symptoms."""

from typing import Any

import gradio as gr

from core.server.access import VisitorRuns
from core.storage.error_messages import shortened
from core.storage.errors import InputError
from core.teaching.attention_lessons import attention_lessons, load_attention_lesson
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS, bug_notice
from core.teaching.lessons import SECTIONS, Lesson, lesson_names, load_lesson
from core.teaching.symptoms import symptoms
from ui.attention_blocks import BLOCK_NAMES
from ui.components.component import component, validated
from ui.components.lesson.live_figures import LessonRequest, figure_functions

# The attention block that shows the bug; cross-attention for all others.
FIRST_BLOCK = {"no-causal-mask": "decoder", "targets-not-shifted": "decoder"}

_TITLES: dict[str, str] = {bug: description.title for bug, description in BUG_DESCRIPTIONS.items()}


def lesson_view(runs: VisitorRuns) -> gr.HTML:
    """Build the component: a list of lessons and the open one.

    Event: ``.train(fn)`` with ``evt.lesson``, when the visitor asks to train the two runs of a lesson about a bug.
    """
    value = {
        "attention": [
            {"name": each.name, "title": each.title, "questions": [question.id for question in each.questions]}
            for each in attention_lessons()
        ],
        "lessons": [{"name": name, "title": _TITLES[name]} for name in lesson_names()],
    }
    functions = {
        "lesson": validated(LessonRequest, lesson),
        "attention_lesson": validated(LessonRequest, attention_lesson),
        "symptoms": validated(LessonRequest, listed_symptoms),
        **figure_functions(runs),
    }
    return component("lesson", elem_id="lesson", events=["train"], value=value, server_functions=functions)


def attention_lesson(request: LessonRequest) -> dict[str, Any]:
    """Return the requested lesson on attention as plain data, its answers included."""
    lesson = load_attention_lesson(request.name)
    sections = [
        {
            **section.model_dump(),
            "text": _paragraphs(section.text),
            "links": [{"text": link.text, "href": link.href} for link in section.links],
        }
        for section in lesson.sections
    ]
    return {**lesson.model_dump(), "sections": sections}


def listed_symptoms(_request: LessonRequest) -> dict[str, Any]:
    """Return the list of symptoms as plain data; it has the name of a lesson in the page's address."""
    listed = [
        {
            **each.model_dump(exclude={"asked"}),
            "text": _paragraphs(each.text),
            "measure": _paragraphs(each.measure),
            "links": [{"text": link.text, "href": link.href} for link in each.links],
            "sources": each.sources,
        }
        for each in symptoms()
    ]
    return {"name": "symptoms", "symptoms": listed}


def lesson(request: LessonRequest) -> dict[str, Any]:
    """Return the requested lesson as plain data; the name may be that of a link."""
    if request.name not in lesson_names():
        raise InputError(f"There is no lesson “{shortened(request.name)}”.")
    return lesson_value(load_lesson(request.name))


def lesson_value(lesson: Lesson) -> dict[str, Any]:
    """Return a lesson as plain data: its text as paragraphs of text and code, and the results of its two runs."""
    results = lesson.results
    if results is None:
        raise InputError(f"lesson {lesson.name} has no results yet: python -m core lesson {lesson.name}")
    sides = {side: dict(results[side]) for side in ("right", "broken")}
    for side in sides.values():
        side["titles"] = [BUG_DESCRIPTIONS[bug].title for bug in side["doctor"]["bugs"]]
    blocks = list(sides["right"]["attention"])
    return {
        "name": lesson.name,
        "title": lesson.title,
        "broken": bug_notice(lesson.broken),
        "text": {section: _paragraphs(lesson.text.get(section, "")) for section in SECTIONS},
        "sides": sides,
        "seconds": results["seconds"],
        "blocks": [{"block": block, "name": BLOCK_NAMES[block]} for block in blocks],
        "first_block": FIRST_BLOCK.get(lesson.name, "cross"),
    }


def _paragraphs(text: str) -> list[list[str]]:
    """Split Markdown into paragraphs, and each at its backticks: every second piece is code."""
    return [" ".join(block.split()).split("`") for block in text.split("\n\n") if block.strip()]
