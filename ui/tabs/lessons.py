"""The tab Learn: lessons on attention, and lessons about bugs, whose two runs the visitor can train."""

import gradio as gr

from core.server.access import VisitorRuns
from core.storage.errors import LabError
from core.teaching.lessons import load_lesson
from ui.components.lesson import lesson_view
from ui.components.notice import notice, problem
from ui.components.run_bar import current_run
from ui.events import QUIET, event_text
from ui.updates import Updates, by_name


def build(runs: VisitorRuns, run: gr.State, bar: gr.HTML) -> None:
    """Build the tab and connect its own events; training a pair makes its broken run the current one."""
    view = lesson_view(runs)
    outputs = {"message": notice(elem_id="lesson-message"), "run": run, "bar": bar}

    def train(event: gr.EventData) -> Updates:  # Gradio passes an event only to a parameter of this type
        return train_pair(runs, event_text(event, "lesson"))

    view.train(by_name(train, outputs), None, list(outputs.values()), **QUIET)


def train_pair(runs: VisitorRuns, name: str) -> Updates:
    """Start the two runs of a lesson; return the updates of the message and of the current run."""
    try:
        lesson = load_lesson(name)
        started = [
            runs.start(preset, like=f"{name}-{side}")
            for side, preset in (("right", lesson.right), ("broken", lesson.broken))
        ]
    except LabError as error:
        return {"message": problem(error)}
    right, broken = (runs[name].title for name in started)
    text = f"Started {right} and {broken}. Watch them on the Train tab; the Compare tab compares them once they finish."
    return {"message": {"text": text}} | current_run(started[1])
