"""Trials of a sweep: one setting of all axes each, with the presets and names of its runs."""

import contextlib
import hashlib
import itertools
import json
import re
from collections import ChainMap
from dataclasses import dataclass
from typing import Any

from core.config import MAX_NAME_LENGTH, ConfigError, Preset
from core.runs.sweeps.sweep import MAX_SEED, SEED, STEPS, Range, Settings, Sweep, Value

_DIGEST = 7  # characters in a trial's name that tell settings apart; 36 ** 7 are 78 billion
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LISTED_PROBLEMS = 3
_TRIED = 100  # combinations of other axes, in search of one that a value is allowed with


@dataclass(frozen=True)
class Trial:
    """One setting of all axes.

    Attributes:
        name: begins the names of its runs, ``NAME-seed-0``; ``compare`` takes it for all of them.
        settings: the value of each axis, as the preset has it.
        preset: with these values and the first seed.
    """

    name: str
    settings: Settings
    preset: Preset

    def run(self, seed: int) -> str:
        """Return the name of the run with a seed."""
        return run_name(self.name, seed)

    def run_preset(self, seed: int) -> Preset:
        """Return the preset of the run with a seed."""
        return self.preset.with_changes({SEED: seed})


def run_name(trial: str, seed: int) -> str:
    """Return the name of a trial's run with a seed."""
    return f"{trial}-seed-{seed}"


def trial_of(sweep: Sweep, base: Preset, settings: Settings) -> Trial:
    """Return the trial with these values of the axes.

    Raises:
        ConfigError: the preset is not valid with them; the message begins with the values, each named once.
    """
    changes: dict[str, Any] = sweep.set | settings | {SEED: sweep.seeds_from(base)[0]}
    if sweep.goal.updates is not None:
        changes[STEPS] = sweep.goal.updates
    try:
        preset = base.with_changes(changes)
    except ConfigError as error:
        raise ConfigError([(field, _labeled(settings, message)) for field, message in error.problems]) from error
    document = preset.model_dump()
    exact: Settings = {}
    for key in settings:
        section, _, field = key.partition(".")
        exact[key] = document[section][field]  # 1 and 1.0 become the same number
    return Trial(_trial_name(sweep.name, exact), exact, preset)


def grid_trials(sweep: Sweep, base: Preset) -> list[Trial]:
    """Return a trial for every combination of the axes' values; the last axis changes fastest.

    Raises:
        ConfigError: a combination is not a valid preset, or two are the same preset.
    """
    lists = [axis for axis in sweep.axes.values() if not isinstance(axis, Range)]
    trials: dict[str, Trial] = {}
    problems: list[tuple[str, str]] = []
    for values in itertools.product(*lists):
        try:
            trial = trial_of(sweep, base, dict(zip(sweep.axes, values, strict=True)))
        except ConfigError as error:
            problems += error.problems
            continue
        if trial.name in trials:
            raise ConfigError([("axes", f"{describe(trial.settings)}: two combinations are the same preset")])
        trials[trial.name] = trial
    if problems:
        rest = len(problems) - _LISTED_PROBLEMS
        more = [("axes", f"and {rest:,} more")] if rest > 0 else []
        raise ConfigError(problems[:_LISTED_PROBLEMS] + more)
    return list(trials.values())


def examined_trials(sweep: Sweep, base: Preset) -> list[Trial]:
    """Return the trials that show before a sweep begins what it needs: all of a grid, or those of ``extreme_trials``.

    Raises:
        ConfigError: a setting is not a valid preset.
    """
    return grid_trials(sweep, base) if sweep.search == "grid" else extreme_trials(sweep, base)


def extreme_trials(sweep: Sweep, base: Preset) -> list[Trial]:
    """Return trials at the ends of the axes: each axis at its lowest and highest value, other ranges at the base's.

    Other lists have their first value, or what makes the preset valid. The last two trials have all lowest and all
    highest values, if such presets are valid. They show before a search begins whether its values are allowed at all,
    and what it may take.

    Raises:
        ConfigError: an axis is a range but the preset's value is no number, or a value is never allowed.
    """
    trials = []
    for key, axis in sweep.axes.items():
        if isinstance(axis, Range):
            _check_range(key, axis, base)
        values: tuple[Value, ...] = (axis.low, axis.high) if isinstance(axis, Range) else axis
        others = [_options(each, of_other) for each, of_other in sweep.axes.items() if each != key]
        for value in values:
            try:
                trials.append(_first_valid(sweep, base, {key: value}, others))
            except ConfigError:
                if not isinstance(axis, Range):
                    raise
                trial_of(sweep, base, {key: value})  # values between may be allowed, unless this one never is
    for end in (min, max):
        corner = {key: end(_ends(axis)) for key, axis in sweep.axes.items()}
        with contextlib.suppress(ConfigError):
            trials.append(trial_of(sweep, base, corner))
    return trials


