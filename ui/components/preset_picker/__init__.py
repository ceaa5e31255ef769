"""The preset picker: tasks, and the presets of one task with their training times, the quickest first."""

from collections.abc import Callable
from typing import Annotated, Any

import gradio as gr
from pydantic import Field

from ui.components.component import Request, component, validated


class TimesRequest(Request):
    """A request for the training times of presets; the chosen one is measured first."""

    presets: list[Annotated[str, Field(max_length=100)]] = Field(max_length=40)
    chosen: str = Field(max_length=100)


def preset_picker(times: Callable[[TimesRequest], dict[str, Any]]) -> gr.HTML:
    """Build the component.

    Value: ``{"families": [{"name", "label", "presets": [{"name", "about", "missing"}]}], "chosen": name,
    "picked": name, "edition": number}``; ``missing`` says what a preset needs that is not installed, or is "".
    ``picked`` is the visitor's choice that the value answers, or "": an answer to an earlier choice than the last is
    not shown. ``edition`` differs between answers: the browser reports no value that equals the one before, and Train
    waits for the answer, also where the preset that is open is chosen again.
    Event: ``.pick(fn)``, after the visitor's choice changed ``chosen``.

    Args:
        times: returns ``{"times": {name: text}, "examples": {name: text}}``, times of those that are measured already.
    """
    value: dict[str, Any] = {"families": [], "chosen": None}
    functions = {"times": validated(TimesRequest, times)}
    return component("preset_picker", elem_id="preset-picker", value=value, events=["pick"], server_functions=functions)
