"""The tab Learn: lessons on attention, and lessons about bugs, whose two runs the visitor can train."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.server.access import VisitorRuns
from core.storage.errors import LabError
from core.teaching.lessons import load_lesson
from ui.components.lesson import lesson_view
from ui.components.notice import notice, problem
from ui.events import QUIET, event_text


@dataclass(frozen=True)
class LessonsTab:
    """The components of the tab."""

    view: gr.HTML
    message: gr.HTML


def build(runs: VisitorRuns, run: gr.State) -> LessonsTab:
    """Build the tab and connect its own events; training a pair makes its broken run the current one."""
    tab = LessonsTab(lesson_view(runs), notice(elem_id="lesson-message"))

    def train(event: gr.EventData) -> list[Any]:  # Gradio passes an event only to a parameter of this type
        return train_pair(runs, event_text(event, "lesson"))

    tab.view.train(train, None, [tab.message, run], **QUIET)
    return tab


def train_pair(runs: VisitorRuns, name: str) -> list[Any]:
    """Start the two runs of a lesson; return the message and the new current run."""
    try:
        lesson = load_lesson(name)
        started = [
            runs.start(preset, like=f"{name}-{side}")
            for side, preset in (("right", lesson.right), ("broken", lesson.broken))
        ]
    except LabError as error:
        return [problem(error), gr.skip()]
    right, broken = (runs[name].title for name in started)
    text = f"Started {right} and {broken}. Watch them on the Train tab; the Compare tab compares them once they finish."
    return [{"text": text}, started[1]]
