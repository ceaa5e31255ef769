"""Presets: one experiment as a typed, validated document, YAML in and out.

A preset has a description and three sections: ``task`` (what is learned), ``model`` (by what) and
``training`` (how). Everything here works without torch, so that listing presets is quick.
"""

import re
from pathlib import Path
from typing import Annotated, Any, get_args

import yaml
from pydantic import Field, ValidationError, model_validator

from core.config.bugs import BUG_FACTS, BugName
from core.config.sections import ModelConfig, Section, TrainingConfig
from core.config.tasks import TaskConfig
from core.storage import bounded_yaml
from core.storage.errors import LabError

PRESET_FOLDER = Path(__file__).resolve().parents[2] / "presets"
NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,47}$"
SPECIAL_TOKENS = 2  # BOS and EOS


class ConfigError(LabError):
    """A preset that cannot be used; ``problems`` lists (field, message) pairs."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))


class Preset(Section):
    """One experiment: a task, a model and a way to train it."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: Annotated[str, Field(min_length=1, max_length=500)]
    task: Annotated[TaskConfig, Field(discriminator="family")]
    model: Annotated[ModelConfig, Field(discriminator="family")]
    training: TrainingConfig
    bug: BugName | None = None

    @model_validator(mode="after")
    def _sequences_fit_the_model(self) -> "Preset":
        needed = max(self.task.longest_source, self.task.longest_answer) + SPECIAL_TOKENS
        if needed > self.model.max_seq_len:
            size = self.task.size_field
            raise ValueError(
                f"task.{size}={getattr(self.task, size)} with BOS and EOS needs {needed} positions, "
                f"more than model.max_seq_len={self.model.max_seq_len}"
            )
        return self

    @model_validator(mode="after")
    def _a_fixed_set_can_be_drawn(self) -> "Preset":
        # Four fifths are in the training split. In whole numbers: there may be more than a float can count.
        most = self.task.num_distinct * 3 // 4
        if self.training.training_sequences > most:
            raise ValueError(
                f"training.training_sequences={self.training.training_sequences} must not be above {most}: "
                f"the task has {self.task.num_distinct} different sequences, and some are held out"
            )
        return self

    @model_validator(mode="after")
    def _one_table_serves_one_vocabulary(self) -> "Preset":
        if getattr(self.model, "tie_embeddings", None) == "all" and not self.task.one_vocabulary:
            raise ValueError(
                f"model.tie_embeddings='all' must be 'none' or 'output' with task.family={self.task.family!r}, "
                "whose source and target have a vocabulary each"
            )
        return self

    @model_validator(mode="after")
    def _the_bug_has_something_to_break(self) -> "Preset":
        if self.bug is None:
            return self
        families = BUG_FACTS[self.bug].families
        if self.model.family not in families:
            known = " or ".join(map(repr, families))
            raise ValueError(f"bug={self.bug!r} needs model.family={known}, not {self.model.family!r}")
        if self.bug == "no-positions" and self.model.positions != "sinusoidal":
            raise ValueError(f"bug='no-positions' needs model.positions='sinusoidal', not {self.model.positions!r}")
        if self.bug == "heads-alike" and self.model.num_heads < 2:
            raise ValueError(f"bug='heads-alike' needs model.num_heads of 2 or more, not {self.model.num_heads}")
        return self

    @property
    def broken(self) -> str:
        """Say in a sentence what is broken on purpose, or ""."""
        return f"Broken on purpose ({self.bug}): it {BUG_FACTS[self.bug].breaks}." if self.bug else ""

    def with_bug(self, bug: BugName | None) -> "Preset":
        """Return a copy with another bug, or without one.

        Raises:
            ConfigError: there is no such bug, or not in such a model.
        """
        return parse_preset(self.model_dump() | {"bug": bug})

    def with_changes(self, changes: dict[str, Any]) -> "Preset":
        """Return a copy with some values replaced; a section of a new family keeps what both families know.

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
        for section in SECTIONS:
            known = section_class(section, document[section].get("family")).model_fields
            document[section] = {
                field: value
                for field, value in document[section].items()
                if field in known or f"{section}.{field}" in changes
            }
        return parse_preset(document)

    def changed_from(self, other: "Preset") -> dict[str, tuple[Any, Any]]:
        """Return the keys whose values differ, as ``{"training.steps": (other's, own)}``.

        None stands for the value of a key that the other, being of another family, does not have.
        """
        mine, theirs = self.model_dump(), other.model_dump()
        bugs = {"bug": (other.bug, self.bug)} if self.bug != other.bug else {}
        return bugs | {
            f"{section}.{field}": (theirs[section].get(field), value)
            for section in SECTIONS
            for field, value in mine[section].items()
            if theirs[section].get(field) != value
        }


SECTIONS = ("task", "model", "training")


def section_classes(section: str) -> tuple[type[Section], ...]:
    """Return the classes a section may have, one a family."""
    annotation = Preset.model_fields[section].annotation
    return get_args(annotation) or (annotation,)


def section_class(section: str, family: Any) -> type[Section]:
    """Return the class of a section of that family, or the first where there is no such family."""
    classes = section_classes(section)
    return next((each for each in classes if _family_of(each) == family), classes[0])


def _family_of(section: type[Section]) -> str | None:
    return section.model_fields["family"].default if "family" in section.model_fields else None


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
    """Load a preset from a YAML file on the user's own disk; its own pairs, if any, are in ``pairs_beside(path)``.

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
    lines += [f"bug: {preset.bug}  # broken on purpose"] if preset.bug else []
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
    field = ".".join(str(part) for part in _without_tag(detail["loc"])) or "preset"
    kind, message = detail["type"], detail["msg"]
    if kind == "value_error":
        return field, str(detail["ctx"]["error"])
    if kind == "extra_forbidden":
        return field, f"{field} is not a known key{_known_keys(detail['loc'])}"
    if kind == "missing":
        return field, f"{field} is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _family_problem(detail["loc"][0], detail["input"])
    message = message.removeprefix("Input ").removeprefix("String ")
    return field, f"{field}={_short(detail['input'])} {message}"


def _family_problem(section: str, given: dict) -> tuple[str, str]:
    known = " or ".join(repr(_family_of(each)) for each in section_classes(section))
    field = f"{section}.family"
    subject = f"{field}={_short(given['family'])}" if "family" in given else f"{field} is missing; it"
    return field, f"{subject} should be {known}"


def _without_tag(location: tuple) -> tuple:
    """Drop the family, which pydantic puts behind the name of a section that has several."""
    has_tag = len(location) > 1 and location[0] in SECTIONS and len(section_classes(location[0])) > 1
    return location[:1] + location[2:] if has_tag else location


def _known_keys(location: tuple) -> str:
    owner = section_class(*location[:2]) if len(location) > 1 else Preset
    return f"; known keys are {', '.join(owner.model_fields)}"


def _short(value: Any) -> str:
    """Show a value in a message without letting a stranger's megabyte into it."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        text = f"a number of {value.bit_length()} bits"
    return text if len(text) <= 60 else text[:57] + "..."
