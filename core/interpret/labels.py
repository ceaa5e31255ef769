"""Names for the rows and columns of a map."""

from collections.abc import Sequence

from core.text.vocab import BOS, EOS


def step_labels(output: Sequence[str]) -> tuple[list[str], list[str]]:
    """Name the rows of a decoder or cross-attention map: what each step produced, and what it read before."""
    return list(output), [BOS, *output[:-1]]


def frame_labels(symbols: Sequence[str]) -> list[str]:
    """Name the source positions: BOS, the symbols, EOS."""
    return [BOS, *symbols, EOS]
