"""The options of a decoding strategy, which several commands have."""

import argparse

from core.config import ConfigError
from core.generation import Strategy, parse_strategy
from core.storage import bounded_yaml

SETTINGS = (
    "repetition_penalty",
    "beam_size",
    "length_penalty",
    "n_best",
    "temperature",
    "top_k",
    "top_p",
    "seed",
)


def strategy_of(options: argparse.Namespace) -> Strategy:
    """Return the strategy that was asked for.

    Raises:
        ConfigError: a value is not allowed, or its option not one of this kind of strategy.
    """
    given = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    try:
        return parse_strategy({"kind": options.strategy} | {name: _number(text) for name, text in given.items()})
    except ConfigError as error:
        raise ConfigError([(name, _with_options(message)) for name, message in error.problems]) from error


def _number(text: str) -> int | float | str:
    """Read a value as YAML, so that numbers are numbers; anything else stays text, to be refused by its rule."""
    try:
        value = bounded_yaml.load(text)
    except bounded_yaml.BoundedYamlError:
        return text
    return value if isinstance(value, int | float) else text


def _with_options(message: str) -> str:
    """Put the names of options in place of those of settings."""
    for name in (*SETTINGS, "strategy"):
        message = message.replace(name, option(name))
    return message


def strategy_in_words(strategy: Strategy) -> str:
    """Write a strategy with all its settings: ``beam, beam size 4, ...``."""
    settings = strategy.model_dump(exclude={"kind"})
    return ", ".join([strategy.kind, *(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items())])


def option(name: str) -> str:
    """Return a setting's option: ``--beam-size`` for ``beam_size``."""
    return f"--{name.replace('_', '-')}"
