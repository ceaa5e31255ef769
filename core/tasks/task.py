"""What a task is: a source of sequence pairs that knows its own answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from core.config.tasks import format_range
from core.tasks.splits import Split
from core.text.vocab import PAD_ID, Vocab

NO_SOURCE = -1
DRAWN_PER_KEPT = 50  # to find held-out inputs of one length: one in ten is, and short ones are few


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

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.src.device

    def __len__(self) -> int:
        return self.src.shape[0]

    def __getitem__(self, rows: slice | torch.Tensor) -> "Batch":
        return replace(self, src=self.src[rows], tgt=self.tgt[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """Return the pairs on a device."""
        return replace(self, src=self.src.to(device), tgt=self.tgt.to(device))

    def lengths(self) -> torch.Tensor:
        """Return how many tokens each source and each answer has that are not PAD, (B, 2) int64."""
        return torch.stack([(rows != PAD_ID).sum(dim=1) for rows in (self.src, self.tgt)], dim=1)

    def trimmed(self) -> "Batch":
        """Return the pairs without the columns that are PAD in all of them."""
        src, tgt = (rows[:, : int((rows != PAD_ID).sum(dim=1).max())] for rows in (self.src, self.tgt))
        return replace(self, src=src, tgt=tgt)


class ManyPairs(Protocol):
    """Pairs, perhaps too many to be one ``Batch``, of which batches can be made."""

    device: torch.device

    def __len__(self) -> int:
        """Count them."""

    def __getitem__(self, rows: torch.Tensor) -> Batch:
        """Return those at some places (B,) int64."""

    def to(self, device: torch.device | str) -> "ManyPairs":
        """Return the same pairs, to be made on a device."""

    def lengths(self) -> torch.Tensor:
        """Return how many tokens each source and each answer has that are not PAD, (N, 2) int64."""


class Task(Protocol):
    """A family of sequence pairs; ``core.tasks`` holds one implementation a module.

    Attributes:
        min_length, max_length: of the inputs it trains on, in symbols.
        examples: inputs to offer, as typed.
        bleu_tokenizer: how sacrebleu is to split the answers' text into words, where the task is a translation; None
            where BLEU says nothing.
        open_ended: whether many answers are as good, so that whether one is exactly the reference says nothing.
        length_unit: what an input's length counts.
        any_length: whether ``of_length`` draws inputs of any length, those beyond ``lengths`` too.
        pairs_file: the file that own pairs were read from, to build the task again; None for all other tasks.
        rate_names: what to call the shares of answers and of tokens that are wrong, where inputs may have several right
            answers (``core.evaluation.error_rates``); None where exact match says it all.
    """

    src_vocab: Vocab
    tgt_vocab: Vocab
    min_length: int
    max_length: int
    examples: tuple[str, ...]
    bleu_tokenizer: str | None = None
    open_ended: bool = False
    length_unit: str = "symbols in the input"
    any_length: bool = False
    rate_names: tuple[str, str] | None = None
    pairs_file: Path | None = None

    @property
    def trained_lengths(self) -> range:
        """Lengths of the inputs it trains on."""
        return range(self.min_length, self.max_length + 1)

    @property
    def lengths(self) -> range:
        """Lengths that charts show: from 1 to twice the longest trained on, or to the longest there is.

        There are none where length says nothing.
        """
        return range(1, 2 * self.trained_lengths[-1] + 1)

    def of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw ``count`` distinct pairs that no training sees, with inputs of one length; fewer where there are fewer.

        Inputs of a length trained on are of the test split; of another length all are held out.
        """

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` pairs of one split, on the generator's device; each side as wide in every draw."""

    def read(self, text: str) -> list[str]:
        """Split what a person typed into symbols; InputError says what is wrong with it."""

    def typed(self, symbols: Sequence[str]) -> str:
        """Write the symbols of an input so that ``read`` reads them."""
        return " ".join(symbols)

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the right answer to an input."""

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return all answers that are right; [] where none is known."""
        return [] if self.open_ended else [self.answer(symbols)]

    def all_pairs(self, split: Split) -> "ManyPairs | None":
        """Return every pair of a split, where the task is a list of pairs; None where pairs are drawn without end."""
        return None

    def alignment(self, symbols: Sequence[str]) -> list[int]:
        """Return, for each symbol of the answer, the index of the input symbol it comes from.

        -1 stands for none: the symbol comes from several at once, or from no certain one. Here all do.
        """
        return [NO_SOURCE] * len(self.answer(symbols))

    def sources(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return, for each symbol of the answer, the indices of all input symbols it may come from.

        Here, the one of ``alignment`` if there is one. A task in which several are as good must say so: a model that
        looks at another of them than ``alignment`` names is not wrong.
        """
        return [[] if place == NO_SOURCE else [place] for place in self.alignment(symbols)]

    def lines(self, split: Split) -> list[list[int]]:
        """Return the ids of all sequences of a split, for a model of nothing but them; [] where there is an input."""
        return []

    def text(self, tokens: Sequence[str]) -> str:
        """Write the symbols of an answer as a person would; here, with spaces between them."""
        return " ".join(tokens)

    def note(self, symbols: Sequence[str]) -> str:
        """Say in what way an input is unlike those trained on, or ""; here, by its length."""
        if self.min_length <= len(symbols) <= self.max_length:
            return ""
        side = "shorter" if len(symbols) < self.min_length else "longer"
        return f"{side} than any sequence it was trained on ({format_range(self.min_length, self.max_length)} tokens)"


def sample_distinct(task: Task, count: int, *, split: Split, generator: torch.Generator) -> Batch:
    """Draw pairs of which no two are the same.

    Short sequences are few, so plain sampling would repeat them and weigh them too much.

    Returns:
        ``count`` pairs in the order drawn, or fewer where the split does not seem to hold as many.
    """
    drawn = task.sample(count, split=split, generator=generator)
    for _ in range(20):
        distinct = drawn[_first_occurrences(drawn)]
        if len(distinct) >= count:
            break
        more = task.sample(count, split=split, generator=generator)
        drawn = replace(more, src=torch.cat([distinct.src, more.src]), tgt=torch.cat([distinct.tgt, more.tgt]))
    return drawn[_first_occurrences(drawn)][:count]


def first_distinct(pairs: Batch, count: int) -> Batch:
    """Return the first ``count`` pairs of which no two are the same, or as many as there are."""
    for some in (pairs[: 2 * count], pairs):  # looking through all is slow, and seldom needed
        found = some[_first_occurrences(some)] if len(some) else some
        if len(found) >= count:
            break
    return found[:count]


def _first_occurrences(pairs: Batch) -> torch.Tensor:
    """Return the sorted indices (K,) int64 at which each distinct pair is first seen."""
    rows = torch.cat([pairs.src, pairs.tgt], dim=1)
    _, group = torch.unique(rows, dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1,), len(rows), device=rows.device)
    first.scatter_reduce_(0, group, torch.arange(len(rows), device=rows.device), reduce="amin")
    return first.sort().values
