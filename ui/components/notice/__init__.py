"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from typing import Any

import gradio as gr

from ui.components.component import component


def notice(*, value: dict[str, Any] | None = None, elem_id: str) -> gr.HTML:
    """One line of text. Value: ``{"text": message}``, with ``"problem": True`` for an error."""
    return component("notice", elem_id=elem_id, value=value)
