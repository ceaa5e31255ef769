"""Presets: one experiment as a typed and validated document, read from YAML and written to it.

A preset has a name, a description and three sections: ``task``, ``model`` and ``training``. This package does not
import torch, so listing presets is fast.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from core.config.sections import BlocksConfig, EncoderOnlyConfig, GRUConfig, ModelConfig, Section, WatchedModelConfig
from core.config.tasks import TaskConfig, WatchedConfig
from core.config.training import TrainingConfig
from core.storage import bounded_yaml
from core.storage.error_messages import short_repr
from core.storage.errors import LabError
from core.storage.validation_errors import problem_of

PRESET_FOLDER = Path(__file__).resolve().parents[2] / "presets"
MAX_NAME_LENGTH = 48
NAME_PATTERN = rf"^[a-z0-9][a-z0-9-]{{0,{MAX_NAME_LENGTH - 1}}}$"
SPECIAL_TOKENS = 2  # BOS and EOS of every sequence
SECTIONS = ("task", "model", "training")

BugName = Literal[
    "no-causal-mask",
    "targets-not-shifted",
    "pad-attended-to",
    "pad-in-the-loss",
    "no-positions",
    "no-score-scaling",
    "no-embedding-scaling",
    "softmax-over-queries",
    "no-residual",
    "no-eos-in-targets",
    "encoder-over-pad",
    "learning-rate-too-high",
    "heads-alike",
    "self-plotted-as-cross",
]
_GENERATING_FAMILIES = ("transformer", "decoder-only", "gru")
_ALL_FAMILIES = (*_GENERATING_FAMILIES, "encoder-only")
_CAUSAL_FAMILIES = ("transformer", "decoder-only")
_ATTENTION_FAMILIES = (*_CAUSAL_FAMILIES, "encoder-only")
BUG_FAMILIES: dict[BugName, tuple[str, ...]] = {
    "no-causal-mask": _CAUSAL_FAMILIES,
    "targets-not-shifted": _GENERATING_FAMILIES,
    "pad-attended-to": ("transformer", "encoder-only", "gru"),
    "pad-in-the-loss": _ALL_FAMILIES,
    "no-positions": ("transformer",),
    "no-score-scaling": _ATTENTION_FAMILIES,
    "no-embedding-scaling": _ATTENTION_FAMILIES,
    "softmax-over-queries": ("transformer",),
    "no-residual": _ATTENTION_FAMILIES,
    "no-eos-in-targets": _ALL_FAMILIES,
    "encoder-over-pad": ("gru",),
    "learning-rate-too-high": _ALL_FAMILIES,
    "heads-alike": _ATTENTION_FAMILIES,
    "self-plotted-as-cross": ("transformer",),
}
"""The model families that each bug applies to; ``core.teaching.bugs`` implements and describes the bugs."""


class ConfigError(LabError):
    """Raised for an invalid preset or setting; ``problems`` lists (field, message) pairs."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))


