"""Sequences of digits: ``4 8 2 9`` becomes ``9 2 8 4``."""

from core.tasks.symbols import SymbolTask
from core.text.vocab import Vocab

_EXAMPLES = ("4 8 2 9", "1 2 3", "1 1 1 1", "9 8 7 6 5 4 3 2 1 0")
_BINARY_EXAMPLES = ("1 1 0 1 0 0 0", "0 1 1", "1 1 1 1", "1 0 0 0 1 1 0 1 0 1 1 1")


class Digits(SymbolTask):
    """Sequences of digits: reversed, copied, sorted, or each digit once, in the order first met.

    Args:
        base: how many different digits there are, from 0.
    """

    def __init__(self, *, transform: str, min_length: int, max_length: int, base: int = 10) -> None:
        known = "0123456789"[:base]
        candidates = _BINARY_EXAMPLES if base == 2 else _EXAMPLES
        super().__init__(
            Vocab(known),
            transform=transform,
            min_length=min_length,
            max_length=max_length,
            candidates=[text for text in candidates if set(text.split()) <= set(known)],
        )

    def split_text(self, text: str) -> list[str]:
        """Split what a person typed into characters: ``4 8 2 9``, ``4829`` and ``4,8,2,9`` are the same."""
        return list("".join(super().split_text(text)))
