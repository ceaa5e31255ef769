"""The settings of a preset as controls, made from the types and bounds that validate it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import annotated_types
import gradio as gr
from gradio.components import Component
from pydantic.fields import FieldInfo

from core.config import SECTIONS, ConfigError, Preset, section_classes
from core.config.sections import FIXED


@dataclass(frozen=True)
class Setting:
    """One control of the form.

    Attributes:
        key: of the value it sets, such as ``training.steps``.
        family: of the section it belongs to, such as ``transformer``; "" where a section has only one kind.
        annotation: the type of the value.
        hint: a sentence on it, with its bounds.
    """

    key: str
    family: str
    annotation: Any
    hint: str

    @property
    def section(self) -> str:
        """The section it belongs to, such as ``training``."""
        return self.key.split(".")[0]

    @property
    def field(self) -> str:
        """The field's own name, such as ``steps``."""
        return self.key.split(".")[1]

    def applies_to(self, preset: Preset) -> bool:
        """Whether the preset has this setting: its section may be of another family."""
        return getattr(getattr(preset, self.section), "family", "") == self.family


def all_settings() -> list[Setting]:
    """Return everything that can be changed in any preset, section by section.

    A choice of one is no choice, and what a preset brings with its data is none.
    """
    return [
        Setting(f"{section}.{name}", _family(kind), info.annotation, hint_of_field(info))
        for section in SECTIONS
        for kind in section_classes(section)
        for name, info in kind.model_fields.items()
        if len(get_args(info.annotation)) != 1 and FIXED not in info.metadata
    ]


def value_in(preset: Preset, setting: Setting) -> Any:
    """Return a preset's value of a setting that applies to it."""
    return getattr(getattr(preset, setting.section), setting.field)


def control(setting: Setting, **given: Any) -> Component:
    """Make the control of a setting: radios for a choice, a checkbox for yes or no, a field for a number.

    Args:
        given: what else the component is given, such as its value.
    """
    common: dict[str, Any] = {
        "label": setting.field,
        "info": setting.hint,
        "interactive": True,
        "elem_id": f"set-{setting.family or setting.section}-{setting.field}",
        **given,
    }
    if get_origin(setting.annotation) is Literal:
        return gr.Radio(list(get_args(setting.annotation)), **common)
    return gr.Checkbox(**common) if setting.annotation is bool else gr.Number(**common)


def preset_from(base: Preset, settings: list[Setting], values: Sequence[Any]) -> Preset:
    """Return the preset a filled form describes.

    Raises:
        ConfigError: naming every field that does not fit.
    """
    filled = [(setting, value) for setting, value in zip(settings, values, strict=True) if setting.applies_to(base)]
    empty = [(setting.key, f"{setting.key} is empty") for setting, value in filled if value is None]
    if empty:
        raise ConfigError(empty)
    changes = {setting.key: typed(setting, value) for setting, value in filled}
    return base.with_changes(changes)


def hints_with_problems(base: Preset, settings: list[Setting], values: Sequence[Any], problems: list) -> list[str]:
    """Return the line under each control: what is wrong with it, else what it was, else its hint."""
    lines = []
    for setting, value in zip(settings, values, strict=True):
        if not setting.applies_to(base):
            lines.append(setting.hint)
            continue
        wrong = [message for field, message in problems if field == setting.key or setting.key + "=" in message]
        lines.append(
            f"✗ {_in_section(setting, wrong[0])}" if wrong else hint_of(setting, value, value_in(base, setting))
        )
    return lines


def _in_section(setting: Setting, message: str) -> str:
    """Leave the section out of a message that stands within it: the lines under controls are narrow."""
    return re.sub(rf"\b{setting.section}\.(?=[a-z])", "", message)


def hint_of(setting: Setting, value: Any, before: Any) -> str:
    """Return the line under a control that is in order: its hint, and what the preset says if that was changed."""
    return setting.hint if value == before else f"changed; the preset says {before}. {setting.hint}"


def _family(kind: type) -> str:
    field = kind.model_fields.get("family")
    return field.default if field else ""


def hint_of_field(info: FieldInfo) -> str:
    """Return a field's description with its bounds."""
    low = high = None
    above = ""
    for bound in info.metadata:
        if isinstance(bound, annotated_types.Ge):
            low = bound.ge
        elif isinstance(bound, annotated_types.Gt):
            low, above = bound.gt, "above "
        elif isinstance(bound, annotated_types.Le):
            high = bound.le
    return info.description if high is None else f"{info.description} ({above}{low:,} to {high:,})"


def typed(setting: Setting, value: Any) -> Any:
    """Return a control's value as the setting's type: a number field gives 64.0 for 64."""
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if setting.annotation is int and is_whole else value
