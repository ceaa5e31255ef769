"""Translation of numbers in words: ``two hundred and thirty four`` becomes ``deux cent trente-quatre``."""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

import torch

from core.config.tasks import NumberWordsConfig, format_range
from core.storage.errors import InputError
from core.storage.optional_imports import require_package
from core.tasks.data import add_bos_eos, draw_numbers, draw_split, pad_rows, split_mask
from core.tasks.task import Batch, Split, Task
from core.text.validation import check_input_length, check_not_empty, quote
from core.text.vocab import Vocab

CODES = {"english": "en", "french": "fr", "german": "de", "spanish": "es"}
JOINED = "##"  # prefix of a token that continues the word before it, as in WordPiece
# German writes a number below a million as one word; these are its parts.
_GERMAN = (
    "null eins ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert tausend und"
)
_GERMAN_PART = re.compile("|".join(sorted(_GERMAN.split(), key=len, reverse=True)))
_CACHED_NUMBERS = 100_000
_DRAWS = 20_000  # to find numbers of a given number of words: few have three, or nine


class NumberWords(Task):
    """The integers from 0 to ``max_number`` in English words, translated by the package num2words.

    The number of digits is uniform. Source and target have separate vocabularies: source tokens are words; target
    tokens are words and parts of words, marked so that ``answer_text`` can join them.

    Args:
        config: the preset's ``task`` section.

    Raises:
        LabError: num2words is not installed.
    """

    length_unit = "English words in the input"

    def __init__(self, config: NumberWordsConfig, pairs: Path | None = None) -> None:
        self.language, self.max_number = language, max_number = config.language, config.max_number
        self.min_length, self.max_length, self._longest_answer = 1, config.longest_source, config.longest_answer
        self.src_vocab, self.tgt_vocab = (Vocab(_vocabulary(each, max_number)) for each in ("english", language))
        self.examples = tuple(str(number) for number in (71, 234, 4829, 6080, 234567) if number <= max_number)
        # Sacrebleu's default tokenizer leaves a German number whole, so there would be no 4-grams to compare.
        self.bleu_tokenizer = "char" if language == "german" else "13a"

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        digits = format_range(1, len(str(self.max_number)))
        return f"number of digits uniform in {digits}, then the number uniform among those"

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` numbers of a split; see ``Task.sample``."""

        def draw(number: int) -> tuple[torch.Tensor, ...]:
            numbers = draw_numbers((number, 1), largest=self.max_number, generator=generator)
            return numbers + 1, numbers  # the split hash takes a 0 for PAD

        _, drawn = draw_split(draw, count, split=split)
        sources, answers = self._ids(drawn[:, 0].tolist())
        device = generator.device
        return Batch(
            add_bos_eos(pad_rows(sources, self.max_length, device=device)),
            add_bos_eos(pad_rows(answers, self._longest_answer, device=device)),
        )

    @property
    def lengths(self) -> range:
        """English words of the training inputs; larger numbers are not accepted."""
        return self.trained_lengths

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw test numbers of ``length`` English words; see ``Task.sample_of_length``."""
        drawn = draw_numbers((_DRAWS, 1), largest=self.max_number, generator=generator)
        held_out = dict.fromkeys(drawn[split_mask(drawn + 1, "test"), 0].tolist())
        fitting = (number for number in held_out if len(words_of(number, "english")) == length)
        sources, answers = self._ids(list(islice(fitting, count)))
        device, width = generator.device, max(map(len, answers), default=0)
        return Batch(
            add_bos_eos(pad_rows(sources, length, device=device)), add_bos_eos(pad_rows(answers, width, device=device))
        )

    def _ids(self, numbers: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of the English words of numbers, and of the tokens of their translations."""
        sources = [self.src_vocab.encode(words_of(number, "english")) for number in numbers]
        return sources, [self.tgt_vocab.encode(words_of(number, self.language)) for number in numbers]

    def tokenize(self, text: str) -> list[str]:
        """Read a number in digits, ``4829``, or in English words; "and", commas and hyphens are optional."""
        check_input_length(text)
        words = re.sub("(?<=[a-z])-(?=[a-z])|(?<![0-9]),", " ", text.lower()).split()
        check_not_empty(words, example=self.examples[0])
        if len(words) == 1 and re.fullmatch("[0-9]+(,[0-9]{3})*", words[0]):
            number: int | None = int(words[0].replace(",", ""))
        else:
            number = _number_of(words)
        if number is None or number > self.max_number:
            rule = f"a whole number from 0 to {self.max_number:,}, in digits or in English words"
            raise InputError(f"input={quote(text)} must be {rule}")
        return list(words_of(number, "english"))

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the tokens of the translation."""
        number = _number_of(symbols)
        if number is None:
            raise InputError(f"input={quote(' '.join(symbols))} is not a number in English words")
        return list(words_of(number, self.language))

    def answer_text(self, tokens: Sequence[str]) -> str:
        """Join tokens to words: ``quatre -vingt -dix`` to ``quatre-vingt-dix``, ``acht ##zehn`` to ``achtzehn``."""
        return re.sub(f" ({JOINED}|(?=-))", "", " ".join(tokens))


@lru_cache(_CACHED_NUMBERS)
def words_of(number: int, language: str) -> tuple[str, ...]:
    """Return the tokens of a number in a language.

    English tokens are words. Those of other languages keep how they join: a hyphen, or ``##`` within a word.
    """
    text = require_package("num2words", purpose="translating numbers").num2words(number, lang=CODES[language])
    if language == "english":
        return tuple(re.split("[ -]", text.replace(",", "")))
    if language == "german":
        parts = _GERMAN_PART.findall(text)
        return (parts[0], *(JOINED + part for part in parts[1:]))
    return tuple(re.split(" |(?=-)", text))


@cache
def _vocabulary(language: str, max_number: int) -> list[str]:
    """Return the tokens of all numbers up to ``max_number``, in alphabetical order.

    A number is thousands plus a rest, so a few numbers contain every token.
    """
    thousands = range(1_000, max_number + 1, 1_000)
    numbers = [*range(min(1_000, max_number + 1)), *thousands, *(number + 1 for number in thousands)]
    return sorted({word for number in numbers if number <= max_number for word in words_of(number, language)})


@cache
def _values() -> dict[str, int]:
    """Return the numbers below a hundred that are a single English word, by word."""
    return {words[0]: number for number in range(100) if len(words := words_of(number, "english")) == 1}


def _number_of(words: Sequence[str]) -> int | None:
    """Return the value of a number in English words; None if the words are not a number."""
    total = group = 0
    for word in words:
        if word == "hundred":
            group *= 100
        elif word == "thousand":
            total, group = total + group * 1_000, 0
        elif word in _values():
            group += _values()[word]
        elif word != "and":
            return None
    number = total + group
    return number if _without_and(words) == _without_and(words_of(number, "english")) else None


def _without_and(words: Sequence[str]) -> list[str]:
    return [word for word in words if word != "and"]
