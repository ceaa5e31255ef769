"""PCFG SET: functions of strings, inside each other, and the string they give.

``append swap_first_last F1 G2 H3 , repeat I4 J5`` becomes ``H3 G2 F1 I4 J5 I4 J5``. Hupkes et al. 2020,
https://arxiv.org/abs/1908.08351.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import NamedTuple

import torch

from core.config.suites import PCFG_EXPRESSIONS, PCFG_LETTERS, PCFG_TOKENS, PCFG_TRAINING_FUNCTIONS, PcfgConfig
from core.storage.errors import InputError
from core.tasks.pairs import SPLITS, PairTable, PairTask, RaggedRows, TestSets, hold_out, source_key, split_by_source
from core.text.tokenizers import PlainTokenizer
from core.text.validation import quote
from core.text.vocab import Vocab

Positions = list[int]  # of letters in an expression
UNARY: dict[str, Callable[[Positions], Positions]] = {
    "copy": lambda string: string,
    "reverse": lambda string: string[::-1],
    "shift": lambda string: string[1:] + string[:1],
    "swap_first_last": lambda string: string[-1:] + string[1:-1] + string[:1],
    "repeat": lambda string: string * 2,
    "echo": lambda string: string + string[-1:],
}
BINARY: dict[str, Callable[[Positions, Positions], Positions]] = {
    "append": lambda first, second: first + second,
    "prepend": lambda first, second: second + first,
    "remove_first": lambda first, second: second,
    "remove_second": lambda first, second: first,
}
COMMA = ","
LETTERS = tuple(f"{letter}{number}" for letter in ascii_uppercase for number in range(1, 21))
_UNARY_NAMES, _BINARY_NAMES, _LETTERS = tuple(UNARY), tuple(BINARY), frozenset(LETTERS)
# A function, and the one directly after it, in the order of the paper.
HELD_OUT = (
    ("swap_first_last", "repeat"),
    ("append", "remove_second"),
    ("repeat", "remove_second"),
    ("append", "swap_first_last"),
)
TEST_SHARE = 9_721 / PCFG_EXPRESSIONS  # of the split random; the official sizes
VALIDATION_SHARE = 4_860 / 87_482  # of what is not tested
# What the paper does not print, as counted in the official files: expressions in 10,000 by their number of functions,
# from 1 on; strings in 100 by their number of letters; and the share of functions with one argument.
FUNCTION_COUNTS = (
    154, 1282, 1938, 1881, 1323, 1025, 663, 507, 350, 249, 188, 127, 88, 68,
    45, 29, 24, 17, 11, 7, 7, 5, 4, 2, 3, 1, 1, 1,
)  # fmt: skip
STRING_LENGTHS = {2: 16, 3: 30, 4: 27, 5: 27}
UNARY_SHARE = 0.6
LARGEST_SET = 16  # functions: expressions of as many or more are one test set, for there are few


class Pcfg(PairTask):
    """Expressions drawn as the official ones were, in one of three splits; see the preset's ``task`` section.

    A letter of an answer is aligned with the letter that the functions took it from.
    """

    length_unit = "tokens in the expression"

    def __init__(self, config: PcfgConfig, pairs: Path | None = None) -> None:
        self.config = config
        vocab, symbol = _vocabulary(), PlainTokenizer("symbol")
        super().__init__(
            src_vocab=vocab,
            tgt_vocab=vocab,
            tokenizers=(symbol, symbol),
            lengths=(1 + min(STRING_LENGTHS), config.longest_source),
            examples=(
                "repeat A1 B2 C3",
                "reverse copy O14 O4 C12 J14 W3",
                "echo remove_first D4 K5 , E6 F7",
                "append swap_first_last F1 G2 H3 , repeat I4 J5",
                "shift prepend repeat L8 M9 , append N10 P11 Q12 , remove_second R13 S14 , T15 U16 V17",
            ),
        )

    @property
    def table(self) -> PairTable:
        """All expressions."""
        return _table(self.config)

    def tokenize(self, text: str) -> list[str]:
        """Split an expression into tokens; InputError if it is none, or too long."""
        words = super().tokenize(text.replace(COMMA, f" {COMMA} "))
        if len(words) > PCFG_TOKENS:
            raise InputError(f"input={quote(text)} has {len(words)} tokens; the longest expression has {PCFG_TOKENS}")
        interpret(words)
        return words

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the string that an expression gives."""
        return [symbols[position] for position in interpret(symbols)]

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return the answer, which is known of every expression."""
        return [self.answer(symbols)]

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return, for each letter, the position that it was taken from; see ``Task.gold_alignment``."""
        return [[position] for position in interpret(symbols)]


def interpret(words: Sequence[str]) -> Positions:
    """Return the positions of the letters that an expression gives, in their order.

    Raises:
        InputError: the tokens are no expression; or it gives, or has inside, a string that is too long.
    """
    return _Reader(words).expression()


