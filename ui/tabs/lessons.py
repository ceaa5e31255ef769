"""The Lessons tab: pick a bug, predict what it does, see it beside the right run, and train the pair oneself."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from core.server.access import VisitorRuns, display_name
from core.storage.errors import LabError
from core.teaching.lessons import load_lesson
from ui.components.lesson import lesson_view
from ui.components.notice import notice
from ui.events import QUIET


@dataclass(frozen=True)
class LessonsTab:
    """The parts of the tab."""

    view: gr.HTML
    message: gr.HTML


def build(runs: VisitorRuns, run: gr.State) -> LessonsTab:
    """Build the tab and wire its own events; a pair that is begun makes its broken run the current one."""
    view = lesson_view()
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
    right, broken = map(display_name, started)
    text = f"{right} and {broken} train now: watch them on the Train tab, and compare them when they are done."
    return [{"text": text}, started[1]]
