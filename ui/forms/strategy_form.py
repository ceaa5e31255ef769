"""How the next token is chosen, as controls: the kind of strategy, and the settings that it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import ConfigError
from core.generation import GREEDY, Beam, Greedy, Sample, Strategy, parse_strategy
from core.storage import bounded_yaml
from ui.forms.setting_controls import Setting, control, hint_of_field, typed

KINDS: dict[str, type[Strategy]] = {"greedy": Greedy, "beam": Beam, "sample": Sample}
_OF_ALL = "repetition_penalty"


@dataclass(frozen=True)
class StrategyForm:
    """The controls of a strategy, and what the answer must begin with."""

    kind: gr.Radio
    prefix: gr.Textbox
    controls: list[Component]

    @property
    def all(self) -> list:
        """The inputs of a function that reads the form: see ``strategy_in``."""
        return [self.kind, self.prefix, *self.controls]


def settings() -> list[Setting]:
    """Return every setting of every strategy; what all have, once."""
    of_kinds = [
        Setting(f"strategy.{name}", kind, info.annotation, hint_of_field(info))
        for kind, each in KINDS.items()
        for name, info in each.model_fields.items()
        if name not in ("kind", _OF_ALL)
    ]
    info = Greedy.model_fields[_OF_ALL]
    return [*of_kinds, Setting(f"strategy.{_OF_ALL}", "", info.annotation, hint_of_field(info))]


def build() -> StrategyForm:
    """Build the controls; those of other kinds than the chosen one are hidden."""
    kind = gr.Radio(list(KINDS), value="greedy", label="How tokens are chosen", elem_id="strategy", interactive=True)
    made = [
        (each, control(each, value=first["value"], visible=first["visible"], render=False))
        for each, first in zip(settings(), controls_for(GREEDY), strict=True)
    ]
    with gr.Row(elem_classes="grid", elem_id="strategy-settings"):
        for setting, component in made:
            if setting.family:
                component.render()
    with gr.Accordion("More on choosing", open=False), gr.Row(elem_classes="grid"):
        for setting, component in made:
            if not setting.family:
                component.render()
        prefix = gr.Textbox(
            label="begins with", info="tokens that the answer must begin with", max_lines=1, elem_id="prefix"
        )
    controls = [component for _, component in made]
    form = StrategyForm(kind, prefix, controls)
    quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    kind.input(shown_for, kind, controls, trigger_mode="always_last", **quiet)
    return form


def shown_for(kind: str) -> list[Any]:
    """Show the settings that a kind of strategy has."""
    return [gr.update(visible=setting.family in ("", kind)) for setting in settings()]


def controls_for(strategy: Strategy) -> list[dict[str, Any]]:
    """Return what the controls become to hold a strategy; those of other kinds, their defaults."""
    own = strategy.model_dump()
    defaults = {kind: each().model_dump() for kind, each in KINDS.items()}
    updates = []
    for setting in settings():
        applies = setting.family in ("", strategy.kind)
        value = own[setting.field] if applies else defaults[setting.family][setting.field]
        updates.append(gr.update(value=value, visible=applies))
    return updates


def strategy_in(kind: Any, values: Sequence[Any]) -> Strategy:
    """Return the strategy that the filled controls describe.

    Raises:
        ConfigError: naming every setting that does not fit.
    """
    filled = [(s, v) for s, v in zip(settings(), values, strict=True) if s.family in ("", kind)]
    empty = [(setting.field, f"{setting.field} is empty") for setting, value in filled if value is None]
    if empty:
        raise ConfigError(empty)
    return parse_strategy({"kind": kind} | {setting.field: typed(setting, value) for setting, value in filled})


def as_query(kind: str, prefix: str | None, values: Sequence[Any]) -> dict[str, str]:
    """Return what an address tells of filled controls: what differs from greedy decoding; {} if they do not fit."""
    try:
        strategy = strategy_in(kind, values)
    except ConfigError:
        return {}
    changed = {name: str(value) for name, value in strategy.model_dump(exclude_defaults=True).items()}
    return ({} if strategy.kind == "greedy" else {"strategy": strategy.kind}) | changed | {"prefix": prefix or ""}


def from_query(asked: dict[str, str]) -> Strategy:
    """Return the strategy that an address tells of, or greedy decoding if it makes no sense."""
    kind = asked.get("strategy", "greedy")
    try:
        fields = KINDS[kind].model_fields.keys() - {"kind"}
        given = {name: bounded_yaml.load(asked[name]) for name in fields if name in asked}
        return parse_strategy({"kind": kind} | given)
    except (KeyError, ConfigError, bounded_yaml.BoundedYamlError):
        return GREEDY
