"""Controls for the settings of presets and decoding strategies, generated from their pydantic models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import annotated_types
import gradio as gr
from gradio.components import Component
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.config import SECTIONS, ConfigError, Preset, section_classes
from core.config.sections import FIXED


@dataclass(frozen=True)
class Setting:
    """One setting, shown as one control.

    Attributes:
        key: section and field, such as ``training.steps``.
        family: the family its section belongs to, such as ``transformer``; "" for sections with a single kind.
        annotation: the type of the value.
        hint: description with bounds.
    """

    key: str
    family: str
    annotation: Any
    hint: str

    @property
    def section(self) -> str:
        """The section, such as ``training``."""
        return self.key.split(".")[0]

    @property
    def field(self) -> str:
        """The field's name, such as ``steps``."""
        return self.key.split(".")[1]

    def applies_to(self, preset: Preset) -> bool:
        """Return whether the preset has this setting; its section may be of another family."""
        return getattr(getattr(preset, self.section), "family", "") == self.family


def all_settings() -> list[Setting]:
    """Return every setting that can be changed in some preset, section by section.

    Literals with a single value, and values that belong to a preset's data, are left out.
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


def control(setting: Setting, **options: Any) -> Component:
    """Build the control of a setting: radio buttons for a Literal, a checkbox for a bool, a text or a number field.

    Args:
        options: further options of the component, such as ``value``.
    """
    common: dict[str, Any] = {
        "label": setting.field,
        "info": setting.hint,
        "interactive": True,
        "elem_id": f"set-{setting.family or setting.section}-{setting.field}",
        **options,
    }
    if get_origin(setting.annotation) is Literal:
        return gr.Radio(list(get_args(setting.annotation)), **common)
    fields: dict[Any, type[Component]] = {bool: gr.Checkbox, str: gr.Textbox}  # only a plugin has texts
    return fields.get(setting.annotation, gr.Number)(**common)


def preset_from(base: Preset, settings: list[Setting], values: Sequence[Any]) -> Preset:
    """Return the preset that the controls describe.

    Raises:
        ConfigError: some values are missing or invalid; it names every such setting.
    """
    filled = [(setting, value) for setting, value in zip(settings, values, strict=True) if setting.applies_to(base)]
    empty = [(setting.key, f"{setting.key} is empty") for setting, value in filled if value is None]
    if empty:
        raise ConfigError(empty)
    changes = {setting.key: typed(setting, value) for setting, value in filled}
    return base.with_changes(changes)


def hints_with_problems(base: Preset, settings: list[Setting], values: Sequence[Any], problems: list) -> list[str]:
    """Return the text under each control: its error, or its hint with the preset's value if it was changed."""
    lines = []
    for setting, value in zip(settings, values, strict=True):
        if not setting.applies_to(base):
            lines.append(setting.hint)
            continue
        errors = [message for field, message in problems if field == setting.key or setting.key + "=" in message]
        lines.append(
            f"✗ {_without_section(setting, errors[0])}" if errors else hint_of(setting, value, value_in(base, setting))
        )
    return lines


def hint_of(setting: Setting, value: Any, default: Any) -> str:
    """Return the text under a valid control: its hint, with the preset's value if it was changed."""
    return setting.hint if value == default else f"changed, preset value {default}. {setting.hint}"


def hint_of_field(info: FieldInfo) -> str:
    """Return a field's description with its bounds."""
    low: Any = None
    high: Any = None
    above = ""
    for bound in info.metadata:
        if isinstance(bound, annotated_types.Ge):
            low = bound.ge
        elif isinstance(bound, annotated_types.Gt):
            low, above = bound.gt, "above "
        elif isinstance(bound, annotated_types.Le):
            high = bound.le
    description = info.description or ""
    return description if high is None else f"{description} ({above}{low:,} to {high:,})"


def typed(setting: Setting, value: Any) -> Any:
    """Return a control's value with the setting's type: a number field returns 64.0 for 64."""
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if setting.annotation is int and is_whole else value


def _without_section(setting: Setting, message: str) -> str:
    """Remove the section from the names in a message, since the text under a control is narrow."""
    return re.sub(rf"\b{setting.section}\.(?=[a-z])", "", message)


def _family(kind: type[BaseModel]) -> str:
    field = kind.model_fields.get("family")
    return field.default if field else ""
