"""A sweep as a typed and validated document: a base preset, the values to try, seeds, and what to look for.

A *trial* is one setting of all axes; every seed of a trial is trained as a run.
"""

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from core.config import MAX_NAME_LENGTH, SECTIONS, ConfigError, Preset, load_preset, load_preset_file, pairs_beside
from core.config.counting import counted
from core.config.sections import Section
from core.storage import bounded_yaml
from core.storage.error_messages import short_repr
from core.storage.validation_errors import problem_of, rule_of

MAX_SWEEP_NAME = 20
MAX_RUNS = 10_000
MAX_SEEDS = 100
MAX_SEED = 2**31 - 1
SEED, STEPS = "training.seed", "training.steps"

Value = bool | int | float | str | None
Settings = dict[str, Value]
"""A value for each axis, by the key of the preset: ``{"model.d_model": 32}``."""

Metric = Literal["validation_loss", "free_running_loss", "token_accuracy", "exact_match", "bleu", "chrf"]
MINIMIZED = ("validation_loss", "free_running_loss")

_Key = Annotated[str, Field(pattern=rf"^({'|'.join(SECTIONS)})\.[a-z_]{{1,60}}$")]


class Range(Section):
    """The values of an axis from ``low`` to ``high``, both included."""

    low: int | float
    high: int | float
    log: Annotated[bool, Field(description="draw the logarithm uniformly, not the value")] = False
    step: Annotated[int | None, Field(ge=1, description="integers: distance between two values")] = None

    @model_validator(mode="after")
    def _check(self) -> "Range":
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"low={self.low} must be above 0 with log=True")
        if self.log and self.step:
            raise ValueError(f"step={self.step} must be left out with log=True")
        if self.step and not (isinstance(self.low, int) and isinstance(self.high, int)):
            raise ValueError(f"step={self.step} needs integers as low and high")
        return self


class Goal(Section):
    """What a sweep looks for, and how long each run is trained.

    A run's figure is that on the validation set at the step with the lowest validation loss, whose weights it keeps.
    """

    metric: Metric = "validation_loss"
    updates: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="updates of each run: the preset's training.steps")
    ] = None
    minutes: Annotated[
        float | None, Field(gt=0, le=10_080, description="training time after which a run is stopped")
    ] = None

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """Whether the metric should be small or large."""
        return "minimize" if self.metric in MINIMIZED else "maximize"

    @model_validator(mode="after")
    def _check(self) -> "Goal":
        if self.updates is not None and self.minutes is not None:
            raise ValueError(f"goal.updates={self.updates} and goal.minutes={self.minutes}: give one of them")
        return self


class Resources(Section):
    """What each run reserves on a Ray cluster; it trains with one thread whatever it reserves."""

    cpus: Annotated[float, Field(gt=0, le=1_024, description="cores, or a part of one")] = 1.0
    gpus: Annotated[float, Field(ge=0, le=1, description="a GPU, or the part of one that several runs share")] = 0.0
    memory_mb: Annotated[
        int | None, Field(ge=1, description="main memory in MB; null is what a run is estimated to take")
    ] = None

    @model_validator(mode="after")
    def _check(self) -> "Resources":
        if self.cpus > 1 and self.cpus != int(self.cpus):
            raise ValueError(f"cpus={self.cpus:g} must be a whole number, or below 1")
        return self


def _kind_of_axis(value: Any) -> str:
    return "range" if isinstance(value, dict | Range) else "values"


_Values = Annotated[tuple[Value, ...], Field(min_length=1, max_length=1_000, strict=False)]
Axis = Annotated[Annotated[_Values, Tag("values")] | Annotated[Range, Tag("range")], Discriminator(_kind_of_axis)]
_Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
_Seeds = Annotated[tuple[_Seed, ...], Field(min_length=1, max_length=MAX_SEEDS, strict=False)]


def _kind_of_seeds(value: Any) -> str:
    return "list" if isinstance(value, list | tuple) else "number"


