"""Limits on what visitors may use: loose on a laptop, strict on a public server."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from core.config import ConfigError, Preset
from core.models import parameters_of
from core.tasks import build_task
from core.text.validation import validate_text
from core.training.memory import training_memory

NO_LIMIT = "none"
PREFIX = "ATTENTION_LAB_"
MEGABYTE = 1_000_000
_BATCH_SIZE = "training.batch_size"


def _or_none(value: Any) -> Any:
    return None if value == NO_LIMIT else value


Count = Annotated[int, Field(ge=1)]
Limit = Annotated[int | None, Field(ge=1), BeforeValidator(_or_none)]


class Limits(BaseModel):
    """All limits; None is no limit. Each field is also a command-line flag and an environment variable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_runs: Count = Field(2, description="runs that train at the same time; others are queued")
    max_queued: Limit = Field(100, description="queued runs of all visitors")
    max_training_per_visitor: Limit = Field(None, description="runs of one visitor that train at the same time")
    max_active_per_visitor: Limit = Field(None, description="runs of one visitor that are training or queued")
    max_runs_per_visitor: Limit = Field(None, description="runs of one visitor on disk")
    max_steps: Limit = Field(None, description="training.steps of a run")
    max_sequences: Limit = Field(
        None,
        description="sequences per step: training.batch_size, or the longest that training.tokens_per_batch holds, × "
        "training.gradient_accumulation_steps",
    )
    max_parameters: Limit = Field(None, description="parameters of a model")
    max_memory_mb: Limit = Field(None, description="estimated memory to train a run, in MB")
    max_minutes: Limit = Field(None, description="minutes a run trains before it is stopped and saved")
    max_disk_mb: Limit = Field(
        None,
        description="disk space of all runs, in MB; first shared ones above half of it are deleted, then the oldest",
    )
    max_disk_mb_per_visitor: Limit = Field(None, description="disk space of one visitor's runs, in MB")
    max_upload_mb: Count = Field(50, description="size of an uploaded file, in MB")
    max_pairs: Limit = Field(None, description="pairs in an uploaded file")
    max_uploads_mb_per_visitor: Limit = Field(None, description="uploads of one visitor per hour, in MB")
    max_uploads_mb: Limit = Field(None, description="uploads of all visitors per hour, in MB")
    max_input: Count = Field(2_000, description="characters of an input")
    idle_minutes: Limit = Field(None, description="minutes without a visit before a visitor's runs are stopped")
    keep_hours: Limit = Field(None, description="hours before a run that is neither shared nor in use is deleted")
    max_classes: Count = Field(4, description="classes that are open at the same time; a network opens at most two")
    max_students: Count = Field(50, description="students of a class")
    class_hours: Count = Field(3, description="hours without a visit before a class ends; it lasts 24 hours at most")

    keep_shared_hours: Limit = Field(None, description="hours before a shared run that nobody opens is deleted")

    def check(self, preset: Preset, *, pairs: Path | None = None) -> None:
        """Raise ConfigError if a preset exceeds a limit.

        Args:
            pairs: the file of the task's own pairs, if it has any.

        Raises:
            ConfigError: the message names every key with its value and limit.
        """
        training, problems = preset.training, []
        batch = "the longest sequences in training.tokens_per_batch" if training.tokens_per_batch else _BATCH_SIZE
        for key, value, limit in (
            ("training.steps", training.steps, self.max_steps),
            (f"{batch} × training.gradient_accumulation_steps", preset.sequences_per_step, self.max_sequences),
        ):
            if limit is not None and value > limit:
                problems.append((key, f"{key}={value:,} is more than this server allows: at most {limit:,}"))
        problems += self._size_problems(preset, pairs)
        if problems:
            raise ConfigError(problems)

    def check_size(self, preset: Preset, *, pairs: Path | None = None) -> None:
        """Raise ConfigError, as ``check`` does, if the preset's model is too large."""
        if problems := self._size_problems(preset, pairs):
            raise ConfigError(problems)

    def check_text(self, field: str, text: Any) -> str:
        """Return a visitor's text input unchanged; InputError if it is not valid text, or too long."""
        return validate_text(field, text, max_length=self.max_input)

    def _size_problems(self, preset: Preset, pairs: Path | None) -> list[tuple[str, str]]:
        if self.max_parameters is None and self.max_memory_mb is None:
            return []
        parameters = _parameters(preset, pairs)
        if self.max_parameters is not None and parameters > self.max_parameters:
            message = (
                f"model={parameters:,} parameters is more than this server allows: at most {self.max_parameters:,}"
            )
            return [("model", message)]
        megabytes = training_memory(preset, pairs).total // MEGABYTE
        if self.max_memory_mb is not None and megabytes > self.max_memory_mb:
            training = preset.training
            key = "training.tokens_per_batch" if training.tokens_per_batch else _BATCH_SIZE
            message = f"{key}={training.tokens_per_batch or training.batch_size} takes about {megabytes:,} MB of memory"
            message += f" with this model; this server allows at most {self.max_memory_mb:,} MB"
            return [(key, message)]
        return []


LAPTOP = Limits()
PUBLIC = Limits(
    max_queued=20,
    max_training_per_visitor=1,
    max_active_per_visitor=3,
    max_runs_per_visitor=20,
    max_steps=20_000,
    max_sequences=512,
    max_parameters=2_000_000,
    max_memory_mb=1_000,
    max_minutes=60,
    max_disk_mb=5_000,
    max_disk_mb_per_visitor=500,
    max_upload_mb=50,
    max_pairs=100_000,
    max_uploads_mb_per_visitor=200,
    max_uploads_mb=2_000,
    max_input=500,
    idle_minutes=30,
    keep_hours=72,
    keep_shared_hours=720,
)


def limits_from(flags: Mapping[str, Any], environment: Mapping[str, str], *, public: bool) -> Limits:
    """Return the limits in effect: a flag overrides an environment variable, which overrides the default.

    Args:
        flags: values by field; None if the flag was not given.
        public: whether the defaults are those of a public server.

    Raises:
        ConfigError: a value is neither a whole number above 0 nor, where allowed, "none".
    """
    values = PUBLIC.model_dump() if public else LAPTOP.model_dump()
    for name in Limits.model_fields:
        if (value := environment.get(PREFIX + name.upper())) is not None:
            values[name] = value
        if flags.get(name) is not None:
            values[name] = flags[name]
    try:
        return Limits.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            [
                (
                    str(name),
                    f"{name}={values[name]!r} is not a valid limit: use a whole number above 0{_or_no_limit(name)}",
                )
                for name in sorted({str(detail["loc"][0]) for detail in error.errors()})
            ]
        ) from error


def _or_no_limit(name: str) -> str:
    return "" if Limits.model_fields[name].annotation is int else f', or "{NO_LIMIT}"'


@lru_cache(256)  # the page asks again and again about the presets that it lists
def _parameters(preset: Preset, pairs: Path | None) -> int:
    return parameters_of(preset.model, build_task(preset.task, pairs=pairs))
