"""Split text into tokens and join tokens to text: by characters, by words, or at spaces.

Subwords, which need a learned vocabulary, have a module of their own, ``core.text.subwords``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

PlainKind = Literal["character", "word", "symbol"]
TokenKind = PlainKind | Literal["subword"]
PLAIN_KINDS: tuple[PlainKind, ...] = get_args(PlainKind)
TOKEN_KINDS: tuple[TokenKind, ...] = (*PLAIN_KINDS, "subword")
_WORDS = re.compile(r"\w+|[^\w\s]")


class Tokenizer(Protocol):
    """Splits text into tokens and joins them again."""

    def tokenize(self, text: str) -> list[str]:
        """Split a text into tokens; InputError if it cannot be read."""

    def detokenize(self, tokens: Sequence[str], /) -> str:
        """Join tokens to a text."""


@dataclass(frozen=True)
class PlainTokenizer:
    """The tokenizer of a kind that needs no learned vocabulary."""

    kind: PlainKind

    def tokenize(self, text: str) -> list[str]:
        """Split a text into tokens; see ``tokenize``."""
        return tokenize(text, self.kind)

    def detokenize(self, tokens: Sequence[str], /) -> str:
        """Join tokens to a text; see ``detokenize``."""
        return detokenize(tokens, self.kind)


def plain_kind(kind: TokenKind) -> PlainKind:
    """Return a kind of token that needs no learned vocabulary; ValueError for subwords."""
    if kind == "subword":
        raise ValueError("subwords have a learned vocabulary")
    return kind


def tokenize(text: str, kind: PlainKind) -> list[str]:
    """Split a text into tokens.

    Args:
        kind: "character" makes every Unicode character a token, inner spaces included; "word" makes words and single
            punctuation marks tokens; "symbol" splits at spaces.
    """
    if kind == "character":
        return list(text.strip())
    return _WORDS.findall(text) if kind == "word" else text.split()


def detokenize(tokens: Sequence[str], kind: PlainKind) -> str:
    """Join tokens to a text: without separator for characters, with spaces for words and symbols."""
    return ("" if kind == "character" else " ").join(tokens)