class Preset(Section):
    """One experiment: a task, a model, how to train it, and optionally a bug to study."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: Annotated[str, Field(min_length=1, max_length=500)]
    task: Annotated[TaskConfig, Field(discriminator="family")]
    model: Annotated[ModelConfig, Field(discriminator="family")]
    training: TrainingConfig
    bug: BugName | None = None

    @model_validator(mode="after")
    def _check_watched(self) -> "Preset":
        if self.is_watched != isinstance(self.model, WatchedModelConfig):
            raise ValueError(
                f"task.family={self.task.family!r} and model.family={self.model.family!r} must both be 'watched' or "
                "neither: only lab.watch writes them"
            )
        return self

    @model_validator(mode="after")
    def _check_max_seq_len(self) -> "Preset":
        needed = self.longest_sequence
        if needed > self.model.max_seq_len:
            field = self.task.length_field
            raise ValueError(
                f"task.{field}={getattr(self.task, field)} with BOS and EOS needs {needed} positions, "
                f"more than model.max_seq_len={self.model.max_seq_len}"
            )
        return self

    @model_validator(mode="after")
    def _check_tokens_per_batch(self) -> "Preset":
        budget = self.training.tokens_per_batch
        if 0 < budget < self.longest_sequence:
            field = self.task.length_field
            raise ValueError(
                f"training.tokens_per_batch={budget} must be 0 or at least {self.longest_sequence}, the length of the "
                f"longest sequence with BOS and EOS (task.{field}={getattr(self.task, field)})"
            )
        return self

    @model_validator(mode="after")
    def _check_training_sequences(self) -> "Preset":
        # About 4/5 are in the training split. Integer arithmetic, since the number may exceed the range of a float.
        most = self.task.num_distinct * 3 // 4
        if self.training.training_sequences > most:
            raise ValueError(
                f"training.training_sequences={self.training.training_sequences} must not be above {most}: "
                f"the task has {self.task.num_distinct} different sequences, and some are held out"
            )
        return self

    @model_validator(mode="after")
    def _check_answers_fit_the_source(self) -> "Preset":
        if isinstance(self.model, EncoderOnlyConfig) and self.task.longest_answer > self.task.longest_source:
            raise ValueError(
                f"model.family='encoder-only' writes one token for each input token, but with "
                f"task.family={self.task.family!r} answers of {self.task.longest_answer} tokens belong to inputs of at "
                f"most {self.task.longest_source}"
            )
        return self

    @model_validator(mode="after")
    def _check_guided_alignment(self) -> "Preset":
        training, weight = self.training, self.training.guided_alignment
        if not weight:
            return self
        if self.model.family != "transformer" or self.model.attention == "linear":
            raise ValueError(
                f"training.guided_alignment={weight:g} must be 0: only a Transformer with full or windowed attention "
                "has cross-attention weights to guide"
            )
        if training.teacher_forcing_ratio < 1:
            raise ValueError(
                f"training.guided_alignment={weight:g} must be 0 with "
                f"training.teacher_forcing_ratio={training.teacher_forcing_ratio:g}: it reads the reference only"
            )
        return self

    @model_validator(mode="after")
    def _check_gradient_checkpointing(self) -> "Preset":
        if self.training.gradient_checkpointing and not isinstance(self.model, BlocksConfig):
            raise ValueError(
                f"training.gradient_checkpointing=True must be False with model.family={self.model.family!r}: only the "
                "layers of Transformers are computed again"
            )
        return self

    @model_validator(mode="after")
    def _check_tied_embeddings(self) -> "Preset":
        if getattr(self.model, "tie_embeddings", None) == "all" and not self.task.shared_vocabulary:
            others = "'none'" if isinstance(self.model, EncoderOnlyConfig) else "'none' or 'output'"
            raise ValueError(
                f"model.tie_embeddings='all' must be {others} with task.family={self.task.family!r}, "
                "whose source and target vocabularies differ"
            )
        return self

    @model_validator(mode="after")
    def _check_bug(self) -> "Preset":
        if self.bug is None:
            return self
        families = BUG_FAMILIES[self.bug]
        if self.model.family not in families:
            known = " or ".join(map(repr, families))
            raise ValueError(f"bug={self.bug!r} needs model.family={known}, not {self.model.family!r}")
        if isinstance(self.model, GRUConfig | WatchedModelConfig):
            return self
        if self.model.own_blocks:
            field = f"{self.model.own_blocks[0]}_block"
            raise ValueError(
                f"bug={self.bug!r} needs built-in blocks, not model.{field}={getattr(self.model, field)!r}"
            )
        attention = getattr(self.model, "attention", "full")
        if attention != "full":
            raise ValueError(f"bug={self.bug!r} needs model.attention='full', not {attention!r}")
        if self.bug == "no-positions" and self.model.positions != "sinusoidal":
            raise ValueError(f"bug='no-positions' needs model.positions='sinusoidal', not {self.model.positions!r}")
        if self.bug == "heads-alike" and self.model.num_heads < 2:
            raise ValueError(f"bug='heads-alike' needs model.num_heads of 2 or more, not {self.model.num_heads}")
        return self

    @property
    def is_watched(self) -> bool:
        """Whether this stands for a training by a user's own program, whose model and data the lab does not have."""
        return isinstance(self.task, WatchedConfig)

    @property
    def planned_steps(self) -> int | None:
        """Updates in all; None if they are not known, as of a training that ``lab.watch`` records."""
        return (self.task.steps or None) if isinstance(self.task, WatchedConfig) else self.training.steps

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest source or target, BOS and EOS included."""
        return max(self.task.longest_source, self.task.longest_answer) + SPECIAL_TOKENS

    @property
    def sequences_per_batch(self) -> int:
        """Sequences per batch: ``batch_size``, or how many of the longest sequences fit into ``tokens_per_batch``."""
        return self.training.tokens_per_batch // self.longest_sequence or self.training.batch_size

    @property
    def sequences_per_step(self) -> int:
        """Sequences per optimizer update; with ``tokens_per_batch`` if they are the longest, otherwise more."""
        return self.sequences_per_batch * self.training.gradient_accumulation_steps

    def with_bug(self, bug: BugName | None) -> "Preset":
        """Return a copy with another bug, or with none.

        Raises:
            ConfigError: the bug does not exist or does not apply to this model.
        """
        return parse_preset(self.model_dump() | {"bug": bug})

    def with_changes(self, changes: dict[str, Any]) -> "Preset":
        """Return a copy with some values replaced. If a section changes its family, the fields that both have are kept.

        Args:
            changes: new values by dotted key, such as ``{"training.steps": 500}``.

        Raises:
            ConfigError: a key is unknown or a value is not allowed.
        """
        document = self.model_dump()
        for key, value in changes.items():
            section, _, field = key.partition(".")
            if section not in SECTIONS or not field:
                raise ConfigError([(key, f"{key} is not a known key; keys look like training.steps")])
            document[section][field] = Section.as_python(value)
        for section in SECTIONS:
            fields = section_class(section, document[section].get("family")).model_fields
            document[section] = {
                field: value
                for field, value in document[section].items()
                if field in fields or f"{section}.{field}" in changes
            }
        return parse_preset(document)

    def changed_from(self, other: "Preset") -> dict[str, tuple[Any, Any]]:
        """Return the values that differ, as ``{"training.steps": (value in other, value here)}``.

        The other value is None where the other preset, being of another family, lacks the field.
        """
        new, old = self.model_dump(), other.model_dump()
        bugs = {"bug": (other.bug, self.bug)} if self.bug != other.bug else {}
        return bugs | {
            f"{section}.{field}": (old[section].get(field), value)
            for section in SECTIONS
            for field, value in new[section].items()
            if old[section].get(field) != value
        }


ADDED_PRESETS: dict[str, Preset] = {}
"""Presets of plugins by name, beside those of ``PRESET_FOLDER``."""


class LoadedPlugin(Section):
    """A file that ``core.plugins`` has loaded.

    Attributes:
        path: of the file.
        sha256: of its content.
        imports: SHA-256 of the modules that it imported from its own folder, by name.
        preset_files: paths of the YAML files whose presets it registered.
    """

    path: str
    sha256: str
    imports: Annotated[dict[str, str], Field(default_factory=dict)]
    preset_files: tuple[str, ...] = ()


PLUGIN_FILES: dict[str, LoadedPlugin] = {}
"""The files that ``core.plugins`` has loaded, by file name, in this order."""


def section_classes(section: str) -> tuple[type[Section], ...]:
    """Return the classes of a section, one per family."""
    annotation = Preset.model_fields[section].annotation
    return get_args(annotation) or (annotation,)


def set_section_classes(section: Literal["task", "model"], classes: Sequence[type[Section]]) -> None:
    """Let the ``task`` or ``model`` section of presets be of these classes, chosen by their ``family``."""
    Preset.model_fields[section].annotation = Union[tuple(classes)]  # type: ignore[assignment]  # noqa: UP007
    Preset.model_rebuild(force=True)


def section_class(section: str, family: Any) -> type[Section]:
    """Return the class of a section's family; the first class if the family does not exist."""
    classes = section_classes(section)
    return next((each for each in classes if family_of(each) == family), classes[0])


