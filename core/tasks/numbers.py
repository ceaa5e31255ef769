"""Sequences of numbers: ``5 12 7`` becomes ``7 12 5``."""

from core.tasks.symbols import SymbolTask
from core.text.vocab import Vocab

SYMBOLS = tuple(str(number) for number in range(1, 18))


class Numbers(SymbolTask):
    """Sequences of the numbers 1-17, each one symbol, reversed or copied.

    Args:
        eos_in_targets: False leaves EOS out of the answers, so that a model never learns to stop.
    """

    def __init__(self, *, transform: str, min_length: int, max_length: int, eos_in_targets: bool = True) -> None:
        super().__init__(
            Vocab(SYMBOLS),
            transform=transform,
            min_length=min_length,
            max_length=max_length,
            candidates=("5 12 7 3 9 11", "1 2 3", "17 17 17 17", "8 16 4 2 1 3 6 12 7 14"),
            eos_in_targets=eos_in_targets,
        )
