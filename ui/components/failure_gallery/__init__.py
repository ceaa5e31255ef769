"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

import gradio as gr

from ui.components.component import component


def failure_gallery(*, elem_id: str = "failures") -> gr.HTML:
    """A run's wrong answers in groups.

    Value: ``core.reports.report.gallery_as_data`` with ``run``, ``summary`` and ``advice``; or
    ``{"progress": {"done": fraction, "run": id}}`` while decoding.
    Event: ``.look(fn)`` with ``evt.run, evt.text, evt.step``: an input, and its first wrong step, counted from 0.
    """
    return component("failure_gallery", elem_id=elem_id)
