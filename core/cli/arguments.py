"""Arguments that several commands share, and their values."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config import ConfigError, Preset, load_preset, load_preset_file, pairs_beside, preset_names
from core.config.preset import PLUGIN_FILES
from core.runs.names import readable_name
from core.storage import bounded_yaml
from core.storage.error_messages import short_repr, shortened
from core.storage.errors import InputError

if TYPE_CHECKING:
    from core.generation import Strategy
    from core.interpret.trained import Trained

MAX_SEQUENCES = 1_000_000
STRATEGY_OPTIONS = {  # setting → metavar and help; the settings' rules are checked by parse_strategy
    "repetition_penalty": ("R", "penalty on tokens already generated (default: 1, none)"),
    "beam_size": ("K", "beam: hypotheses kept per step (default: 4)"),
    "length_penalty": ("A", "beam: length penalty of GNMT; larger favors longer outputs, 0 is none (default: 1)"),
    "n_best": ("N", "beam: number of hypotheses to return, at most K (default: 1)"),
    "temperature": ("T", "sample: softmax temperature; below 1 is sharper, above 1 flatter (default: 1)"),
    "top_k": ("K", "sample: only from the K most probable tokens (default: 0, all)"),
    "top_p": ("P", "sample: only from the smallest set of tokens with probability P (default: 1, all)"),
    "seed": ("N", "sample: random seed (default: 0)"),
}


_SEED = "training.seed"  # the setting that --seed stands for
_RECORDED = ("run", "seed", "seeds", "device")  # options of a training that its provenance stores unchanged


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add ``--run NAME``, required."""
    parser.add_argument("--run", required=True, metavar="NAME", help="name of the run")


def add_ensemble(parser: argparse.ArgumentParser) -> None:
    """Add ``--run NAME``, required, and ``--ensemble NAME ...``, which ``loaded_run`` reads."""
    add_run(parser)
    parser.add_argument(
        "--ensemble",
        nargs="+",
        default=[],
        metavar="NAME",
        help="further runs of the same task; each token is chosen by the mean of the probabilities of all the runs",
    )


def add_pairs(parser: argparse.ArgumentParser) -> None:
    """Add ``--pairs FILE``, for commands that measure on held-out pairs."""
    parser.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help="the pairs of a run that is published without them; their SHA-256 must be the one in its preset",
    )


def loaded_run(options: argparse.Namespace, pairs: Path | None = None) -> "Trained":
    """Load the run of ``--run`` or, with ``--ensemble``, all runs as one model; RunError if refused.

    Args:
        pairs: of ``--pairs``.
    """
    from core.runs import DEFAULT_ROOT, Runs

    runs = Runs(options.checkpoints or DEFAULT_ROOT, pairs=pairs)
    return runs.ensemble([options.run, *options.ensemble]) if options.ensemble else runs[options.run].trained()


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object in the last line")


def add_preset(
    parser: argparse.ArgumentParser, *, required: bool = True, default: str | None = None
) -> argparse.Action:
    """Add ``--preset``, which is returned, ``--seed`` and ``--set``; ``preset_from`` reads them."""
    note = f" (default: {default})" if default else ""
    preset = parser.add_argument(
        "--preset",
        required=required,
        default=default,
        metavar="NAME",
        help=f"a preset, or the path of a YAML file{note}",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="random seed, the same as --set training.seed=N")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value of the preset, such as training.steps=500; `presets NAME` lists all keys; repeatable",
    )
    return preset


