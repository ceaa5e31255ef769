"""What a task is: a source of sequence pairs that knows its own answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from core.tasks.splits import Split
from core.vocab import PAD_ID, Vocab


@dataclass(frozen=True)
class Batch:
    """Pairs of sequences, padded on the right with PAD.

    Attributes:
        src: (B, S) int64, ``BOS x1 … xn EOS PAD …``.
        tgt: (B, T + 1) int64, ``BOS y1 … ym EOS PAD …``.
    """

    src: torch.Tensor
    tgt: torch.Tensor

    @property
    def tgt_in(self) -> torch.Tensor:
        """(B, T) int64: what the decoder reads under teacher forcing, BOS first."""
        return self.tgt[:, :-1]

    @property
    def tgt_out(self) -> torch.Tensor:
        """(B, T) int64: what it must produce, one place ahead of ``tgt_in``, EOS last."""
        return self.tgt[:, 1:]

    def __len__(self) -> int:
        return self.src.shape[0]

    def __getitem__(self, rows: slice | torch.Tensor) -> "Batch":
        return Batch(self.src[rows], self.tgt[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """Return the pairs on a device."""
        return Batch(self.src.to(device), self.tgt.to(device))

    def lengths(self) -> torch.Tensor:
        """Return how many tokens each pair has that are not PAD, both sides together, (B,) int64."""
        return (self.src != PAD_ID).sum(dim=1) + (self.tgt != PAD_ID).sum(dim=1)

    def trimmed(self) -> "Batch":
        """Return the pairs without the columns that are PAD in all of them."""
        return Batch(*(rows[:, : int((rows != PAD_ID).sum(dim=1).max())] for rows in (self.src, self.tgt)))


class Task(Protocol):
    """A family of sequence pairs; ``core.tasks`` holds one implementation a module."""

    src_vocab: Vocab
    tgt_vocab: Vocab
    min_length: int
    max_length: int
    examples: tuple[str, ...]

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` pairs of one split, on the generator's device."""

    def read(self, text: str) -> list[str]:
        """Split what a person typed into symbols; InputError says what is wrong with it."""

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the right answer to an input."""

    def alignment(self, symbols: Sequence[str]) -> list[int]:
        """Return, for each symbol of the answer, the index of the input symbol it comes from."""


def sample_distinct(task: Task, count: int, *, split: Split, generator: torch.Generator) -> Batch:
    """Draw pairs of which no two have the same source.

    Short sequences are few, so plain sampling would repeat them and weigh them too much.

    Returns:
        ``count`` pairs in the order drawn, or fewer where the split does not seem to hold as many.
    """
    drawn = task.sample(count, split=split, generator=generator)
    for _ in range(20):
        distinct = drawn[_first_occurrences(drawn.src)]
        if len(distinct) >= count:
            break
        more = task.sample(count, split=split, generator=generator)
        drawn = Batch(torch.cat([distinct.src, more.src]), torch.cat([distinct.tgt, more.tgt]))
    return drawn[_first_occurrences(drawn.src)][:count]


def _first_occurrences(rows: torch.Tensor) -> torch.Tensor:
    """Return the sorted indices (K,) int64 at which each distinct row is first seen."""
    _, group = torch.unique(rows, dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1,), len(rows), device=rows.device)
    first.scatter_reduce_(0, group, torch.arange(len(rows), device=rows.device), reduce="amin")
    return first.sort().values
