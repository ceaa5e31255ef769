"""Many pairs of sequences in little memory: ids behind one another, and where each sequence begins."""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
import torch

from core.tasks.drawing import framed
from core.tasks.splits import Split
from core.tasks.task import Batch
from core.text.vocab import PAD_ID

_GOLDEN = 0x1E3779B97F4A7C15
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Ragged:
    """Sequences of ids of different lengths.

    Args:
        ids: of all sequences, one behind the other, (sum of lengths,) int32.
        starts: where each begins, and at last where the last one ends, (N + 1,) int64.
    """

    def __init__(self, ids: torch.Tensor, starts: torch.Tensor) -> None:
        self.ids, self.starts = ids, starts

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Ragged":
        """Gather sequences one by one, so that they need not all be there as lists at once."""
        return cls.of_both((row, ()) for row in rows)[0]

    @classmethod
    def of_both(cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> tuple["Ragged", "Ragged"]:
        """Gather both sides of pairs."""
        made = [(array("i"), array("q", [0])) for _ in range(2)]
        for pair in pairs:
            for (ids, ends), row in zip(made, pair, strict=True):
                ids.extend(row)
                ends.append(len(ids))
        one, other = (cls(tensor_of(ids), tensor_of(ends)) for ids, ends in made)
        return one, other

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> torch.Tensor:
        """Ids in each sequence, (N,) int64."""
        return self.starts.diff()

    def row(self, number: int) -> list[int]:
        """Return the ids of one sequence."""
        return self.ids[self.starts[number] : self.starts[number + 1]].tolist()

    def padded(self, rows: torch.Tensor, width: int) -> torch.Tensor:
        """Return some sequences (B,), none longer than ``width``, as (B, width) int64 with PAD behind each."""
        starts = self.starts[rows]
        lengths = self.starts[rows + 1] - starts
        places = torch.arange(width)
        inside = places < lengths[:, None]
        if not len(self.ids):
            return torch.full(inside.shape, PAD_ID)
        found = self.ids[(starts[:, None] + places).clamp(max=len(self.ids) - 1)].long()
        return found.masked_fill(~inside, PAD_ID)


class PairTable:
    """Pairs of a source and an answer; those of one source are together in one split.

    Args:
        src, tgt: ids of both sides, symbols only, each N sequences.
        keys: a number a source, the same for the same source, (N,) int64.
        split: 0 train, 1 validation, 2 test, (N,) int8.
    """

    def __init__(self, src: Ragged, tgt: Ragged, keys: torch.Tensor, split: torch.Tensor) -> None:
        self.src, self.tgt, self.keys, self.split = src, tgt, keys, split
        self.widths = tuple(int(side.lengths.max()) if len(side) else 0 for side in (src, tgt))
        self._by_key = keys.argsort(stable=True)
        self._sorted_keys = keys[self._by_key]

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, split: Split) -> torch.Tensor:
        """Return the pairs to be drawn of a split, (K,) int64: all to learn from, of the others one for each source.

        A source with several answers is asked for once; ``same_source`` finds what else is right.
        """
        inside = (self.split == SPLITS.index(split)).nonzero().squeeze(1)
        if split == "train":
            return inside
        first = torch.zeros(len(self), dtype=torch.bool)
        is_first = torch.ones(len(self), dtype=torch.bool)
        is_first[1:] = self._sorted_keys[1:] != self._sorted_keys[:-1]
        first[self._by_key[is_first]] = True
        return inside[first[inside]]

    def same_source(self, key: int) -> list[int]:
        """Return the pairs whose source has a key, in the order they came in."""
        low, high = (
            int(torch.searchsorted(self._sorted_keys, torch.tensor(key), right=right)) for right in (False, True)
        )
        return self._by_key[low:high].tolist()


class PairRows:
    """Some pairs of a table, as a ``Batch`` that is not made until it is asked for a part of itself."""

    def __init__(self, table: PairTable, rows: torch.Tensor, *, device: torch.device | str = "cpu") -> None:
        self.table, self.rows, self.device = table, rows, torch.device(device)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, places: torch.Tensor) -> Batch:
        """Return the pairs at some places (B,) int64, each side as wide as the widest of the table."""
        rows = self.rows[places.cpu()]
        src, tgt = (
            framed(side.padded(rows, width))
            for side, width in zip((self.table.src, self.table.tgt), self.table.widths, strict=True)
        )
        return Batch(src, tgt).to(self.device)

    def to(self, device: torch.device | str) -> "PairRows":
        """Return the same pairs, to be made on a device."""
        return PairRows(self.table, self.rows, device=device)

    def lengths(self) -> torch.Tensor:
        """Return how many tokens each source and each answer has, BOS and EOS counted, (K, 2) int64."""
        return torch.stack([side.lengths[self.rows] + 2 for side in (self.table.src, self.table.tgt)], dim=1)


def key_of(source: str) -> int:
    """Return a number that stands for a source, the same on every machine: 64 bits of its BLAKE2 hash."""
    return int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "little", signed=True)


def split_by_source(keys: torch.Tensor, *, test: float, validation: float, seed: int) -> torch.Tensor:
    """Put every source, with all its pairs, into one split.

    The sources are put into an order that only they and the seed decide; the first are for the test, the next for
    validation, at least one of each that has a share where there are three sources.

    Args:
        keys: (N,) int64, as of ``key_of``.
        test, validation: shares of the sources, 0-1.

    Returns:
        (N,) int8: 0 train, 1 validation, 2 test.
    """
    sources, of_pair = torch.unique(keys, return_inverse=True)
    order = _mixed(sources, seed).argsort(stable=True)
    held_out = [max(round(share * len(sources)), int(share > 0 and len(sources) > 2)) for share in (test, validation)]
    split = torch.zeros(len(sources), dtype=torch.int8)
    split[order[: held_out[0]]] = SPLITS.index("test")
    split[order[held_out[0] : sum(held_out)]] = SPLITS.index("validation")
    return split[of_pair]


def _mixed(keys: torch.Tensor, seed: int) -> torch.Tensor:
    """Give every key (N,) int64 a number that looks random, (N,) int64, as SplitMix64 ends (Steele et al. 2014)."""
    value = keys + (seed + 1) * _GOLDEN % 2**63
    for shift, multiplier in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB)):
        value = (value ^ (value >> shift)) * multiplier  # what does not fit into 64 bits is lost on purpose
    return value ^ (value >> 31)


def tensor_of(numbers: array) -> torch.Tensor:
    """Return an array's numbers as a tensor of the same type."""
    return torch.from_numpy(np.array(numbers, dtype=numbers.typecode))
