"""A sweep as the form on the Sweep tab holds it, in texts, and as the document that it stands for."""

import math
import re
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import Field, ValidationError

from core.config import ConfigError, Preset, load_preset, preset_names
from core.runs.sweeps.folder import SweepFile
from core.runs.sweeps.sweep import SEED, STEPS, Metric, Range, Resources, Sweep, Value, parse_sweep
from core.runs.sweeps.trials import value_text
from core.storage import bounded_yaml
from core.storage.error_messages import short_repr
from ui.components.component import Request
from ui.forms.setting_controls import settings_of, value_in

MAX_YAML = 100_000  # characters of an opened file
_WORDS: dict[str, Value] = {"true": True, "false": False, "null": None, "none": None}
_Text = Annotated[str, Field(max_length=100)]


class AxisDraft(Request):
    """An axis as it is typed: a list of values, or a range."""

    key: _Text
    kind: Literal["values", "range", "log"] = "values"
    values: str = Field("", max_length=20_000)
    low: _Text = ""
    high: _Text = ""
    step: _Text = ""


class BaseDraft(Request):
    """What a sweep's runs have in common.

    Attributes:
        preset: the sweep's ``preset``: the name of a shipped one, or that of a file beside the sweep's.
        document: the base preset, as JSON; ignored for a shipped one.
        set: values that all runs change.
    """

    preset: str = Field(max_length=200)
    document: str = Field(max_length=50_000)
    set: dict[str, bool | int | float | str | None] = Field(max_length=200)


class SweepDraft(Request):
    """Content of the form.

    Attributes:
        budget: "preset" trains as long as the base preset says, the others for ``amount``.
        resources: those of the sweep that was opened, which the form does not show.
    """

    name: _Text
    base: BaseDraft
    axes: list[AxisDraft] = Field(max_length=20)
    seeds: str = Field("1", max_length=2_000)
    metric: _Text = "validation_loss"
    budget: Literal["preset", "updates", "minutes"] = "preset"
    amount: _Text = ""
    search: _Text = "grid"
    trials: _Text = ""
    pruning: _Text = "none"
    jobs: _Text = "1"
    resources: Resources = Resources()


def base_of_preset(base: Preset, current: Preset) -> dict[str, Any]:
    """Return the base of a sweep as the form needs it, for the settings of the Train tab.

    Args:
        base: the preset that changes are reported against.
        current: the settings.
    """
    is_shipped = base.name in preset_names() and load_preset(base.name) == base
    changes = current.changed_from(base)
    if not is_shipped or "bug" in changes:
        return base_data(f"{current.name}.yaml", current, {})
    return base_data(base.name, base, {key: new for key, (_, new) in changes.items()})


