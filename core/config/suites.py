"""The ``task`` sections of the suites that researchers measure sequence models by."""

from math import comb, perm
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from core.config.counting import percent
from core.config.task_section import OneLengthConfig, TaskSection, format_range

MIN_DISTINCT = 1_000
SCAN_COMMANDS = 20_910
SCAN_WORDS, SCAN_ACTIONS = 9, 48  # of the longest command
COGS_SENTENCES = 24_155  # trained on
COGS_TRAINING_WORDS = 22  # of the longest sentence trained on, its full stop included
PCFG_EXPRESSIONS = 97_203  # of all splits: the official number
PCFG_TOKENS = 71  # of the longest expression, as in the official files
PCFG_LETTERS = 128  # of the longest answer; one in 1,000 official ones is longer
PCFG_TRAINING_FUNCTIONS = 8  # of the longest expression trained on in the split productivity
ONE_SYMBOL_ANSWERS = (
    "even-pairs",
    "parity-check",
    "cycle-navigation",
    "modular-arithmetic",
    "brackets-arithmetic",
    "solve-equation",
    "missing-duplicate",
)
SAME_SYMBOLS = ("reverse-string", "duplicate-string", "odds-first", "compute-sqrt", "bucket-sort")  # on both sides


class ScanConfig(TaskSection):
    """The commands of SCAN (Lake & Baroni 2018) and their actions, in one of its splits."""

    title: ClassVar[str] = "SCAN"
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


class CogsConfig(TaskSection):
    """English sentences and their logical forms, with 21 sets of what is not trained on: COGS (Kim & Linzen 2020)."""

    title: ClassVar[str] = "COGS"
    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "max_depth"
    num_distinct: ClassVar[int] = COGS_SENTENCES
    summary: ClassVar[str] = "COGS, sentences to logical forms"

    family: Literal["cogs"] = "cogs"
    max_depth: Annotated[
        int,
        Field(
            ge=3,
            le=12,
            description="clauses, or prepositional phrases, inside each other in the deepest test sentences; 12 is "
            "official, training has 2",
        ),
    ] = 12
    validation: Annotated[
        Literal["in-distribution", "generalization"],
        Field(
            description="sentences to validate on: like those trained on, as published; or from the generalization "
            "sets, none of them tested on"
        ),
    ] = "in-distribution"

    @property
    def longest_source(self) -> int:
        """Words of the longest sentence, or an upper bound: clauses of 4 words and the innermost of 16."""
        return max(48, 4 * self.max_depth + 16)  # 48: where subjects have phrases

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest logical form, or an upper bound: 34 of each clause and 108 of the innermost."""
        return max(361, 34 * self.max_depth + 108)  # 361: where subjects have phrases


class PcfgConfig(TaskSection):
    """Functions of strings, inside each other, and the strings they give: PCFG SET (Hupkes et al. 2020)."""

    title: ClassVar[str] = "PCFG SET"
    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "split"
    num_distinct: ClassVar[int] = PCFG_EXPRESSIONS
    longest_source: ClassVar[int] = PCFG_TOKENS
    longest_answer: ClassVar[int] = PCFG_LETTERS

    family: Literal["pcfg"] = "pcfg"
    split: Annotated[
        Literal["random", "systematicity", "productivity"],
        Field(
            description="expressions held out: a random tenth; those with one of four pairs of functions; those of "
            f"more than {PCFG_TRAINING_FUNCTIONS} functions"
        ),
    ] = "random"

    @property
    def summary(self) -> str:
        """A short description."""
        return f"PCFG SET, split {self.split}"


class FormalLanguageConfig(OneLengthConfig):
    """Inputs of one of the fifteen formal languages of Delétang et al. 2023, and their answers."""

    title: ClassVar[str] = "Formal languages"
    family: Literal["formal-language"] = "formal-language"
    language: Annotated[
        Literal[
            "even-pairs",
            "parity-check",
            "cycle-navigation",
            "modular-arithmetic",
            "stack-manipulation",
            "reverse-string",
            "brackets-arithmetic",
            "solve-equation",
            "duplicate-string",
            "missing-duplicate",
            "odds-first",
            "binary-addition",
            "binary-multiplication",
            "compute-sqrt",
            "bucket-sort",
        ],
        Field(description="the language: four regular, four deterministic context-free, seven context-sensitive"),
    ] = "parity-check"
    max_length: Annotated[int, Field(ge=20, le=256, description="symbols in the longest training input")] = 40

    @property
    def shared_vocabulary(self) -> bool:
        """Whether inputs and answers have the same symbols."""
        return self.language in SAME_SYMBOLS

    @property
    def num_distinct(self) -> int:
        """Number of distinct inputs, or a lower bound."""
        return 2 ** (self.max_length // 2)  # a lower bound: missing-duplicate has half of an input to choose

    @property
    def longest_answer(self) -> int:
        """Symbols in the longest training answer, or an upper bound."""
        if self.language in ONE_SYMBOL_ANSWERS:
            return 1
        return 2 * self.max_length if self.language == "duplicate-string" else self.max_length

    @property
    def summary(self) -> str:
        """A short description."""
        return f"{self.language.replace('-', ' ')}, inputs of up to {self.max_length} symbols"


class ModularConfig(TaskSection):
    """All pairs of numbers modulo a prime and one operation, of which a share is trained on (Power et al. 2022)."""

    title: ClassVar[str] = "Modular arithmetic"
    length_field: ClassVar[str] = "prime"
    longest_source: ClassVar[int] = 3
    longest_answer: ClassVar[int] = 1

    family: Literal["modular"] = "modular"
    prime: Annotated[int, Field(ge=7, le=113, description="numbers are 0 to one below this prime")] = 97
    operation: Annotated[Literal["+", "-", "*"], Field(description="sum, difference or product modulo the prime")] = "+"
    training_share: Annotated[
        float,
        Field(ge=0.05, le=0.9, description="share of all pairs for training; a quarter of the others is validation"),
    ] = 0.3
    split_by: Annotated[
        Literal["pair", "unordered-pair"],
        Field(
            description="what is in one split: each pair by itself, as published, so that 5 + 3 may be trained on and "
            "3 + 5 tested; or both orders of two numbers together"
        ),
    ] = "pair"

    @field_validator("prime")
    @classmethod
    def _check_prime(cls, prime: int) -> int:
        if any(prime % divisor == 0 for divisor in range(2, prime)):
            raise ValueError(f"task.prime={prime} must be a prime number, such as 53, 97 or 113")
        return prime

    @property
    def num_distinct(self) -> int:
        """All ordered pairs."""
        return self.prime**2

    @property
    def shared_vocabulary(self) -> bool:
        """Numbers and the operation are in one vocabulary."""
        return True

    @property
    def summary(self) -> str:
        """A short description."""
        return f"a {self.operation} b modulo {self.prime}, {percent(self.training_share, 0)} of all pairs trained on"


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

    title: ClassVar[str] = "Associative recall"
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