def family_of(section: type[Section]) -> str | None:
    """Return the family that a class of a section stands for; None if it has no such field."""
    return section.model_fields["family"].default if "family" in section.model_fields else None


def parse_preset(document: Any, *, name: str | None = None) -> Preset:
    """Validate a document as a preset.

    Args:
        document: nested dicts, as read from YAML.
        name: the preset's name if the document has none.

    Raises:
        ConfigError: naming every invalid field with its value and the rule.
    """
    if not isinstance(document, dict):
        raise ConfigError(
            [("preset", f"a preset must be a mapping with {', '.join(SECTIONS)}, not {short_repr(document)}")]
        )
    if name is not None:
        document = {"name": name} | document
    try:
        return Preset.model_validate(document)
    except ValidationError as error:
        raise ConfigError([_problem(detail) for detail in error.errors()]) from error


def load_preset(name: str) -> Preset:
    """Load a preset by its name. Safe for untrusted names: no file outside ``presets/`` is read.

    Raises:
        ConfigError: the preset does not exist or is invalid.
    """
    if name in ADDED_PRESETS:
        return ADDED_PRESETS[name]
    if name not in preset_names():
        raise ConfigError([("preset", f"preset={short_repr(name)} is not one of {', '.join(preset_names())}")])
    return read_preset((PRESET_FOLDER / f"{name}.yaml").read_bytes(), name=name)


