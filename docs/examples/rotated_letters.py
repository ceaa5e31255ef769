"""A user-defined task and metric: rotate letters to the left, ``a b c d`` to ``b c d a``.

Train it:

    python -m core train --plugin docs/examples/rotated_letters.py --preset rotated-letters
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from core import plugins
from core.config import load_preset, parse_preset
from core.config.tasks import SequencesConfig
from core.tasks import NO_SOURCE
from core.tasks.sequences import SequenceTask
from core.text.vocab import PAD_ID, Vocab


class LettersConfig(SequencesConfig):
    """The task's settings in a preset; ``min_length`` and ``max_length`` are inherited."""

    num_symbols: ClassVar[int] = 12
    family: Literal["letters"] = "letters"
    transform: Literal["rotate"] = "rotate"
    positions: Annotated[int, Field(ge=1, le=8, description="how far to rotate")] = 1


@plugins.task(LettersConfig)
class RotatedLetters(SequenceTask):
    """Letters from a to l, rotated to the left."""

    def __init__(self, config: LettersConfig) -> None:
        lengths = {"min_length": config.min_length, "max_length": config.max_length}
        super().__init__(Vocab("abcdefghijkl"), candidates=["a b c d", "d e a f"], **lengths)
        self.positions = config.positions

    def source_positions(self, symbols: torch.Tensor) -> torch.Tensor:
        """Return which symbol of the input (B, N) int64 each symbol of the answer is; ``NO_SOURCE`` after its end."""
        lengths = (symbols != PAD_ID).sum(dim=1, keepdim=True)
        index = torch.arange(symbols.shape[1], device=symbols.device).expand_as(symbols)
        return ((index + self.positions) % lengths).masked_fill(index >= lengths, NO_SOURCE)


@plugins.metric("first_letter")
def first_letter(outputs: list[str], references: list[str]) -> float:
    """Return the share of outputs that begin as their references do."""
    return sum(ours[:1] == correct[:1] for ours, correct in zip(outputs, references, strict=True)) / len(outputs)


plugins.preset(
    parse_preset(
        load_preset("tiny").model_dump()
        | {
            "name": "rotated-letters",
            "description": "Rotate 2 to 5 letters to the left by one position.",
            "task": {"family": "letters", "min_length": 2, "max_length": 5},
        }
    )
)
