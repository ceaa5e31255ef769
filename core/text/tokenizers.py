"""Text to tokens and back, where what is learned comes as text: by characters, words or symbols with spaces between."""

import re
from collections.abc import Sequence
from typing import Literal, get_args

TokenKind = Literal["character", "word", "symbol"]
KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
_WORDS = re.compile(r"\w+|[^\w\s]")


def tokens_of(text: str, kind: TokenKind) -> list[str]:
    """Split a text.

    Args:
        kind: "character" takes every Unicode character, spaces inside included; "word" takes words and, each by
            itself, signs of punctuation; "symbol" takes what stands between spaces.
    """
    if kind == "character":
        return list(text.strip())
    return _WORDS.findall(text) if kind == "word" else text.split()


def text_of(tokens: Sequence[str], kind: TokenKind) -> str:
    """Write tokens as a person would."""
    return ("" if kind == "character" else " ").join(tokens)