def load_preset_file(path: Path) -> Preset:
    """Load a preset from a YAML file of the local user; its stem is the name if the file has none.

    The pairs of a preset of own data, if any, are in ``pairs_beside(path)``.

    Raises:
        ConfigError: the file cannot be read or is no valid preset.
    """
    label = f"preset={short_repr(str(path))}"
    try:
        return read_preset(path.read_bytes(), name=_name_from(path.stem))
    except OSError as error:
        raise ConfigError([("preset", f"{label} cannot be read: {error.strerror}")]) from error
    except ConfigError as error:
        (field, message), *others = error.problems
        raise ConfigError([(field, f"{label}: {message}"), *others]) from error


def pairs_beside(preset_file: Path) -> Path:
    """Return the pairs file of a preset file: ``NAME.pairs.tsv`` beside ``NAME.yaml``."""
    return preset_file.with_suffix(".pairs.tsv")


@cache
def shipped_pairs(data: str) -> Path | None:
    """Return the pairs file beside a shipped preset that has this SHA-256; None if there is none."""
    return next((path for path in PRESET_FOLDER.glob("*.pairs.tsv") if _sha256(path) == data), None)


def verified_pairs(task: TaskConfig, path: Path | None) -> Path:
    """Return the file with the pairs that ``task.data`` names, after checking its contents.

    Args:
        path: the file; None takes that of a shipped preset.

    Raises:
        ConfigError: there is no such file, or its SHA-256 is another one.
    """
    label = f"task.data={task.own_data[:12]}…"
    path = path or shipped_pairs(task.own_data)
    try:
        if path is None:
            raise FileNotFoundError
        sha256 = _sha256(path)
    except OSError as error:
        message = "the file with these pairs is missing; a run keeps it as pairs.tsv, a preset NAME.yaml needs it as "
        raise ConfigError([("task.data", f"{label}: {message}NAME.pairs.tsv in the same folder")]) from error
    if sha256 != task.own_data:
        raise ConfigError([("task.data", f"{label}: {path.name} holds other pairs, with SHA-256 {sha256[:12]}…")])
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_preset(text: str | bytes, *, name: str) -> Preset:
    """Parse a preset from YAML text; ``name`` is used if the text has none.

    Raises:
        ConfigError: the text is not YAML within the bounds of ``bounded_yaml``, or no valid preset.
    """
    try:
        document = bounded_yaml.load(text)
    except bounded_yaml.BoundedYamlError as error:
        raise ConfigError([("preset", str(error))]) from error
    return parse_preset(document, name=name)