def base_data(preset: str, base: Preset, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a base with what the form shows of it: title, changes, and the settings that can be an axis."""
    seed = changes.get(SEED, base.training.seed)
    current = base.with_changes(changes)
    listed = [each for each in settings_of(current) if each.key != SEED]
    return {
        "preset": preset,
        "document": base.model_dump_json(),
        "set": changes,
        "changes": ", ".join(f"{key}={value_text(value)}" for key, value in changes.items()),
        "seed": seed,
        "steps": current.training.steps,
        "settings": [
            {
                "key": each.key,
                "value": value_in(current, each),
                "options": each.as_field()["options"],
                "hint": each.hint,
            }
            for each in listed
        ],
    }


def sweep_file(draft: SweepDraft) -> SweepFile:
    """Return the sweep that the form stands for.

    Raises:
        ConfigError: naming every field with its value and the rule.
    """
    base = _base(draft.base)
    problems: list[tuple[str, str]] = []
    sweep: Sweep | None = None
    document = _document(draft, base, problems)
    try:
        sweep = parse_sweep(document)
    except ConfigError as error:
        known = {field for field, _ in problems} | ({"sweep"} if problems else set())
        problems += [(field, message) for field, message in error.problems if field not in known]
    if problems or sweep is None:
        raise ConfigError(problems)
    return SweepFile(sweep=sweep, base=base)


def num_jobs(draft: SweepDraft) -> int:
    """Return the number of runs to train at the same time; ConfigError if it is no whole number."""
    problems: list[tuple[str, str]] = []
    jobs = _whole("jobs", draft.jobs, problems)
    if jobs is None:
        raise ConfigError(problems)
    return jobs


def as_yaml(file: SweepFile) -> str:
    """Return a sweep as a file for ``python -m core sweep``."""
    document = file.sweep.model_dump(exclude_defaults=True)
    for key, axis in file.sweep.axes.items():
        document["axes"][key] = axis.model_dump(exclude_defaults=True) if isinstance(axis, Range) else list(axis)
    if not isinstance(file.sweep.seeds, int):
        document["seeds"] = list(file.sweep.seeds)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    if file.sweep.preset.endswith(".yaml"):
        return f"# {file.sweep.preset} must be beside this file: press Save on the Train tab.\n{text}"
    return text


def draft_of(file: SweepFile) -> dict[str, Any]:
    """Return what the form shows of a sweep, without the number of jobs."""
    sweep, goal = file.sweep, file.sweep.goal
    budget = "updates" if goal.updates is not None else "minutes" if goal.minutes is not None else "preset"
    amount = goal.updates if goal.updates is not None else goal.minutes
    return {
        "name": sweep.name,
        "base": base_data(sweep.preset, file.base, dict(sweep.set)),
        "axes": [_axis_draft(key, axis) for key, axis in sweep.axes.items()],
        "seeds": str(list(sweep.seeds)) if isinstance(sweep.seeds, tuple) else str(sweep.seeds),
        "metric": goal.metric,
        "budget": budget,
        "amount": "" if amount is None else f"{amount:g}" if isinstance(amount, float) else str(amount),
        "search": sweep.search,
        "trials": "" if sweep.trials is None else str(sweep.trials),
        "pruning": sweep.pruning,
        "resources": sweep.resources.model_dump(),
    }


def opened(text: str, base: BaseDraft) -> SweepFile:
    """Return the sweep of a file that the user opened.

    Args:
        text: the file.
        base: the one of the form, which is used if the file names it.

    Raises:
        ConfigError: it is not a valid sweep, or its preset is another file.
    """
    try:
        document = bounded_yaml.load(text.encode())
    except bounded_yaml.BoundedYamlError as error:
        raise ConfigError([("sweep", str(error))]) from error
    if not isinstance(document, dict):
        raise ConfigError([("sweep", f"a sweep must be a mapping with preset and axes, not {short_repr(document)}")])
    sweep = parse_sweep({"name": "sweep"} | document)
    if not sweep.preset.endswith((".yaml", ".yml")):
        return SweepFile(sweep=sweep, base=load_preset(sweep.preset))
    if sweep.preset != base.preset:
        reason = "a page cannot read files beside the one that you open. Load that preset on the Train tab first"
        raise ConfigError([("preset", f"preset={sweep.preset!r} is a file, and {reason}; then open this file again")])
    return SweepFile(sweep=sweep, base=_base(base))


METRICS: tuple[str, ...] = get_args(Metric)


def _base(draft: BaseDraft) -> Preset:
    if not draft.preset.endswith((".yaml", ".yml")):
        return load_preset(draft.preset)
    try:
        return Preset.model_validate_json(draft.document)
    except ValidationError as error:
        raise ConfigError([("preset", f"preset={draft.preset!r} is not a valid preset")]) from error


def _document(draft: SweepDraft, base: Preset, problems: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the sweep's document; texts that are no numbers are added to the problems."""
    axes: dict[str, Any] = {}
    for axis in draft.axes:
        if axis.key in axes:
            problems.append((f"axes.{axis.key}", f"axes.{axis.key} is there twice; put all values into one axis"))
        axes[axis.key] = _axis(axis, problems)
    common = {key: value for key, value in draft.base.set.items() if key not in (SEED, *axes)}
    goal: dict[str, Any] = {"metric": draft.metric}
    if draft.budget == "updates":
        goal["updates"] = _whole("goal.updates", draft.amount, problems)
        common.pop(STEPS, None)
    elif draft.budget == "minutes":
        goal["minutes"] = _number("goal.minutes", draft.amount, problems)
    document: dict[str, Any] = {
        "name": draft.name.strip(),
        "preset": draft.base.preset,
        "set": common,
        "axes": axes,
        "seeds": _seeds(draft, base, problems),
        "goal": {key: value for key, value in goal.items() if value is not None},
        "search": draft.search,
        "pruning": draft.pruning,
        "resources": draft.resources,
    }
    if draft.search != "grid":
        document["trials"] = _whole("trials", draft.trials, problems)
    return document


def _seeds(draft: SweepDraft, base: Preset, problems: list[tuple[str, str]]) -> int | list[int]:
    """Return how many seeds, from the preset's on; or which, if the text has a bracket or several parts."""
    if re.search(r"[\[,;\n]", draft.seeds):
        return [seed for each in _words(draft.seeds) if (seed := _whole("seeds", each, problems)) is not None]
    count = _whole("seeds", draft.seeds, problems) or 0
    first = draft.base.set.get(SEED, base.training.seed)
    if first == base.training.seed or not isinstance(first, int) or not 1 <= count <= 100:
        return count
    return list(range(first, first + count))


def _axis(axis: AxisDraft, problems: list[tuple[str, str]]) -> Any:
    key = f"axes.{axis.key}"
    if axis.kind == "values":
        return [_value(each) for each in _words(axis.values)]
    low, high = (_number(f"{key}.{end}", getattr(axis, end), problems) for end in ("low", "high"))
    if low is None or high is None:
        return [0]  # whose own problems would only confuse
    found: dict[str, Any] = {"low": low, "high": high}
    if axis.kind == "log":
        found["log"] = True
    elif axis.step.strip():
        found["step"] = _whole(f"{key}.step", axis.step, problems)
    return found


def _axis_draft(key: str, axis: Range | tuple[Value, ...]) -> dict[str, Any]:
    if not isinstance(axis, Range):
        return AxisDraft(key=key, values=", ".join(map(_typed, axis))).model_dump()
    kind: Literal["range", "log"] = "log" if axis.log else "range"
    step = "" if axis.step is None else str(axis.step)
    return AxisDraft(key=key, kind=kind, low=_typed(axis.low), high=_typed(axis.high), step=step).model_dump()


def _typed(value: Value) -> str:
    """Return a value as it is typed; ``_value`` returns it again."""
    return (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(value)
    )


def _words(text: str) -> list[str]:
    """Return what stands between commas, semicolons and line breaks."""
    parts = text.replace(";", ",").replace("\n", ",").strip("[] ").split(",")
    return [part.strip() for part in parts if part.strip()]


def _value(word: str) -> Value:
    """Return a typed value: true, false, null, a number or a text."""
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    number = _parsed(word)
    return word.strip("\"'")[:200] if number is None else number


def _parsed(word: str) -> int | float | None:
    """Return a finite number; None if the text is none."""
    text = word.strip()
    if len(text) > 40 or "_" in text:
        return None
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None


def _number(field: str, text: str, problems: list[tuple[str, str]]) -> int | float | None:
    number = _parsed(text)
    if number is None:
        said = f"{field} is empty" if not text.strip() else f"{field}={short_repr(text.strip(), 40)} is not a number"
        problems.append((field, said))
    return number


def _whole(field: str, text: str, problems: list[tuple[str, str]]) -> int | None:
    number = _number(field, text, problems)
    if isinstance(number, float):
        if not number.is_integer():
            problems.append((field, f"{field}={short_repr(text.strip(), 40)} is not a whole number"))
            return None
        return int(number)
    return number
