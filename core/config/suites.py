"""The ``task`` sections of the suites that researchers measure sequence models by."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from core.config.task_section import OneLengthConfig, TaskSection

SCAN_COMMANDS = 20_910
SCAN_WORDS, SCAN_ACTIONS = 9, 48  # of the longest command
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


class FormalLanguageConfig(OneLengthConfig):
    """Inputs of one of the fifteen formal languages of Delétang et al. 2023, and their answers."""

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
        return f"a {self.operation} b modulo {self.prime}, {self.training_share:.0%} of all pairs trained on"
