"""The fields of the preset form: every setting of the open preset, in sections that fold."""

from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from ui.components.component import component

KEPT = "attention-lab-draft-preset"
"""Where the browser keeps the changed form, in the tab's storage, until a run is started: see
ui/web/drafts.js."""

WITH_KEPT = f"""(form) => {{
  try {{
    return {{ ...form, kept: sessionStorage.getItem('{KEPT}') ?? '' }};
  }} catch {{
    return form; // cookies are blocked
  }}
}}"""
"""Script that adds what was kept to the component's value, the only input."""


class SubmittedFields(BaseModel):
    """The component's value as a browser sends it.

    Attributes:
        edition: of the draft that the fields were opened with.
        values: by key, such as ``training.steps``; None in an empty number field.
        start_from: name of the run whose weights are chosen to begin with; "" for random ones.
        start_search: words that the listed runs to start from must have; see ``find_runs``.
        kept: the form before the page was reloaded, if ``WITH_KEPT`` has added it.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    edition: int
    values: dict[str, bool | int | float | str | None] = {}
    start_from: str = ""
    start_search: str = Field(default="", max_length=200)
    kept: str = ""


def setting_fields(value: dict[str, Any]) -> gr.HTML:
    """Build the component.

    Value: ``{"edition": n, "sections": [{"name", "label", "fields": [{"key", "id", "name", "kind", "options", "hint",
    "invalid"}]}]}``, where ``kind`` is number, text, choice or check. With ``"values": {key: value}`` it opens the
    fields; without, it only changes labels and hints, unless the fields were opened with another edition meanwhile.
    ``"starts": {"starts": [{"name", "title", "reason"}], "unlisted", "unsearched"}`` are the runs to start from, with
    the reason where one does not fit, and how many other runs there are, see ``RunList``; ``"listed": nanoseconds``
    when they were looked up: an answer that comes later but looked earlier is ignored;
    ``"start_from": name`` chooses one when the fields are opened.
    ``"kept": text`` is kept for a reload of the page, "" to forget it. The browser sends ``SubmittedFields``.
    Event: ``.input(fn)``, after the visitor changed a value.
    """
    return component("setting_fields", elem_id="setting-fields", value=value, events=["input"], kept=KEPT)
