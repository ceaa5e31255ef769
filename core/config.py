"""Presets: one experiment as a typed, validated document, YAML in and out.

A preset has a description and three sections: ``task`` (what is learned), ``model`` (by what) and
``training`` (how). Everything here works without torch, so that listing presets is quick.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from core import bounded_yaml
from core.errors import LabError

PRESET_FOLDER = Path(__file__).resolve().parent.parent / "presets"
NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,47}$"
MIN_DISTINCT_SEQUENCES = 1_000
SPECIAL_TOKENS_IN_SOURCE = 2  # BOS and EOS


class ConfigError(LabError):
    """A preset that cannot be used; ``problems`` lists (field, message) pairs."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))


class Section(BaseModel):
    """Base of every section: immutable, exact types, no unknown keys, only finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DigitsConfig(Section):
    """Sequences of the digits 0-9, reversed or copied."""

    family: Literal["digits"] = "digits"
    transform: Annotated[
        Literal["reverse", "copy"], Field(description="what the answer is: the digits reversed, or the same")
    ] = "reverse"
    min_length: Annotated[int, Field(ge=1, le=256, description="digits in the shortest sequence")] = 3
    max_length: Annotated[int, Field(ge=1, le=256, description="digits in the longest sequence")] = 10

    @model_validator(mode="after")
    def _lengths_allow_a_split(self) -> "DigitsConfig":
        low, high = self.min_length, self.max_length
        if low > high:
            raise ValueError(f"task.min_length={low} must not be above task.max_length={high}")
        distinct = sum(10**length for length in range(low, high + 1))
        if distinct < MIN_DISTINCT_SEQUENCES:
            raise ValueError(
                f"task.min_length={low} and task.max_length={high} allow only {distinct} different sequences; "
                f"at least {MIN_DISTINCT_SEQUENCES} are needed to hold some out for validation and test"
            )
        return self


class TransformerConfig(Section):
    """The encoder-decoder Transformer of Vaswani et al. 2017 ("Attention Is All You Need")."""

    family: Literal["transformer"] = "transformer"
    d_model: Annotated[int, Field(ge=4, le=1024, description="width of every token's vector")] = 64
    num_heads: Annotated[int, Field(ge=1, le=16, description="attention heads in every layer")] = 4
    num_encoder_layers: Annotated[int, Field(ge=1, le=12, description="layers that read the input")] = 2
    num_decoder_layers: Annotated[int, Field(ge=1, le=12, description="layers that write the answer")] = 2
    d_ff: Annotated[int, Field(ge=4, le=4096, description="width inside the feed-forward network")] = 128
    max_seq_len: Annotated[int, Field(ge=4, le=512, description="most tokens a sequence may have, BOS and EOS in")] = 64
    dropout: Annotated[float, Field(ge=0, le=0.9, description="share of activations zeroed in training")] = 0.0

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "TransformerConfig":
        if self.d_model % self.num_heads:
            raise ValueError(f"model.d_model={self.d_model} must be divisible by model.num_heads={self.num_heads}")
        if self.d_model % 2:
            raise ValueError(f"model.d_model={self.d_model} must be even: positions are pairs of sine and cosine")
        return self

    @property
    def d_k(self) -> int:
        """Width of one head's queries and keys."""
        return self.d_model // self.num_heads


class TrainingConfig(Section):
    """How the model is trained: data, optimiser, schedule, and how often it is evaluated."""

    steps: Annotated[int, Field(ge=1, le=1_000_000, description="optimiser updates, one fresh batch each")] = 1000
    batch_size: Annotated[int, Field(ge=1, le=4096, description="sequences in a batch")] = 64
    learning_rate: Annotated[float, Field(gt=0, le=1, description="highest learning rate")] = 0.003
    schedule: Annotated[
        Literal["linear", "constant"], Field(description="after the warm-up: fall to zero, or stay")
    ] = "linear"
    warmup_steps: Annotated[int, Field(ge=0, le=100_000, description="steps in which the learning rate rises")] = 50
    max_gradient_norm: Annotated[
        float, Field(gt=0, le=1_000, description="longer gradients are scaled down to this norm")
    ] = 1.0
    evaluate_every: Annotated[int, Field(ge=1, le=100_000, description="steps between two evaluations")] = 50
    validation_sequences: Annotated[
        int, Field(ge=1, le=10_000, description="held-out sequences in each evaluation")
    ] = 256
    seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="start of every random number of the run")] = 0

    @model_validator(mode="after")
    def _warmup_fits(self) -> "TrainingConfig":
        if self.warmup_steps > self.steps:
            raise ValueError(f"training.warmup_steps={self.warmup_steps} must not be above training.steps={self.steps}")
        return self