class Instead(argparse.Action):
    """An option that makes another one optional.

    Args:
        other: the action of the other option, which is required without this one.
    """

    def __init__(self, *arguments: Any, other: argparse.Action, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._other = other

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Store the value, and require the other option no more."""
        setattr(namespace, self.dest, values)
        self._other.required = False


def preset_from(options: argparse.Namespace) -> Preset:
    """Load the preset of ``--preset``, with the changes of ``--set`` and ``--seed``.

    Raises:
        ConfigError: there is no such preset, or it is not valid with these changes.
    """
    return changed_preset(named_preset(options.preset), options)


def changed_preset(preset: Preset, options: argparse.Namespace) -> Preset:
    """Return a preset with the changes of ``--set`` and ``--seed``.

    Raises:
        ConfigError: it is not valid with them, or they give two seeds.
    """
    changes = changes_from(options)
    if options.seed is None:
        return preset.with_changes(changes)
    if changes.setdefault(_SEED, options.seed) != options.seed:
        message = f"--seed {options.seed} and --set {_SEED}={changes[_SEED]!s:.60} must be equal, or one be left out"
        raise ConfigError([(_SEED, message)])
    return preset.with_changes(changes)


def named_preset(name: str) -> Preset:
    """Load a preset by its name or the path of its file; ConfigError if it is missing or not valid."""
    if _is_file(name):
        return load_preset_file(Path(name))
    if name not in preset_names() and Path(name).is_file():
        raise ConfigError(
            [("preset", f"preset={short_repr(name)} is a file; the name of such a file must end with .yaml")]
        )
    return load_preset(name)


def check_preset(options: argparse.Namespace) -> None:
    """Check ``--preset``, and ``--seed`` and ``--set`` if there are any, before the command, and torch, are imported.

    Raises:
        ConfigError: as ``preset_from``.
    """
    if hasattr(options, "set"):
        preset_from(options)
    else:
        named_preset(options.preset)


def recorded_command(options: argparse.Namespace) -> str:
    """Return the command that started a training for its provenance, without folders and secrets of names."""
    words = [word for file in PLUGIN_FILES for word in ("--plugin", file)] + [options.command]
    if preset := getattr(options, "preset", None):
        words += ["--preset", Path(preset).name]
    if other := getattr(options, "start_from", None):
        words += ["--from", readable_name(other)]
    for name in _RECORDED:
        value = getattr(options, name, None)
        if value not in (None, "auto"):
            words += [f"--{name}", readable_name(value) if name == "run" else str(value)]
    for change in options.set:
        words += ["--set", change]
    return shlex.join(words)


def pairs_from(options: argparse.Namespace) -> Path | None:
    """Return the pairs file of a preset that ``--preset`` names by its file; None for shipped presets."""
    return pairs_beside(Path(options.preset)) if options.preset and _is_file(options.preset) else None


def _is_file(preset: str) -> bool:
    return preset.lower().endswith((".yaml", ".yml"))


def changes_from(options: argparse.Namespace) -> dict[str, Any]:
    """Read ``--set KEY=VALUE``; values are YAML, so that numbers are numbers.

    Raises:
        ConfigError: there is no "=", or the value is not YAML.
    """
    changes: dict[str, Any] = {}
    for setting in options.set:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError([(key, f"--set {short_repr(setting)} must look like training.steps=500")])
        if not value.strip():
            raise ConfigError([(key, f"--set {shortened(setting)} has no value; '' is an empty text")])
        try:
            changes[key] = bounded_yaml.load(value)
        except bounded_yaml.BoundedYamlError as error:
            raise ConfigError([(key, f"{key}: {error}")]) from error
    return changes


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "mps"),
        default="auto",
        help="device to train on (default: auto, the fastest available); a run may be resumed on another one",
    )


def add_log(parser: argparse.ArgumentParser) -> None:
    """Add ``--log``."""
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="NAME",
        help="also write the metrics to csv, tensorboard, trackio or wandb (docs/files.md); repeatable",
    )


def add_sequences(parser: argparse.ArgumentParser, *, default: int) -> None:
    """Add ``--sequences``, which ``check_sequences`` checks."""
    parser.add_argument(
        "--sequences", type=int, default=default, metavar="N", help=f"number of test sequences (default: {default})"
    )


def check_sequences(sequences: int, *, option: str = "--sequences") -> None:
    """Check a number of sequences.

    Raises:
        InputError: it is below 1 or above ``MAX_SEQUENCES``.
    """
    if not 1 <= sequences <= MAX_SEQUENCES:
        raise InputError(f"{option}={sequences} must be from 1 to {MAX_SEQUENCES}")


def add_strategy(parser: argparse.ArgumentParser) -> None:
    """Add ``--strategy`` and the options of every kind of strategy."""
    group = parser.add_argument_group("decoding strategy")
    group.add_argument("--strategy", default="greedy", metavar="KIND", help="greedy (default), beam or sample")
    for name, (metavar, text) in STRATEGY_OPTIONS.items():
        group.add_argument(option_of(name), metavar=metavar, help=text)


def strategy_from(options: argparse.Namespace) -> "Strategy":
    """Return the strategy described by the options.

    Raises:
        ConfigError: a value is not allowed, or the option does not belong to this kind of strategy.
    """
    from core.generation import parse_strategy  # imports torch, which other commands do not wait for

    settings = {name: getattr(options, name) for name in STRATEGY_OPTIONS if getattr(options, name) is not None}
    try:
        return parse_strategy(
            {"kind": options.strategy} | {name: _parse_number(text) for name, text in settings.items()}
        )
    except ConfigError as error:
        raise ConfigError([(name, _with_options(message)) for name, message in error.problems]) from error


def format_strategy(strategy: "Strategy") -> str:
    """Format a strategy with all its settings: ``beam, beam size 4, …``."""
    settings = strategy.model_dump(exclude={"kind"})
    return ", ".join([strategy.kind, *(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items())])


def option_of(name: str) -> str:
    """Return the option of a setting: ``--beam-size`` for ``beam_size``."""
    return f"--{name.replace('_', '-')}"


def _parse_number(text: str) -> int | float | str:
    """Parse a number; any other text is returned unchanged, so that the setting's own rule rejects it."""
    try:
        value = bounded_yaml.load(text)
    except bounded_yaml.BoundedYamlError:
        return text
    return value if isinstance(value, int | float) else text


def _with_options(message: str) -> str:
    """Replace the names of settings in an error message by the names of their options."""
    for name in (*STRATEGY_OPTIONS, "strategy"):
        message = message.replace(name, option_of(name))
    return message