def preset_names() -> list[str]:
    """Return the names of the presets that ship and of those that plug-ins added, sorted."""
    return sorted({*ADDED_PRESETS, *(path.stem for path in PRESET_FOLDER.glob("*.yaml"))})


def preset_to_yaml(preset: Preset) -> str:
    """Format a preset as YAML with a comment per field; ``read_preset`` parses it to an equal preset."""
    lines = [f"name: {_as_scalar(preset.name)}", f"description: {_as_scalar(preset.description)}"]
    lines += [f"bug: {preset.bug}  # broken on purpose"] if preset.bug else []
    for section_name in SECTIONS:
        section = getattr(preset, section_name)
        lines += ["", f"{section_name}:"]
        for field, info in type(section).model_fields.items():
            if preset.is_watched and field not in section.model_fields_set:
                continue  # the user's own loop has its own settings
            value = _as_scalar(getattr(section, field))
            comment = f"  # {info.description}" if info.description else ""
            lines.append(f"  {field}: {value}{comment}")
    return "\n".join(lines) + "\n"


def _as_scalar(value: Any) -> str:
    """Format a value so that ``bounded_yaml`` reads it back unchanged; quote it where that is necessary."""
    plain = "null" if value is None else str(value)
    try:
        is_unambiguous = "#" not in plain and bounded_yaml.load(f"key: {plain}") == {"key": value}
    except bounded_yaml.BoundedYamlError:
        is_unambiguous = False
    if is_unambiguous:
        return plain
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10_000).strip()


def _name_from(stem: str) -> str:
    """Convert a file's stem to a valid preset name: ``My Test_2`` becomes ``my-test-2``."""
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:48].strip("-") or "preset"


def _problem(detail: ErrorDetails) -> tuple[str, str]:
    """Convert one pydantic error to (field, message with the value and the rule)."""
    field = ".".join(str(part) for part in _without_tag(detail["loc"])) or "preset"
    kind = detail["type"]
    if kind == "value_error":
        return field, str(detail["ctx"]["error"])
    if kind == "extra_forbidden":
        return field, problem_of(detail, field) + _known_keys(detail["loc"])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _family_problem(str(detail["loc"][0]), detail["input"])
    if kind == "string_pattern_mismatch" and field == "name":
        rule = f"should be a-z, 0-9 and -, at most {MAX_NAME_LENGTH} characters"
        return field, f"{field}={short_repr(detail['input'])} {rule}"
    return field, problem_of(detail, field)


def _family_problem(section: str, values: dict) -> tuple[str, str]:
    known = " or ".join(repr(family_of(each)) for each in section_classes(section))
    field = f"{section}.family"
    if "family" not in values:
        return field, f"{field} is missing; it should be {known}"
    message = f"{field}={short_repr(values['family'])} should be {known}"
    is_name = isinstance(values["family"], str)
    hint = "; a family of your own needs what registers it: --plugin FILE, or its cell in a notebook"
    return field, message + hint * is_name


def _without_tag(location: tuple) -> tuple:
    """Drop the family, which pydantic inserts after the name of a section with several families."""
    has_tag = len(location) > 1 and location[0] in SECTIONS and len(section_classes(location[0])) > 1
    return location[:1] + location[2:] if has_tag else location


def _known_keys(location: tuple) -> str:
    owner = section_class(*location[:2]) if len(location) > 1 else Preset
    return f"; known keys are {', '.join(owner.model_fields)}"
