"""The Sweep tab: train many settings of the preset on the Train tab, and see which matter."""

from functools import partial
from typing import Any

import gradio as gr

from core.server.access import VisitorRuns
from core.storage.errors import LabError
from ui.components.sweep import off_message, sweep_view
from ui.events import QUIET
from ui.forms.preset_form import Draft, Form, preset_in
from ui.forms.sweep_draft import base_of_preset


def build(runs: VisitorRuns, form: Form) -> gr.HTML:
    """Build the tab and connect its own events; return the component, whose event ``pick`` the page listens to.

    Args:
        form: the settings on the Train tab, which are the base of a new sweep.
    """
    view = sweep_view(runs)
    view.base(partial(base_value, runs), form.inputs, view, **QUIET)
    return view


def base_value(runs: VisitorRuns, draft: Draft, submitted: Any) -> dict[str, Any]:
    """Return the component's value with the settings of the Train tab as the base of a sweep.

    Args:
        draft: of the form on the Train tab.
        submitted: the value of its fields; see ``preset_in``.
    """
    value: dict[str, Any] = {"off": off_message(runs), "base": None, "problem": ""}
    if value["off"]:
        return value
    try:
        current = preset_in(draft, submitted)
        return value | {"base": base_of_preset(draft.base, current)}
    except LabError as error:
        return value | {"problem": str(error)}
