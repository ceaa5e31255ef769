"""The units of a text that an alignment links: words that spaces separate, or characters."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from core.text.subwords import WORD_START
from core.text.tokenizers import TokenKind, tokenize


def num_units(text: str, kind: TokenKind) -> int:
    """Return how many units a text has: characters, and features of inflected words, or words that spaces separate."""
    return len(tokenize(text, kind)) if kind in ("character", "inflection") else len(text.split())


def token_ranges(text: str, tokens: Sequence[str], kind: TokenKind) -> list[range]:
    """Return the positions of the tokens of each unit of a text."""
    if kind in ("character", "inflection", "symbol"):
        return [range(at, at + 1) for at in range(len(tokens))]
    if kind == "word":
        ends = list(accumulate(len(tokenize(word, kind)) for word in text.split()))
    else:
        starts = [at for at, token in enumerate(tokens) if token.startswith(WORD_START)]
        ends = [*starts[1:], len(tokens)]
    return [range(*each) for each in pairwise([0, *ends])]
