"""The failure gallery: a run's wrong answers in groups."""

import gradio as gr

from ui.components.component import component


def failure_gallery() -> gr.HTML:
    """Build the component.

    Value: ``core.reports.report.gallery_as_data`` with ``run``, ``summary`` and ``advice``; while decoding,
    ``{"progress": {"done": fraction, "run": title}}``.
    Event: ``.inspect(fn)`` with ``evt.run, evt.text, evt.step``: an input and its first wrong step, counted from 0.
    """
    return component("failure_gallery", elem_id="failures", events=["inspect"])
