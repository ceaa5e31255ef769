"""Controls of the decoding strategy: its kind, its settings, and an optional prefix of the output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import ConfigError
from core.generation import GREEDY, Beam, Greedy, Sample, Strategy, parse_strategy
from core.storage import bounded_yaml
from core.storage.error_messages import short_repr
from ui.events import LATEST, QUIET
from ui.forms.setting_controls import Setting, control, hint_of_field, typed
from ui.updates import Updates

KINDS: dict[str, type[Greedy | Beam | Sample]] = {"greedy": Greedy, "beam": Beam, "sample": Sample}
_COMMON_FIELD = "repetition_penalty"


@dataclass(frozen=True)
class StrategyForm:
    """The controls of the strategy and of the output prefix."""

    kind: gr.Radio
    prefix: gr.Textbox
    controls: list[Component]

    @property
    def all(self) -> list:
        """The inputs of a handler that reads the form: see ``strategy_in``."""
        return [self.kind, self.prefix, *self.controls]

    @property
    def outputs(self) -> dict[str, Component]:
        """The components by name, of which ``shown`` returns the updates."""
        return {"kind": self.kind, "prefix": self.prefix} | dict(zip(_names(), self.controls, strict=True))


def settings() -> list[Setting]:
    """Return the settings of all strategies; the one they share comes once, at the end."""
    own = [
        Setting(f"strategy.{name}", kind, info.annotation, hint_of_field(info))
        for kind, strategy in KINDS.items()
        for name, info in strategy.model_fields.items()
        if name not in ("kind", _COMMON_FIELD)
    ]
    info = Greedy.model_fields[_COMMON_FIELD]
    return [*own, Setting(f"strategy.{_COMMON_FIELD}", "", info.annotation, hint_of_field(info))]


def build() -> StrategyForm:
    """Build the controls; those of other kinds than the selected one are hidden."""
    kind = gr.Radio(list(KINDS), value="greedy", label="Decoding strategy", elem_id="strategy", interactive=True)
    pairs = [
        (setting, control(setting, value=first["value"], visible=first["visible"], render=False))
        for setting, first in zip(settings(), controls_for(GREEDY), strict=True)
    ]
    with gr.Row(elem_classes="grid", elem_id="strategy-settings"):
        for setting, component in pairs:
            if setting.family:
                component.render()
    with gr.Accordion("More options", open=False, elem_classes="fold"), gr.Row(elem_classes="grid"):
        for setting, component in pairs:
            if not setting.family:
                component.render()
        prefix = gr.Textbox(
            label="output prefix", info="tokens that the output starts with", max_lines=1, elem_id="prefix"
        )
    controls = [component for _, component in pairs]
    kind.input(visible_settings, kind, controls, **LATEST, **QUIET)
    return StrategyForm(kind, prefix, controls)


def visible_settings(kind: str) -> list[Any]:
    """Return the updates that show the settings of one kind of strategy and hide the others."""
    return [gr.update(visible=setting.family in ("", kind)) for setting in settings()]


def controls_for(strategy: Strategy) -> list[dict[str, Any]]:
    """Return the updates that show a strategy; controls of other kinds get their defaults."""
    own = strategy.model_dump()
    defaults = {kind: each().model_dump() for kind, each in KINDS.items()}
    updates = []
    for setting in settings():
        applies = setting.family in ("", strategy.kind)
        value = own[setting.field] if applies else defaults[setting.family][setting.field]
        updates.append(gr.update(value=value, visible=applies))
    return updates


def default_values() -> list[Any]:
    """Return the values of the controls for greedy decoding."""
    return [update["value"] for update in controls_for(GREEDY)]


def shown(strategy: Strategy, prefix: str = "") -> Updates:
    """Return the updates that show a strategy and an output prefix."""
    return {"kind": strategy.kind, "prefix": prefix} | dict(zip(_names(), controls_for(strategy), strict=True))


def _names() -> list[str]:
    return [f"{setting.family or 'any'} {setting.field}" for setting in settings()]


def strategy_in(kind: Any, values: Sequence[Any]) -> Strategy:
    """Return the strategy that the controls describe.

    Raises:
        ConfigError: some values are missing or invalid; it names every such setting.
    """
    filled = [(s, v) for s, v in zip(settings(), values, strict=True) if s.family in ("", kind)]
    empty = [(setting.field, f"{setting.field} is empty") for setting, value in filled if value is None]
    if empty:
        raise ConfigError(empty)
    return parse_strategy({"kind": kind} | {setting.field: typed(setting, value) for setting, value in filled})


def as_query(kind: str, prefix: str | None, values: Sequence[Any]) -> dict[str, str]:
    """Return the strategy as parameters of the page's address; what is as in greedy decoding, or invalid, is empty."""
    unchanged = {setting.field: "" for setting in settings()} | {"strategy": "", "prefix": prefix or ""}
    try:
        strategy = strategy_in(kind, values)
    except ConfigError:
        return unchanged
    changed = {name: str(value) for name, value in strategy.model_dump(exclude_defaults=True).items()}
    return unchanged | changed | {"strategy": "" if strategy.kind == "greedy" else strategy.kind}


def from_query(query: dict[str, str]) -> Strategy:
    """Return the strategy in the page's address; greedy decoding if it is invalid."""
    try:
        return parse_query(query)
    except ConfigError:
        return GREEDY


def parse_query(query: dict[str, str]) -> Strategy:
    """Return the strategy in the page's address; ConfigError if it is invalid."""
    kind = query.get("strategy", "greedy")
    if kind not in KINDS:
        raise ConfigError([("strategy", f"strategy={short_repr(kind)} is not one of {', '.join(KINDS)}")])
    fields = KINDS[kind].model_fields.keys() - {"kind"}
    try:
        given = {name: bounded_yaml.load(query[name]) for name in fields if name in query}
    except bounded_yaml.BoundedYamlError as error:
        raise ConfigError([("strategy", f"strategy={kind}: {error}")]) from error
    return parse_strategy({"kind": kind} | given)
