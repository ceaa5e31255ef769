"""The settings of a preset as controls, made from the types and bounds that validate it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import annotated_types
import gradio as gr
from gradio.components import Component
from pydantic.fields import FieldInfo

from core.config import SECTIONS, ConfigError, Preset


@dataclass(frozen=True)
class Setting:
    """One control: its key such as ``training.steps``, the type it takes and a sentence on it."""

    key: str
    annotation: Any
    hint: str


def settings_of(preset: Preset) -> list[Setting]:
    """Return what can be changed in a preset, section by section; a choice of one is no choice."""
    return [
        Setting(f"{section}.{name}", info.annotation, _hint(info))
        for section in SECTIONS
        for name, info in type(getattr(preset, section)).model_fields.items()
        if len(get_args(info.annotation)) != 1
    ]


def value_in(preset: Preset, setting: Setting) -> Any:
    """Return a preset's value of a setting."""
    section, field = setting.key.split(".")
    return getattr(getattr(preset, section), field)


def control(setting: Setting, value: Any, hint: str) -> Component:
    """Make the control of a setting: radios for a choice, a box to tick for yes or no, a number field for a number."""
    _, field = setting.key.split(".")
    common = {"label": field, "value": value, "info": hint, "interactive": True, "elem_id": f"set-{field}"}
    if get_origin(setting.annotation) is Literal:
        return gr.Radio(list(get_args(setting.annotation)), **common)
    if setting.annotation is bool:
        return gr.Checkbox(**common)
    return gr.Number(min_width=150, **common)


def preset_from(base: Preset, settings: list[Setting], values: Sequence[Any]) -> Preset:
    """Return the preset a filled form describes.

    Raises:
        ConfigError: naming every field that does not fit.
    """
    filled = list(zip(settings, values, strict=True))
    empty = [(setting.key, f"{setting.key} is empty") for setting, value in filled if value is None]
    if empty:
        raise ConfigError(empty)
    changes = {setting.key: _typed(setting, value) for setting, value in filled}
    return base.with_changes(changes)


def hints_with_problems(base: Preset, settings: list[Setting], values: Sequence[Any], problems: list) -> list[str]:
    """Return the line under each control: what is wrong with it, else what it was, else its hint."""
    lines = []
    for setting, value in zip(settings, values, strict=True):
        wrong = [message for field, message in problems if field == setting.key or setting.key + "=" in message]
        before = value_in(base, setting)
        if wrong:
            lines.append(f"✗ {wrong[0]}")
        elif value != before:
            lines.append(f"changed; the preset says {before}. {setting.hint}")
        else:
            lines.append(setting.hint)
    return lines


def _hint(info: FieldInfo) -> str:
    low = high = None
    above = ""
    for bound in info.metadata:
        if isinstance(bound, annotated_types.Ge):
            low = bound.ge
        elif isinstance(bound, annotated_types.Gt):
            low, above = bound.gt, "above "
        elif isinstance(bound, annotated_types.Le):
            high = bound.le
    return info.description if high is None else f"{info.description} ({above}{low:g} to {high:,g})"


def _typed(setting: Setting, value: Any) -> Any:
    """A number field gives 64.0 or 64 for 64; a whole number is an int where the setting wants one."""
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if setting.annotation is int and is_whole else value
