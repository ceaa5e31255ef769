"""The decoding strategy on the command line: its arguments, its values, and how it is printed."""

import argparse

from core.config import ConfigError
from core.generation import Strategy, parse_strategy
from core.storage import bounded_yaml

OPTIONS = {  # setting → metavar and help; the settings' rules are checked by parse_strategy
    "repetition_penalty": ("R", "penalty on tokens already generated (default: 1, none)"),
    "beam_size": ("K", "beam: hypotheses kept per step (default: 4)"),
    "length_penalty": ("A", "beam: length penalty of GNMT; larger favors longer outputs, 0 is none (default: 1)"),
    "n_best": ("N", "beam: number of hypotheses to return, at most K (default: 1)"),
    "temperature": ("T", "sample: softmax temperature; below 1 is sharper, above 1 flatter (default: 1)"),
    "top_k": ("K", "sample: only from the K most probable tokens (default: 0, all)"),
    "top_p": ("P", "sample: only from the smallest set of tokens with probability P (default: 1, all)"),
    "seed": ("N", "sample: random seed (default: 0)"),
}


def add_strategy(parser: argparse.ArgumentParser) -> None:
    """Add ``--strategy`` and the options of every kind of strategy."""
    group = parser.add_argument_group("decoding strategy")
    group.add_argument("--strategy", default="greedy", metavar="KIND", help="greedy (default), beam or sample")
    for name, (metavar, text) in OPTIONS.items():
        group.add_argument(option(name), metavar=metavar, help=text)


def strategy_from(options: argparse.Namespace) -> Strategy:
    """Return the strategy that the options describe.

    Raises:
        ConfigError: a value is not allowed, or the option does not belong to this kind of strategy.
    """
    settings = {name: getattr(options, name) for name in OPTIONS if getattr(options, name) is not None}
    try:
        return parse_strategy({"kind": options.strategy} | {name: _number(text) for name, text in settings.items()})
    except ConfigError as error:
        raise ConfigError([(name, _with_options(message)) for name, message in error.problems]) from error


def format_strategy(strategy: Strategy) -> str:
    """Format a strategy with all its settings: ``beam, beam size 4, …``."""
    settings = strategy.model_dump(exclude={"kind"})
    return ", ".join([strategy.kind, *(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items())])


def option(name: str) -> str:
    """Return the option of a setting: ``--beam-size`` for ``beam_size``."""
    return f"--{name.replace('_', '-')}"


def _number(text: str) -> int | float | str:
    """Parse a number; any other text is returned unchanged, so that the setting's own rule rejects it."""
    try:
        value = bounded_yaml.load(text)
    except bounded_yaml.BoundedYamlError:
        return text
    return value if isinstance(value, int | float) else text


def _with_options(message: str) -> str:
    """Replace the names of settings in an error message by the names of their options."""
    for name in (*OPTIONS, "strategy"):
        message = message.replace(name, option(name))
    return message
