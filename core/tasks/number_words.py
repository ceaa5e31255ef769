"""Numbers in words, translated: ``two hundred and thirty four`` becomes ``deux cent trente-quatre``."""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import islice

import torch

from core.storage.errors import InputError
from core.storage.optional_imports import require_package
from core.tasks.drawing import draw_numbers, draw_split, framed, padded
from core.tasks.splits import Split, split_mask
from core.tasks.task import Batch, Task
from core.text.task_input import check_length, check_not_empty, shortened
from core.text.vocab import Vocab

CODES = {"english": "en", "french": "fr", "german": "de", "spanish": "es"}
JOINED = "##"  # before a part of a word that is written right behind the part before it, as in WordPiece
# German writes a number below a million as one word; this is what such words are made of, the longest first.
_GERMAN = (
    "null eins ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert tausend und"
)
_GERMAN_PART = re.compile("|".join(sorted(_GERMAN.split(), key=len, reverse=True)))
_REMEMBERED = 100_000
_DRAWN = 20_000  # to find numbers of so many words: few have three, or nine


class NumberWords(Task):
    """The whole numbers from 0 to ``max_number`` in English words, translated as the package num2words has it.

    Each number of digits is as likely. Held out are numbers. Source and target have vocabularies of their own: the
    source's tokens are words; the target's are words and parts of words, marked so that the text can be made of them
    again.

    Args:
        language: one of ``CODES``, other than English.
        longest_source, longest_answer: tokens, at most.

    Raises:
        LabError: num2words is not installed.
    """

    length_unit = "English words in the input"

    def __init__(self, *, language: str, max_number: int, longest_source: int, longest_answer: int) -> None:
        self.language, self.max_number = language, max_number
        self.min_length, self.max_length, self._longest_answer = 1, longest_source, longest_answer
        self.src_vocab, self.tgt_vocab = (Vocab(_vocabulary(each, max_number)) for each in ("english", language))
        self.examples = tuple(str(number) for number in (71, 234, 4829, 6080, 234567) if number <= max_number)
        # Sacrebleu's own splitting leaves a German number whole, and no four words in a row to compare.
        self.bleu_tokenizer = "char" if language == "german" else "13a"

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` numbers of one split; see ``Task.sample``."""

        def draw(number: int) -> tuple[torch.Tensor, ...]:
            numbers = draw_numbers((number, 1), largest=self.max_number, generator=generator)
            return numbers + 1, numbers  # plus one: the hash does not tell a 0 from PAD

        _, drawn = draw_split(draw, count, split=split)
        sources, answers = self._ids(drawn[:, 0].tolist())
        device = generator.device
        return Batch(
            framed(padded(sources, self.max_length, device=device)),
            framed(padded(answers, self._longest_answer, device=device)),
        )

    @property
    def lengths(self) -> range:
        """English words: those of the numbers trained on, since larger numbers are not read."""
        return self.trained_lengths

    def of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw numbers of ``length`` English words; see ``Task.of_length``."""
        drawn = draw_numbers((_DRAWN, 1), largest=self.max_number, generator=generator)
        held_out = dict.fromkeys(drawn[split_mask(drawn + 1, "test"), 0].tolist())
        fitting = (number for number in held_out if len(words_of(number, "english")) == length)
        sources, answers = self._ids(list(islice(fitting, count)))
        device, widest = generator.device, max(map(len, answers), default=0)
        return Batch(framed(padded(sources, length, device=device)), framed(padded(answers, widest, device=device)))

    def _ids(self, numbers: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of numbers' English words, and of their translations' tokens."""
        sources = [self.src_vocab.encode(words_of(number, "english")) for number in numbers]
        return sources, [self.tgt_vocab.encode(words_of(number, self.language)) for number in numbers]

    def read(self, text: str) -> list[str]:
        """Read a number in digits, ``4829``, or in English words; "and", commas and hyphens may be left out."""
        check_length(text)
        words = re.sub("(?<=[a-z])-(?=[a-z])|(?<![0-9]),", " ", text.lower()).split()
        check_not_empty(words, example=self.examples[0])
        if len(words) == 1 and re.fullmatch("[0-9]+(,[0-9]{3})*", words[0]):
            number = int(words[0].replace(",", ""))
        else:
            self.src_vocab.encode(words)
            number = _number_of(words)
        if number > self.max_number:
            raise InputError(f"input={shortened(text)} is above task.max_number={self.max_number}")
        return list(words_of(number, "english"))

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the tokens of the translation."""
        return list(words_of(_number_of(symbols), self.language))

    def text(self, tokens: Sequence[str]) -> str:
        """Put words together again: ``quatre -vingt -dix`` is ``quatre-vingt-dix``, ``acht ##zehn`` is ``achtzehn``."""
        return re.sub(f" ({JOINED}|(?=-))", "", " ".join(tokens))


@lru_cache(_REMEMBERED)
def words_of(number: int, language: str) -> tuple[str, ...]:
    """Return the tokens of a number in a language.

    English words stand alone. Others keep what joins them: the hyphen before a word, ``##`` before a part of one.
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
    """Return all tokens that the numbers up to a largest one are made of, in alphabetical order.

    A number is said as thousands and a rest, so these numbers have all the tokens there are.
    """
    thousands = range(1_000, max_number + 1, 1_000)
    numbers = [*range(min(1_000, max_number + 1)), *thousands, *(number + 1 for number in thousands)]
    return sorted({word for number in numbers if number <= max_number for word in words_of(number, language)})


@cache
def _values() -> dict[str, int]:
    """Return the numbers below a hundred that are a single word in English, by that word."""
    return {words[0]: number for number in range(100) if len(words := words_of(number, "english")) == 1}


def _number_of(words: Sequence[str]) -> int:
    """Return the number that English words stand for; InputError if they stand for none."""
    total = group = 0
    for word in words:
        if word == "hundred":
            group *= 100
        elif word == "thousand":
            total, group = total + group * 1_000, 0
        elif word != "and":
            group += _values()[word]
    number = total + group
    if _without_and(words) != _without_and(words_of(number, "english")):
        raise InputError(f"input={shortened(' '.join(words))} is not a number in English words")
    return number


def _without_and(words: Sequence[str]) -> list[str]:
    return [word for word in words if word != "and"]
