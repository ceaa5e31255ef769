"""Split text into tokens and join tokens to text: by characters, by words, or at spaces."""

import re
from collections.abc import Sequence
from typing import Literal, get_args

TokenKind = Literal["character", "word", "symbol"]
TOKEN_KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
_WORDS = re.compile(r"\w+|[^\w\s]")


def tokenize(text: str, kind: TokenKind) -> list[str]:
    """Split a text into tokens.

    Args:
        kind: "character" makes every Unicode character a token, inner spaces included; "word" makes words and single
            punctuation marks tokens; "symbol" splits at spaces.
    """
    if kind == "character":
        return list(text.strip())
    return _WORDS.findall(text) if kind == "word" else text.split()


def detokenize(tokens: Sequence[str], kind: TokenKind) -> str:
    """Join tokens to a text: without separator for characters, with spaces for words and symbols."""
    return ("" if kind == "character" else " ").join(tokens)
