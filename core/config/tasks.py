"""The sections of a preset that say what is learned, one class a family of tasks."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.config.pairs import OwnPairsConfig, PronunciationsConfig
from core.config.sections import TaskSection

MIN_DISTINCT_SEQUENCES = 1_000
LINES = 5_000  # of the text, at least, however short they are cut; a test holds it
LONGEST_PROMPT = 12  # characters of a text's line that may be given, the rest to be written
# Tokens in the longest number of one, two and three digits; "thousand" is one more. A test holds them.
LONGEST_WORDS = {"english": (1, 2, 5), "french": (1, 4, 6), "german": (1, 3, 5), "spanish": (1, 3, 4)}


def span(low: int, high: int) -> str:
    """Write a range of whole numbers: ``3–10``, or ``10`` where there is only one."""
    return f"{low:,}–{high:,}" if low < high else f"{low:,}"


class SequencesConfig(TaskSection):
    """What the tasks have in common whose answer is made of the input's symbols."""

    num_symbols: ClassVar[int]
    one_vocabulary: ClassVar[bool] = True  # of source and target
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
        if self.num_distinct < MIN_DISTINCT_SEQUENCES:
            raise ValueError(
                f"task.min_length={low} and task.max_length={high} allow only {self.num_distinct} different sequences; "
                f"at least {MIN_DISTINCT_SEQUENCES} are needed to hold some out for validation and test"
            )
        return self

    @property
    def num_distinct(self) -> int:
        """How many different inputs there are."""
        return sum(self.num_symbols**length for length in range(self.min_length, self.max_length + 1))

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
        return f"{self.transform} {span(self.min_length, self.max_length)} {self.family}"


class DigitsConfig(SequencesConfig):
    """Sequences of digits."""

    family: Literal["digits"] = "digits"
    base: Annotated[int, Field(ge=2, le=10, description="how many digits there are: 2 for 0 and 1 only")] = 10
    transform: Annotated[
        Literal["reverse", "copy", "sort", "deduplicate"],
        Field(description="what the answer is: the input reversed, the same, sorted, or each of its digits once"),
    ] = "reverse"

    @property
    def num_symbols(self) -> int:
        """How many different digits there are."""
        return self.base

    @property
    def summary(self) -> str:
        """The task in a few words, such as ``reverse 1–40 digits below 2``."""
        return super().summary + (f" below {self.base}" if self.base < 10 else "")


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


class AdditionConfig(TaskSection):
    """Sums of two whole numbers."""

    one_vocabulary: ClassVar[bool] = True
    size_field: ClassVar[str] = "max_digits"

    family: Literal["addition"] = "addition"
    max_digits: Annotated[int, Field(ge=2, le=9, description="digits in the longest number to add")] = 3

    @property
    def num_distinct(self) -> int:
        """How many different inputs there are."""
        return 10 ** (2 * self.max_digits)

    @property
    def longest_source(self) -> int:
        """Symbols in the longest input: two numbers and a plus."""
        return 2 * self.max_digits + 1

    @property
    def longest_answer(self) -> int:
        """Digits in the largest sum."""
        return self.max_digits + 1

    @property
    def summary(self) -> str:
        """The task in a few words."""
        return f"add two numbers of up to {self.max_digits} digits"


class PatternsConfig(TaskSection):
    """A repeated motif, to be continued."""

    num_symbols: ClassVar[int] = 10
    one_vocabulary: ClassVar[bool] = True

    family: Literal["patterns"] = "patterns"
    min_motif: Annotated[int, Field(ge=1, le=10, description="symbols in the shortest motif")] = 2
    max_motif: Annotated[int, Field(ge=3, le=10, description="symbols in the longest motif")] = 5
    max_length: Annotated[int, Field(ge=6, le=256, description="symbols shown at most")] = 16
    answer_length: Annotated[int, Field(ge=1, le=64, description="symbols to write")] = 4

    @model_validator(mode="after")
    def _motifs_are_shown_twice(self) -> "PatternsConfig":
        if self.min_motif > self.max_motif:
            raise ValueError(f"task.min_motif={self.min_motif} must not be above task.max_motif={self.max_motif}")
        if self.max_length < 2 * self.max_motif:
            raise ValueError(
                f"task.max_length={self.max_length} must be at least twice task.max_motif={self.max_motif}: "
                "a motif is known when it was shown twice"
            )
        return self

    @property
    def num_distinct(self) -> int:
        """How many different inputs there are, at least: as many as motifs."""
        return sum(self.num_symbols**length for length in range(self.min_motif, self.max_motif + 1))

    @property
    def size_field(self) -> str:
        """The setting that decides how long the longest sequence is."""
        return "max_length" if self.max_length >= self.answer_length else "answer_length"

    @property
    def longest_source(self) -> int:
        """Symbols in the longest input."""
        return self.max_length

    @property
    def longest_answer(self) -> int:
        """Symbols in every answer."""
        return self.answer_length

    @property
    def summary(self) -> str:
        """The task in a few words."""
        return f"continue motifs of {span(self.min_motif, self.max_motif)} symbols by {self.answer_length}"


class NumberWordsConfig(TaskSection):
    """Numbers in English words, to be translated."""

    one_vocabulary: ClassVar[bool] = False
    size_field: ClassVar[str] = "max_number"

    family: Literal["number-words"] = "number-words"
    language: Annotated[Literal["french", "german", "spanish"], Field(description="what to translate to")] = "french"
    max_number: Annotated[int, Field(ge=999, le=999_999, description="largest number; the smallest is 0")] = 9_999

    @property
    def num_distinct(self) -> int:
        """How many different inputs there are."""
        return self.max_number + 1

    @property
    def longest_source(self) -> int:
        """Words in the longest English number, at most."""
        return self._longest("english")

    @property
    def longest_answer(self) -> int:
        """Tokens in the longest translation, at most."""
        return self._longest(self.language)

    @property
    def summary(self) -> str:
        """The task in a few words."""
        return f"translate {span(0, self.max_number)} from English words to {self.language.capitalize()}"

    def _longest(self, language: str) -> int:
        digits, longest = len(str(self.max_number)), LONGEST_WORDS[language]
        return longest[digits - 1] if digits <= 3 else longest[digits - 4] + 1 + longest[2]


class TextConfig(TaskSection):
    """Lines of text, to be written character by character."""

    one_vocabulary: ClassVar[bool] = True
    size_field: ClassVar[str] = "max_length"

    family: Literal["text"] = "text"
    max_length: Annotated[int, Field(ge=16, le=250, description="characters in a line; the rest is cut off")] = 64

    @property
    def num_distinct(self) -> int:
        """How many different lines there are, at least."""
        return LINES

    @property
    def longest_source(self) -> int:
        """Characters of a line's beginning that may be given."""
        return LONGEST_PROMPT

    @property
    def longest_answer(self) -> int:
        """Characters in the longest line."""
        return self.max_length

    @property
    def summary(self) -> str:
        """The task in a few words."""
        return f"write verses of the Bible, Job to Lamentations, up to {self.max_length} characters"


TaskConfig = (
    DigitsConfig
    | NumbersConfig
    | WordsConfig
    | AdditionConfig
    | PatternsConfig
    | NumberWordsConfig
    | TextConfig
    | PronunciationsConfig
    | OwnPairsConfig
)
