"""The sections of a preset that say what is learned, one class a family of tasks."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.sections import Section

MIN_DISTINCT_SEQUENCES = 1_000


class SequencesConfig(Section):
    """What the tasks have in common whose answer is made of the input's symbols."""

    num_symbols: ClassVar[int]
    size_field: ClassVar[str] = "max_length"

    family: str
    transform: Annotated[
        Literal["reverse", "copy"], Field(description="what the answer is: the input reversed, or the same")
    ] = "reverse"
    min_length: Annotated[int, Field(ge=1, le=256, description="symbols in the shortest sequence")] = 3
    max_length: Annotated[int, Field(ge=1, le=256, description="symbols in the longest sequence")] = 10

    @model_validator(mode="after")
    def _lengths_allow_a_split(self) -> "SequencesConfig":
        low, high = self.min_length, self.max_length
        if low > high:
            raise ValueError(f"task.min_length={low} must not be above task.max_length={high}")
        distinct = sum(self.num_symbols**length for length in range(low, high + 1))
        if distinct < MIN_DISTINCT_SEQUENCES:
            raise ValueError(
                f"task.min_length={low} and task.max_length={high} allow only {distinct} different sequences; "
                f"at least {MIN_DISTINCT_SEQUENCES} are needed to hold some out for validation and test"
            )
        return self

    @property
    def longest_source(self) -> int:
        """Symbols in the longest input."""
        return self.max_length

    @property
    def longest_answer(self) -> int:
        """Symbols in the longest answer."""
        return self.max_length

    @property
    def summary(self) -> str:
        """The task in a few words, such as ``reverse 3–10 digits``."""
        low, high = self.min_length, self.max_length
        return f"{self.transform} {low}–{high} {self.family}" if low < high else f"{self.transform} {low} {self.family}"


class DigitsConfig(SequencesConfig):
    """Sequences of the digits 0-9."""

    num_symbols = 10

    family: Literal["digits"] = "digits"
    transform: Annotated[
        Literal["reverse", "copy", "sort", "deduplicate"],
        Field(description="what the answer is: the input reversed, the same, sorted, or each of its digits once"),
    ] = "reverse"


class NumbersConfig(SequencesConfig):
    """Sequences of the numbers 1-17."""

    num_symbols = 17

    family: Literal["numbers"] = "numbers"
    eos_in_targets: Annotated[bool, Field(description="end the answers to learn from with EOS, as one should")] = True


class WordsConfig(SequencesConfig):
    """Sentences of random words, out of 34."""

    num_symbols = 34

    family: Literal["words"] = "words"
    unknown_words: Annotated[
        Literal["unk", "refuse"], Field(description="read a word it does not know as UNK, or refuse it")
    ] = "unk"


TaskConfig = DigitsConfig | NumbersConfig | WordsConfig