class Sweep(Section):
    """Many settings of one preset, each trained with several seeds."""

    name: Annotated[str, Field(pattern=rf"^[a-z0-9][a-z0-9-]{{0,{MAX_SWEEP_NAME - 1}}}$")]
    preset: Annotated[str, Field(min_length=1, max_length=200, description="a preset, or a YAML file beside this one")]
    set: Annotated[dict[_Key, Value], Field(description="values of the preset that all runs change")] = {}  # noqa: RUF012 - copied
    axes: Annotated[dict[_Key, Axis], Field(min_length=1, max_length=20, description="the values to try, by key")]
    seeds: Annotated[
        Annotated[Annotated[int, Field(ge=1, le=MAX_SEEDS)], Tag("number")] | Annotated[_Seeds, Tag("list")],
        Discriminator(_kind_of_seeds),
        Field(description="random seeds, or how many, from the preset's on"),
    ] = 1
    goal: Goal = Goal()
    search: Annotated[
        Literal["grid", "random", "tpe"],
        Field(description="every combination of the values; or settings drawn at random, or by TPE from earlier ones"),
    ] = "grid"
    trials: Annotated[int | None, Field(ge=1, le=MAX_RUNS, description="random and tpe: settings to draw")] = None
    pruning: Annotated[
        Literal["none", "halving", "hyperband"],
        Field(description="stop trials whose first seed is worse than others after as many evaluations"),
    ] = "none"
    resources: Resources = Resources()

    @property
    def needs_optuna(self) -> bool:
        """Whether trials are drawn or pruned, which Optuna does."""
        return self.search != "grid" or self.pruning != "none"

    @property
    def num_seeds(self) -> int:
        """Runs of each trial."""
        return self.seeds if isinstance(self.seeds, int) else len(self.seeds)

    @property
    def num_trials(self) -> int:
        """Trials of the whole sweep."""
        if self.trials is not None:
            return self.trials
        return math.prod(len(axis) for axis in self.axes.values() if not isinstance(axis, Range))

    @property
    def size(self) -> str:
        """The numbers of trials and seeds: ``5 trials × 3 seeds``."""
        return f"{counted(self.num_trials, 'trial')} × {counted(self.num_seeds, 'seed')}"

    @property
    def num_runs(self) -> int:
        """Runs of the whole sweep, if no trial is pruned."""
        return self.num_trials * self.num_seeds

    def seeds_from(self, base: Preset) -> tuple[int, ...]:
        """Return the seeds; those of a number start at the seed of the base preset."""
        first = base.training.seed
        return tuple(range(first, first + self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @model_validator(mode="after")
    def _check_keys(self) -> "Sweep":
        for key in (*self.set, *self.axes):
            if key == SEED:
                raise ValueError(f"{key} must not be set or be an axis; list the seeds in seeds")
            if key == STEPS and self.goal.updates is not None:
                raise ValueError(f"{key} is already given by goal.updates={self.goal.updates}")
        if both := next((key for key in self.set if key in self.axes), None):
            raise ValueError(f"set.{both} must be left out, because {both} is an axis")
        return self

    @model_validator(mode="after")
    def _check_search(self) -> "Sweep":
        ranges = [key for key, axis in self.axes.items() if isinstance(axis, Range)]
        if self.search == "grid" and ranges:
            raise ValueError(f"axes.{ranges[0]} is a range, of which search='grid' needs a list; or use random or tpe")
        if self.search == "grid" and self.trials is not None:
            raise ValueError(f"trials={self.trials} must be left out with search='grid', which trains all combinations")
        if self.search != "grid" and self.trials is None:
            raise ValueError(f"trials is missing; search={self.search!r} needs the number of settings to draw")
        return self

    @model_validator(mode="after")
    def _check_lists(self) -> "Sweep":
        lists = {f"axes.{key}": axis for key, axis in self.axes.items() if not isinstance(axis, Range)}
        if not isinstance(self.seeds, int):
            lists["seeds"] = self.seeds
        for key, values in lists.items():
            if doubles := [value for i, value in enumerate(values) if _is_among(value, values[:i])]:
                raise ValueError(f"{key} lists {doubles[0]!r} twice")
        return self

    @model_validator(mode="after")
    def _check_size(self) -> "Sweep":
        if self.num_runs > MAX_RUNS:
            raise ValueError(
                f"trials × seeds = {self.num_trials:,} × {self.num_seeds} = {self.num_runs:,} runs; "
                f"at most {MAX_RUNS:,} are allowed"
            )
        return self


def load_sweep(path: Path) -> Sweep:
    """Load a sweep from a YAML file of the local user; its stem is the name if the file has none.

    Raises:
        ConfigError: the file cannot be read or is no valid sweep; naming every invalid field with value and rule.
    """
    try:
        document = bounded_yaml.load(path.read_bytes())
    except OSError as error:
        name = short_repr(str(path), 200)
        raise ConfigError([("sweep", f"sweep={name} cannot be read: {error.strerror}")]) from error
    except bounded_yaml.BoundedYamlError as error:
        raise ConfigError([("sweep", str(error))]) from error
    if not isinstance(document, dict):
        raise ConfigError([("sweep", f"a sweep must be a mapping with preset and axes, not {short_repr(document)}")])
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:MAX_SWEEP_NAME].strip("-")
    return parse_sweep({"name": stem} | document)


def parse_sweep(document: Any) -> Sweep:
    """Validate a document as a sweep.

    Raises:
        ConfigError: naming every invalid field with its value and the rule.
    """
    try:
        return Sweep.model_validate(document)
    except ValidationError as error:
        problems: dict[str, str] = {}
        details = error.errors()
        inside = {detail["loc"][:i] for detail in details for i in range(len(detail["loc"]))}
        for detail in details:
            if detail["type"] == "too_short" and detail["loc"] in inside:
                continue  # a list whose items are refused counts as empty, too
            field, message = _problem(dict(detail))
            problems.setdefault(field, message)  # a value that is none of several types has an error for each
        raise ConfigError(list(problems.items())) from error


def base_of(sweep: Sweep, folder: Path) -> tuple[Preset, Path | None]:
    """Return the sweep's base preset, and the file of its own pairs if it is a file; None for shipped presets.

    Args:
        folder: where the sweep's file is.

    Raises:
        ConfigError: there is no such preset, or it is not valid.
    """
    if not sweep.preset.endswith((".yaml", ".yml")):
        return load_preset(sweep.preset), None
    path = folder / sweep.preset
    return load_preset_file(path), pairs_beside(path)


def _is_among(value: Value, values: tuple[Value, ...]) -> bool:
    """Whether a value is in a list; True is not 1, but 1.0 is."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)


def _problem(detail: dict[str, Any]) -> tuple[str, str]:
    """Convert one pydantic error to (field, message with the value and the rule)."""
    tags = {"values", "range", "number", "list", "[key]", "bool", "int", "float", "str"}
    parts = [str(part) for part in detail["loc"]] or [""]
    field = ".".join(part for i, part in enumerate(parts) if i == 0 or part not in tags) or "sweep"
    kind, value = detail["type"], short_repr(detail["input"])
    if kind == "value_error":
        message = str(detail["ctx"]["error"])
        return field, message if field == "sweep" or message.startswith(field) else f"{field}: {message}"
    if kind == "extra_forbidden":
        nested: dict[str, type[Section]] = {"goal": Goal, "axes": Range, "resources": Resources}
        known = nested.get(parts[0], Sweep) if len(parts) > 1 else Sweep
        return field, f"{problem_of(detail, field)}; known keys are {', '.join(known.model_fields)}"
    if kind == "missing":
        return field, problem_of(detail, field)
    if kind in ("too_short", "string_too_short"):
        return field, f"{field} is empty"
    if "[key]" in parts:
        return field, f"{field} is not a key of presets, which look like training.learning_rate"
    rule = rule_of(detail).replace("a valid tuple", "a list or a range with low and high")
    if parts[-1] == "bool":  # the first of several types of a value, each of which has an error
        rule = "should be a finite number, a text, true, false or null"
    elif parts[-1] == "int":
        rule = "should be a finite number"
    elif parts[-1] == "number" and kind == "int_type":
        rule += " or a list of seeds"
    elif field == "name":
        rule = f"should be a-z, 0-9 and -, at most {MAX_SWEEP_NAME} of the {MAX_NAME_LENGTH} characters of a run's name"
    return field, f"{field}={value} {rule}"
