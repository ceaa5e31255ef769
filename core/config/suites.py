"""The ``task`` sections of the suites that researchers measure sequence models by."""

from math import comb, perm
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.config.task_section import TaskSection, format_range

MIN_DISTINCT = 1_000
SCAN_COMMANDS = 20_910
SCAN_WORDS, SCAN_ACTIONS = 9, 48  # of the longest command


class ScanConfig(TaskSection):
    """The commands of SCAN (Lake & Baroni 2018) and their actions, in one of its splits."""

    length_field: ClassVar[str] = "max_training_actions"
    num_distinct: ClassVar[int] = SCAN_COMMANDS
    longest_source: ClassVar[int] = SCAN_WORDS
    longest_answer: ClassVar[int] = SCAN_ACTIONS

    family: Literal["scan"] = "scan"
    split: Annotated[
        Literal["simple", "length", "add-jump", "add-turn-left"],
        Field(
            description="commands held out: a random fifth; those with long answers; those that combine jump, or turn "
            "left, with anything"
        ),
    ] = "simple"
    max_training_actions: Annotated[
        int, Field(ge=10, le=40, description="split length: actions in the longest training answer; 22 is official")
    ] = 22

    @property
    def summary(self) -> str:
        """A short description."""
        longest = f" above {self.max_training_actions} actions" if self.split == "length" else ""
        return f"SCAN, split {self.split}{longest}"


class InductionConfig(TaskSection):
    """Distinct letters, to be repeated from a given one on: what an induction head does (Olsson et al. 2022)."""

    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "max_letters"

    family: Literal["induction"] = "induction"
    min_letters: Annotated[int, Field(ge=2, le=250, description="letters in the shortest input, before the stop")] = 4
    max_letters: Annotated[int, Field(ge=2, le=250, description="letters in the longest input, before the stop")] = 12
    num_letters: Annotated[int, Field(ge=4, le=512, description="letters to choose from: a to z, then aa to zz")] = 26

    @model_validator(mode="after")
    def _check_letters(self) -> "InductionConfig":
        if self.min_letters > self.max_letters:
            raise ValueError(
                f"task.min_letters={self.min_letters} must not be above task.max_letters={self.max_letters}"
            )
        if self.max_letters > self.num_letters:
            raise ValueError(
                f"task.max_letters={self.max_letters} must not be above task.num_letters={self.num_letters}: the "
                "letters of an input are distinct"
            )
        _check_distinct(
            self.num_distinct, f"task.max_letters={self.max_letters} and task.num_letters={self.num_letters} allow"
        )
        return self

    @property
    def num_distinct(self) -> int:
        """Number of sequences of letters."""
        return sum(perm(self.num_letters, size) for size in range(self.min_letters, self.max_letters + 1))

    @property
    def longest_source(self) -> int:
        """Tokens in the longest source."""
        return self.max_letters + 2

    @property
    def longest_answer(self) -> int:
        """Tokens in the longest answer."""
        return self.max_letters + 1

    @property
    def summary(self) -> str:
        """A short description."""
        return f"repeat {format_range(self.min_letters, self.max_letters)} letters from a given one on"


class RecallConfig(TaskSection):
    """Pairs of a key and a value, then keys whose values are to be recalled (MQAR, Arora et al. 2023)."""

    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "max_pairs"

    family: Literal["recall"] = "recall"
    min_pairs: Annotated[int, Field(ge=1, le=128, description="fewest pairs of a key and a value in an input")] = 4
    max_pairs: Annotated[int, Field(ge=2, le=128, description="most pairs in an input")] = 8
    queries: Annotated[int, Field(ge=1, le=128, description="keys to recall, each once, in the order asked")] = 1
    answer: Annotated[
        Literal["pairs", "values"],
        Field(description="each value after its key, so that the step that writes it reads the key; or values alone"),
    ] = "pairs"
    num_keys: Annotated[int, Field(ge=2, le=512, description="keys to choose from: a to z, then aa to zz")] = 26
    num_values: Annotated[int, Field(ge=2, le=512, description="values to choose from: the numbers from 0")] = 10

    @model_validator(mode="after")
    def _check_pairs(self) -> "RecallConfig":
        if self.min_pairs > self.max_pairs:
            raise ValueError(f"task.min_pairs={self.min_pairs} must not be above task.max_pairs={self.max_pairs}")
        if self.max_pairs > self.num_keys:
            raise ValueError(
                f"task.max_pairs={self.max_pairs} must not be above task.num_keys={self.num_keys}: each key has one "
                "value"
            )
        if self.queries > self.min_pairs:
            raise ValueError(
                f"task.queries={self.queries} must not be above task.min_pairs={self.min_pairs}: each key is asked once"
            )
        _check_distinct(self.num_distinct, f"task.num_keys={self.num_keys} and task.num_values={self.num_values} allow")
        return self

    @property
    def num_distinct(self) -> int:
        """Number of sets of pairs."""
        sizes = range(self.min_pairs, self.max_pairs + 1)
        return sum(comb(self.num_keys, pairs) * self.num_values**pairs for pairs in sizes)

    @property
    def longest_source(self) -> int:
        """Tokens in the longest source."""
        return 2 * self.max_pairs + self.queries

    @property
    def longest_answer(self) -> int:
        """Tokens in an answer."""
        return self.queries * (2 if self.answer == "pairs" else 1)

    @property
    def summary(self) -> str:
        """A short description."""
        asked = "1 value" if self.queries == 1 else f"{self.queries} values"
        return f"recall {asked} of {format_range(self.min_pairs, self.max_pairs)} pairs"


def _check_distinct(count: int, fields: str) -> None:
    if count < MIN_DISTINCT:
        raise ValueError(
            f"{fields} only {count} different inputs; at least {MIN_DISTINCT} are needed to hold some out for "
            "validation and test"
        )
