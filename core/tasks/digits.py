"""Sequences of digits: ``4 8 2 9`` becomes ``9 2 8 4``."""

from core.tasks.symbols import SymbolTask
from core.vocab import Vocab


class Digits(SymbolTask):
    """Sequences of the digits 0-9: reversed, copied, sorted, or each digit once, in the order first met."""

    def __init__(self, *, transform: str, min_length: int, max_length: int) -> None:
        super().__init__(
            Vocab("0123456789"),
            transform=transform,
            min_length=min_length,
            max_length=max_length,
            candidates=("4 8 2 9", "1 2 3", "1 1 1 1", "9 8 7 6 5 4 3 2 1 0"),
        )

    def split_text(self, text: str) -> list[str]:
        """Split what a person typed into characters: ``4 8 2 9``, ``4829`` and ``4,8,2,9`` are the same."""
        return list("".join(super().split_text(text)))
