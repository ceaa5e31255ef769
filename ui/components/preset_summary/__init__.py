"""The summary of the preset in the form: parameters, memory, training time and changes, or that a preset is opening."""

import gradio as gr

from ui.components.component import component

OPENING = "(picked) => ({ opening: picked.chosen })"
"""Script that returns the component's value while a preset that was picked opens in the form."""


def preset_summary() -> gr.HTML:
    """Build the component.

    Value: ``{"text": text}``, with ``"problem": True`` for an error; ``"preset"``, a key of the preset it is about;
    ``"pending": True`` while the training time is not known; ``"answer": True`` in the answer to ``.due``, which is not
    shown where the form holds another preset by now. ``{"opening": name}`` while a preset opens; ``{"unopened": True}``
    where it could not be opened, and the form holds another one than is chosen.
    Event: ``.due(fn)``, again and again while the time is pending.
    """
    return component("preset_summary", elem_id="summary", value=None, events=["due"])
