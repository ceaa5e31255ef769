"""Split text into tokens and join tokens to text: by characters, by words, or at spaces.

Subwords, which need a learned vocabulary, have a module of their own, ``core.text.subwords``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

PlainKind = Literal["character", "word", "symbol", "inflection"]
TokenKind = PlainKind | Literal["subword"]
PLAIN_KINDS: tuple[PlainKind, ...] = get_args(PlainKind)
TOKEN_KINDS: tuple[TokenKind, ...] = (*PLAIN_KINDS, "subword")
KIND_NAMES: dict[TokenKind, str] = {kind: f"{kind}s" for kind in TOKEN_KINDS} | {
    "inflection": "characters and features"
}
"""The tokens of each kind, in words."""
FEATURES = re.compile(r"[A-Z0-9][\w.+/{}()-]*(?:;[\w.+/{}()-]+)+|[A-Z][A-Z0-9.]*")
"""Morphological features as UniMorph writes them (Kirov et al. 2018), such as ``V;IND;PRS;3;SG``, or one of them."""
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
            punctuation marks tokens; "symbol" splits at spaces; "inflection" is for words with morphological features
            after the last space, ``reiterar V;NEG``: characters, and a token for each feature, ``;V`` and ``;NEG``.
    """
    if kind == "inflection":
        word, _, last = text.strip().rpartition(" ")
        features = last.split(";")
        if word and all(features):
            return [*word, *(f";{each}" for each in features)]
    if kind in ("character", "inflection"):
        return list(text.strip())
    return _WORDS.findall(text) if kind == "word" else text.split()


def detokenize(tokens: Sequence[str], kind: PlainKind) -> str:
    """Join tokens to a text: without separator for characters, with spaces for words and symbols."""
    if kind == "inflection":
        features = [token[1:] for token in tokens if len(token) > 1 and token.startswith(";")]
        word = "".join(token for token in tokens if len(token) == 1 or not token.startswith(";"))
        return f"{word} {';'.join(features)}" if features else word
    return ("" if kind == "character" else " ").join(tokens)