class Preset(Section):
    """One experiment: a task, a model and a way to train it."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: Annotated[str, Field(min_length=1, max_length=500)]
    task: DigitsConfig
    model: TransformerConfig
    training: TrainingConfig

    @model_validator(mode="after")
    def _sequences_fit_the_model(self) -> "Preset":
        needed = self.task.max_length + SPECIAL_TOKENS_IN_SOURCE
        if needed > self.model.max_seq_len:
            raise ValueError(
                f"task.max_length={self.task.max_length} with BOS and EOS needs {needed} positions, "
                f"more than model.max_seq_len={self.model.max_seq_len}"
            )
        return self

    def with_changes(self, changes: dict[str, Any]) -> "Preset":
        """Return a copy with some values replaced.

        Args:
            changes: values by dotted key, such as ``{"training.steps": 500}``.

        Raises:
            ConfigError: a key is unknown or a value is not allowed.
        """
        document = self.model_dump()
        for key, value in changes.items():
            section, _, field = key.partition(".")
            if section not in SECTIONS or not field:
                raise ConfigError([(key, f"{key} is not a known key; keys look like training.steps")])
            document[section][field] = value
        return parse_preset(document)

    def changed_from(self, other: "Preset") -> dict[str, tuple[Any, Any]]:
        """Return the keys whose values differ, as ``{"training.steps": (other's, own)}``."""
        mine, theirs = self.model_dump(), other.model_dump()
        return {
            f"{section}.{field}": (theirs[section].get(field), value)
            for section in SECTIONS
            for field, value in mine[section].items()
            if theirs[section].get(field) != value
        }


SECTIONS = ("task", "model", "training")


def section_classes(section: str) -> tuple[type[Section], ...]:
    """Return the classes a section may be of: one for each family of tasks or models."""
    annotation = Preset.model_fields[section].annotation
    return get_args(annotation) or (annotation,)


def parse_preset(document: Any, *, name: str | None = None) -> Preset:
    """Validate a preset that was read from somewhere.

    Args:
        document: nested dicts, as YAML gives them.
        name: the preset's name when the document does not carry one (a file's stem).

    Raises:
        ConfigError: naming every field, value and rule that does not fit.
    """
    if not isinstance(document, dict):
        raise ConfigError([("preset", f"a preset is a mapping with {', '.join(SECTIONS)}, not {_short(document)}")])
    if name is not None:
        document = {"name": name} | document
    try:
        return Preset.model_validate(document)
    except ValidationError as error:
        raise ConfigError([_problem(detail) for detail in error.errors()]) from error


def load_preset(name: str, *, folder: Path = PRESET_FOLDER) -> Preset:
    """Load a preset by its name, which may come from a visitor: it cannot leave the folder.

    Raises:
        ConfigError: there is no such preset, or its file does not hold a valid one.
    """
    if name not in preset_names(folder):
        raise ConfigError([("preset", f"preset={_short(name)} is not one of {', '.join(preset_names(folder))}")])
    return read_preset((folder / f"{name}.yaml").read_bytes(), name=name)


def load_preset_file(path: Path) -> Preset:
    """Load a preset from a YAML file of the person at the keyboard.

    Raises:
        ConfigError: the file cannot be read or does not hold a valid preset.
    """
    try:
        return read_preset(path.read_bytes(), name=_name_from(path.stem))
    except OSError as error:
        raise ConfigError([("preset", f"preset={_short(str(path))} cannot be read: {error.strerror}")]) from error


def read_preset(text: str | bytes, *, name: str) -> Preset:
    """Parse a preset from YAML text; ``name`` is used where the text has none.

    Raises:
        ConfigError: the text is not YAML a preset may be written in, or not a valid preset.
    """
    try:
        document = bounded_yaml.load(text)
    except bounded_yaml.BoundedYamlError as error:
        raise ConfigError([("preset", str(error))]) from error
    return parse_preset(document, name=name)


def preset_names(folder: Path = PRESET_FOLDER) -> list[str]:
    """Return the names of the presets in a folder, in alphabetical order."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def preset_to_yaml(preset: Preset) -> str:
    """Write a preset as commented YAML, which ``read_preset`` reads back to an equal one."""
    lines = [f"name: {_as_scalar(preset.name)}", f"description: {_as_scalar(preset.description)}"]
    for section_name in SECTIONS:
        section = getattr(preset, section_name)
        lines += ["", f"{section_name}:"]
        for field, info in type(section).model_fields.items():
            value = _as_scalar(getattr(section, field))
            comment = f"  # {info.description}" if info.description else ""
            lines.append(f"  {field}: {value}{comment}")
    return "\n".join(lines) + "\n"


def _as_scalar(value: Any) -> str:
    """Write one value so that ``bounded_yaml`` reads the same: quoted where it would be taken for something else."""
    plain = str(value)
    try:
        reads_same = "#" not in plain and bounded_yaml.load(f"key: {plain}") == {"key": value}
    except bounded_yaml.BoundedYamlError:
        reads_same = False
    if reads_same:
        return plain
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10_000).strip()


def _name_from(stem: str) -> str:
    """Make a file's stem a valid preset name: ``My Test_2`` becomes ``my-test-2``."""
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:48].strip("-") or "preset"


def _problem(detail: dict) -> tuple[str, str]:
    """Turn one pydantic error into (field, message with the value and the rule)."""
    field = ".".join(str(part) for part in detail["loc"]) or "preset"
    kind, message = detail["type"], detail["msg"]
    if kind == "value_error":
        return field, str(detail["ctx"]["error"])
    if kind == "extra_forbidden":
        return field, f"{field} is not a known key{_known_keys(detail['loc'])}"
    if kind == "missing":
        return field, f"{field} is missing"
    message = message.removeprefix("Input ").removeprefix("String ")
    return field, f"{field}={_short(detail['input'])} {message}"


def _known_keys(location: tuple) -> str:
    owner: Any = Preset
    for part in location[:-1]:
        owner = owner.model_fields[part].annotation
    return f"; known keys are {', '.join(owner.model_fields)}"


def _short(value: Any) -> str:
    """Show a value in a message without letting a stranger's megabyte into it."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        text = f"a number of {value.bit_length()} bits"
    return text if len(text) <= 60 else text[:57] + "..."