def _options(key: str, axis: Range | tuple[Value, ...]) -> list[Settings]:
    """Return the settings of another axis: its values; of a range none, which leaves the base preset's, and some."""
    if not isinstance(axis, Range):
        return [{key: value} for value in axis]
    between = range(int(axis.low), int(axis.high), axis.step)[:_TRIED] if axis.step else range(0)
    return [{}, *({key: value} for value in (axis.low, axis.high, *between))]


def _first_valid(sweep: Sweep, base: Preset, settings: Settings, others: list[list[Settings]]) -> Trial:
    """Return the first trial with these settings that is a valid preset; ``others`` has the settings of other axes.

    Raises:
        ConfigError: none is valid; it is that of the first.
    """
    problems: list[ConfigError] = []
    for combination in itertools.islice(itertools.product(*others), _TRIED):
        try:
            return trial_of(sweep, base, dict(ChainMap(settings, *combination)))
        except ConfigError as error:
            problems.append(error)
    raise problems[0]


def _ends(axis: Range | tuple[Value, ...]) -> list[Any]:
    """Return the ends of a range; of a list, its numbers, or its first value if it has none."""
    if isinstance(axis, Range):
        return [axis.low, axis.high]
    return [value for value in axis if isinstance(value, int | float)] or list(axis[:1])


def describe(settings: Settings) -> str:
    """Format settings as ``model.d_model=32, training.learning_rate=0.001``."""
    return ", ".join(f"{key}={value_text(value)}" for key, value in settings.items())


def _labeled(settings: Settings, message: str) -> str:
    """Return a message after the settings, unless it begins with the only one."""
    is_named = len(settings) == 1 and message.startswith(f"{next(iter(settings))}=")
    return message if is_named else f"{describe(settings)}: {message}"


def value_text(value: Value) -> str:
    """Format a value of an axis; floats with six significant digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_integer_key(key: str, base: Preset) -> bool:
    """Whether the base preset's value of a key is an integer; ConfigError if it is no number."""
    section, _, field = key.partition(".")
    value = base.model_dump()[section].get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError([(f"axes.{key}", f"axes.{key} is a range, but {key}={value!r} is not a number; use a list")])
    return isinstance(value, int)


def _check_range(key: str, axis: Range, base: Preset) -> None:
    integers = isinstance(axis.low, int) and isinstance(axis.high, int)
    if is_integer_key(key, base):
        if not integers:
            raise ConfigError([(f"axes.{key}", f"axes.{key}: low={axis.low} and high={axis.high} must be integers")])
        if axis.step is not None and (axis.high - axis.low) % axis.step:
            rule = f"high={axis.high} must be low={axis.low} plus a multiple of step={axis.step}"
            raise ConfigError([(f"axes.{key}", f"axes.{key}: {rule}")])
    elif axis.step is not None:
        raise ConfigError([(f"axes.{key}", f"axes.{key}: step={axis.step} is for integers, which {key} is not")])


def _trial_name(sweep: str, settings: Settings) -> str:
    """Return ``SWEEP-lr0-001-dm32-9f3k2a``: what fits of the settings, and a digest that tells all settings apart.

    Other values or seeds of the sweep change no name.
    """
    text = json.dumps(settings, sort_keys=True)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    digest = "".join(_DIGITS[number // 36**i % 36] for i in range(_DIGEST))
    room = MAX_NAME_LENGTH - len(f"{sweep}--{digest}-seed-{MAX_SEED}")
    words = [f"{_initials(key)}{re.sub(r'[^a-z0-9]+', '-', value_text(settings[key]).lower())}" for key in settings]
    words = [word.strip("-") for word in words]
    fitting = [word for i, word in enumerate(words) if len("-".join(words[: i + 1])) <= room]
    return "-".join([sweep, *fitting, digest])


def _initials(key: str) -> str:
    """Return ``lr`` for ``training.learning_rate``."""
    return "".join(word[0] for word in key.partition(".")[2].split("_"))
