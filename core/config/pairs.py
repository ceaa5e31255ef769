"""The sections of a preset for tasks that are a list of pairs."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.config.sections import FIXED, TaskSection

DICTIONARY_WORDS = 88_000  # of at most 8 letters and phones, at least, in the dictionary of pronunciations


class PronunciationsConfig(TaskSection):
    """Words of the CMU Pronouncing Dictionary, to be pronounced."""

    one_vocabulary: ClassVar[bool] = False
    size_field: ClassVar[str] = "max_length"

    family: Literal["pronunciations"] = "pronunciations"
    max_length: Annotated[int, Field(ge=8, le=28, description="letters of a word, and phones, at most")] = 20
    stress: Annotated[bool, Field(description="tell stressed vowels from others: 69 phones instead of 39")] = False
    split_seed: Annotated[
        int, Field(ge=0, le=2**31 - 1, description="of the division into training, validation and test words")
    ] = 0

    @property
    def num_distinct(self) -> int:
        """How many different words there are, at least."""
        return DICTIONARY_WORDS

    @property
    def longest_source(self) -> int:
        """Letters in the longest word."""
        return self.max_length

    @property
    def longest_answer(self) -> int:
        """Phones in the longest pronunciation."""
        return self.max_length

    @property
    def summary(self) -> str:
        """The task in a few words."""
        return f"pronounce English words of up to {self.max_length} letters" + (", with stress" if self.stress else "")


class OwnPairsConfig(TaskSection):
    """Pairs that somebody brought; ``core.tasks.ingest`` takes them in and fills most of this."""

    one_vocabulary: ClassVar[bool] = False

    family: Literal["own-pairs"] = "own-pairs"
    data: Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the pairs, kept with the run"), FIXED]
    num_sources: Annotated[int, Field(ge=10, description="different sources in the data"), FIXED]
    source_tokens: Annotated[
        Literal["character", "word", "symbol"],
        Field(description="what a source is split into; a symbol is what stands between spaces"),
    ] = "character"
    answer_tokens: Annotated[
        Literal["character", "word", "symbol"], Field(description="what an answer is split into")
    ] = "character"
    longest_source: Annotated[int, Field(ge=1, le=510, description="tokens; pairs with more are left out")] = 62
    longest_answer: Annotated[int, Field(ge=1, le=510, description="tokens; pairs with more are left out")] = 62
    unknown: Annotated[
        Literal["unk", "refuse"],
        Field(description="tokens that the training part has too seldom become UNK; or all are known, others refused"),
    ] = "unk"
    min_count: Annotated[
        int, Field(ge=1, le=1_000, description="times the training part must have a token, or it is UNK")
    ] = 1
    test_percent: Annotated[
        int, Field(ge=1, le=50, description="of the sources, for the test; unless a test file came with them")
    ] = 10
    validation_percent: Annotated[int, Field(ge=1, le=50, description="of the sources, to choose the best weights")] = (
        10
    )
    split_seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="of the division into parts, by source")] = 0

    @model_validator(mode="after")
    def _nothing_is_unknown_if_refused(self) -> "OwnPairsConfig":
        if self.unknown == "refuse" and self.min_count > 1:
            raise ValueError(
                f"task.min_count={self.min_count} must be 1 with task.unknown='refuse': there is no UNK for rare tokens"
            )
        return self

    @property
    def own_data(self) -> str:
        """SHA-256 of the pairs."""
        return self.data

    @property
    def num_distinct(self) -> int:
        """How many different sources there are."""
        return self.num_sources

    @property
    def size_field(self) -> str:
        """The setting that decides how long the longest sequence is."""
        return "longest_source" if self.longest_source >= self.longest_answer else "longest_answer"

    @property
    def summary(self) -> str:
        """The task in a few words."""
        return f"learn {self.num_sources:,} sources of own data, {self.source_tokens}s to {self.answer_tokens}s"
