"""The settings of presets and decoding strategies as fields of a form, generated from their pydantic models."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import annotated_types
import gradio as gr
from gradio.components import Component
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.config import SECTIONS, ConfigError, Preset, section_classes
from core.config.sections import FIXED
from core.storage.error_messages import shortened


@dataclass(frozen=True)
class Setting:
    """One setting, shown as one field.

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

    @property
    def kind(self) -> Literal["number", "text", "choice", "check"]:
        """The kind of field that shows it: choice for a Literal, check for a bool."""
        if get_origin(self.annotation) is Literal:
            return "choice"
        return "check" if self.annotation is bool else "text" if self.annotation is str else "number"

    def as_field(self) -> dict[str, Any]:
        """Return what ``setting_fields`` shows of it, without its value and hint."""
        options = list(get_args(self.annotation)) if self.kind == "choice" else []
        return {"key": self.key, "id": self.elem_id, "name": self.field, "kind": self.kind, "options": options}

    @property
    def elem_id(self) -> str:
        """The id of its element on the page."""
        return f"set-{self.family or self.section}-{self.field}"

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


def settings_of(preset: Preset) -> list[Setting]:
    """Return the settings that apply to a preset, section by section."""
    return [setting for setting in all_settings() if setting.applies_to(preset)]


def value_in(preset: Preset, setting: Setting) -> Any:
    """Return a preset's value of a setting that applies to it."""
    return getattr(getattr(preset, setting.section), setting.field)


def control(setting: Setting, **options: Any) -> Component:
    """Build a Gradio component for a setting: radio buttons for a Literal, a checkbox for a bool, or a field.

    Args:
        options: further options of the component, such as ``value``.
    """
    common: dict[str, Any] = {
        "label": setting.field,
        "info": setting.hint,
        "interactive": True,
        "elem_id": setting.elem_id,
        **options,
    }
    if setting.kind == "choice":
        return gr.Radio(list(get_args(setting.annotation)), **common)
    fields: dict[str, type[Component]] = {"check": gr.Checkbox, "text": gr.Textbox, "number": gr.Number}
    return fields[setting.kind](**common)


def preset_from(base: Preset, values: Mapping[str, Any]) -> Preset:
    """Return a preset with the values of a form, by key.

    Raises:
        ConfigError: some values are missing or invalid; it names every such setting.
    """
    settings = settings_of(base)
    unknown = values.keys() - {setting.key for setting in settings}
    empty = [(setting.key, f"{setting.key} is empty") for setting in settings if values.get(setting.key) is None]
    if unknown or empty:
        raise ConfigError(
            [*((shortened(key), f"{shortened(key)} is no setting of this preset") for key in sorted(unknown)), *empty]
        )
    return base.with_changes({setting.key: typed(setting, values[setting.key]) for setting in settings})


def hint_of(setting: Setting, value: Any, default: Any) -> str:
    """Return the text under a valid field: its hint, with the preset's value if it was changed."""
    return setting.hint if value == default else f"changed, preset value {default}. {setting.hint}"


def problem_of(setting: Setting, problems: Sequence[tuple[str, str]]) -> str:
    """Return the first of the problems that is about a setting, or ""."""
    about = (message for field, message in problems if field == setting.key or setting.key + "=" in message)
    return _without_section(setting, next(about, ""))


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
    """Remove the section from the names in a message, since the text under a field is narrow."""
    return re.sub(rf"\b{setting.section}\.(?=[a-z])", "", message)


def _family(kind: type[BaseModel]) -> str:
    field = kind.model_fields.get("family")
    return field.default if field else ""