class _Reader:
    """Reads an expression from left to right; the functions are written before their arguments."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.at = words, 0

    def expression(self) -> Positions:
        if self._next() not in UNARY | BINARY:
            raise self._error("a function")
        found = self._argument()
        if self._next():
            raise self._error("the end")
        return found

    def _argument(self) -> Positions:
        """Read a function with its arguments, or a string."""
        word = self._next()
        if word in UNARY:
            self.at += 1
            return self._checked(UNARY[word](self._argument()))
        if word in BINARY:
            self.at += 1
            first = self._argument()
            if self._next() != COMMA:
                raise self._error("a comma")
            self.at += 1
            return self._checked(BINARY[word](first, self._argument()))
        return self._string()

    def _string(self) -> Positions:
        start = self.at
        while self._next() in _LETTERS and self.at - start < max(STRING_LENGTHS):
            self.at += 1
        if self.at == start:
            raise self._error("a function or a letter")
        if self.at - start < min(STRING_LENGTHS):
            raise self._error("another letter")
        return list(range(start, self.at))

    def _checked(self, string: Positions) -> Positions:
        if len(string) > PCFG_LETTERS:  # each ``repeat`` doubles it
            raise InputError(f"input={self._text()} has, or gives, a string of more than {PCFG_LETTERS} letters")
        return string

    def _next(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def _text(self) -> str:
        return quote(" ".join(self.words))

    def _error(self, expected: str) -> InputError:
        found = quote(self._next()) if self._next() else "the end"
        return InputError(
            f"input={self._text()} is not an expression of PCFG SET: {found} is where {expected} should be"
        )


@lru_cache(1)
def _vocabulary() -> Vocab:
    """Return the vocabulary of both sides: letters are copied."""
    return Vocab((*UNARY, *BINARY, COMMA, *LETTERS))


class _Drawing:
    """Draws expressions. No two strings are equal, as in the official files, so no two expressions are.

    Args:
        rng: where the draws come from.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.strings: set[tuple[str, ...]] = set()

    def expressions(self) -> Iterator[tuple[list[str], Positions]]:
        """Yield expressions and the positions of their answers' letters."""
        counts = range(1, len(FUNCTION_COUNTS) + 1)
        for functions in self.rng.choices(counts, FUNCTION_COUNTS, k=PCFG_EXPRESSIONS):
            yield self._fitting(functions)

    def _fitting(self, functions: int) -> tuple[list[str], Positions]:
        """Draw until an expression of some functions is not too long."""
        while True:
            words = self._expression(functions)
            if len(words) <= PCFG_TOKENS:
                try:
                    return words, interpret(words)
                except InputError:
                    continue

    def _expression(self, functions: int) -> list[str]:
        """Draw an expression of some functions, or a string for none."""
        if not functions:
            return self._string()
        if self.rng.random() < UNARY_SHARE:
            return [self.rng.choice(_UNARY_NAMES), *self._expression(functions - 1)]
        inside_first = self.rng.randrange(functions)
        first, second = self._expression(inside_first), self._expression(functions - 1 - inside_first)
        return [self.rng.choice(_BINARY_NAMES), *first, COMMA, *second]

    def _string(self) -> list[str]:
        while True:
            (length,) = self.rng.choices(tuple(STRING_LENGTHS), tuple(STRING_LENGTHS.values()))
            string = tuple(self.rng.choices(LETTERS, k=length))
            if string not in self.strings:
                self.strings.add(string)
                return list(string)


@lru_cache(3)
def _table(config: PcfgConfig) -> PairTable:
    """Return the expressions of a split, drawn once and the same for every run."""
    drawn = _drawn()
    if config.split == "random":
        is_test = split_by_source(drawn.keys, test=TEST_SHARE, validation=0, seed=0) == SPLITS.index("test")
    elif config.split == "systematicity":
        is_test = drawn.combined >= 0
    else:
        is_test = drawn.counts > PCFG_TRAINING_FUNCTIONS
    sets = _by_pair(drawn.combined) if config.split == "systematicity" else _by_count(drawn.counts, is_test)
    return PairTable(*drawn.rows, drawn.keys, hold_out(drawn.keys, is_test, validation=VALIDATION_SHARE), sets)


class _Drawn(NamedTuple):
    """All expressions, and what the splits ask of each.

    Attributes:
        rows: the expressions and the strings that they give.
        keys: ``source_key`` of each, (N,) int64.
        counts: number of functions of each, (N,) int64.
        combined: index in ``HELD_OUT`` of the first of its pairs that each has, (N,) int64; -1 for none.
    """

    rows: tuple[RaggedRows, RaggedRows]
    keys: torch.Tensor
    counts: torch.Tensor
    combined: torch.Tensor


@lru_cache(1)
def _drawn() -> _Drawn:
    """Draw all expressions, which takes seconds; every split has the same ones."""
    vocab, words_of = _vocabulary(), []
    drawing = _Drawing(Random("PCFG SET"))  # noqa: S311 - expressions to learn from

    def pairs() -> Iterator[tuple[list[int], list[int]]]:
        for words, answer in drawing.expressions():
            words_of.append(words)
            ids = vocab.encode(words)
            yield ids, [ids[position] for position in answer]

    return _Drawn(
        rows=RaggedRows.from_pairs(pairs()),
        keys=torch.tensor([source_key(" ".join(words)) for words in words_of]),
        counts=torch.tensor([sum(word in UNARY or word in BINARY for word in words) for words in words_of]),
        combined=torch.tensor([_held_out_pair(words) for words in words_of]),
    )


def _held_out_pair(words: Sequence[str]) -> int:
    """Return the index in ``HELD_OUT`` of the first of its pairs that an expression has; -1 if it has none."""
    return next((HELD_OUT.index(pair) for pair in pairwise(words) if pair in HELD_OUT), -1)


def _by_pair(combined: torch.Tensor) -> TestSets:
    """Return a test set for each pair of functions."""
    return TestSets(tuple(" ".join(pair) for pair in HELD_OUT), combined.to(torch.int8))


def _by_count(counts: torch.Tensor, is_test: torch.Tensor) -> TestSets:
    """Return a test set for each number of functions."""
    counts = counts.clamp(max=LARGEST_SET)
    found = counts[is_test].unique()
    names = [f"{count} function{'s' * (count > 1)}" for count in found.tolist()]
    names[-1] = names[-1].replace(" ", " or more ", 1)
    return TestSets(tuple(names), torch.where(is_test, torch.searchsorted(found, counts), -1).to(torch.int8))
