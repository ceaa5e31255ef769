"""Tasks that are a finite list of pairs: the pairs in compact form, their splits, and what such tasks share."""

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import torch

from core.tasks.data import add_bos_eos
from core.tasks.task import Batch, Breakdown, Split, Task
from core.text.pieces import shared_words
from core.text.tokenizers import Tokenizer
from core.text.validation import check_input_length, check_not_empty
from core.text.vocab import PAD_ID, UNK, Vocab

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_GOLDEN = 0x1E3779B97F4A7C15
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_LINK_BASE = 2**15  # so that two positions fit into 31 bits


class RaggedRows:
    """Rows of ids of different lengths in two tensors, which take little memory.

    Args:
        ids: of all rows, concatenated, (sum of lengths,) int32.
        starts: index of the first id of each row, then the number of ids, (N + 1,) int64.
    """

    def __init__(self, ids: torch.Tensor, starts: torch.Tensor) -> None:
        self.ids, self.starts = ids, starts

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> "RaggedRows":
        """Collect rows one by one, so that they never have to exist as lists at the same time."""
        return cls.from_pairs((row, ()) for row in rows)[0]

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> tuple["RaggedRows", "RaggedRows"]:
        """Collect both sides of pairs."""
        sides = [(array("i"), array("q", [0])) for _ in range(2)]
        for pair in pairs:
            for (ids, starts), row in zip(sides, pair, strict=True):
                ids.extend(row)
                starts.append(len(ids))
        first, second = (cls(as_tensor(ids), as_tensor(starts)) for ids, starts in sides)
        return first, second

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> torch.Tensor:
        """Number of ids of each row, (N,) int64."""
        return self.starts.diff()

    def row(self, number: int) -> list[int]:
        """Return the ids of one row."""
        return self.ids[self.starts[number] : self.starts[number + 1]].tolist()

    def padded(self, rows: torch.Tensor, width: int) -> torch.Tensor:
        """Return the rows at indices (B,), none longer than ``width``, as (B, width) int64 padded on the right."""
        starts = self.starts[rows]
        lengths = self.starts[rows + 1] - starts
        positions = torch.arange(width)
        is_inside = positions < lengths[:, None]
        if not len(self.ids):
            return torch.full(is_inside.shape, PAD_ID)
        ids = self.ids[(starts[:, None] + positions).clamp(max=len(self.ids) - 1)].long()
        return ids.masked_fill(~is_inside, PAD_ID)


def link(source: int, target: int) -> int:
    """Return a link between two positions, each below 2^15, as one number."""
    return source * _LINK_BASE + target


@dataclass(frozen=True)
class TestSets:
    """Test sets with names, and which pairs are of which.

    Attributes:
        of: index into ``names`` of each pair, -1 for none, (N,) int8.
    """

    __test__ = False  # not a class of tests, for pytest

    names: tuple[str, ...]
    of: torch.Tensor

    def __getitem__(self, rows: torch.Tensor) -> "TestSets":
        """Return the same test sets for the pairs at indices (K,) int64."""
        return TestSets(self.names, self.of[rows])


class PairTable:
    """Pairs of a source and an answer. All pairs with the same source are in the same split.

    Args:
        src, tgt: ids of the symbols of both sides, N rows each.
        keys: hash of each source, (N,) int64; see ``source_key``.
        split: index into ``SPLITS``, (N,) int8.
        sets: the test sets that have names; None if there are none.
        links: gold alignments, as links (see ``link``) between the tokens of both sides, N rows, those of pairs without
            one empty; None if no pair has one.
    """

    def __init__(
        self,
        src: RaggedRows,
        tgt: RaggedRows,
        keys: torch.Tensor,
        split: torch.Tensor,
        sets: TestSets | None = None,
        links: RaggedRows | None = None,
    ) -> None:
        self.src, self.tgt, self.keys, self.split, self.sets, self.links = src, tgt, keys, split, sets, links
        self.widths = tuple(int(side.lengths.max()) if len(side) else 0 for side in (src, tgt))
        self._by_key = keys.argsort(stable=True)
        self._sorted_keys = keys[self._by_key]

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, split: Split) -> torch.Tensor:
        """Return the row indices of a split, (K,) int64: all pairs of "train", one pair per source of the others.

        A held-out source with several answers is evaluated once; ``same_source`` finds its other answers.
        """
        inside = (self.split == SPLITS.index(split)).nonzero().squeeze(1)
        return inside if split == "train" else self._distinct(inside)

    def rows_by_set(self) -> dict[str, torch.Tensor]:
        """Return the row indices of each test set with a name, (K,) int64, one pair per source; {} if there is none."""
        if self.sets is None:
            return {}
        is_test = self.split == SPLITS.index("test")
        found = {name: (is_test & (self.sets.of == at)).nonzero().squeeze(1) for at, name in enumerate(self.sets.names)}
        return {name: self._distinct(rows) for name, rows in found.items() if len(rows)}

    def _distinct(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the first of the rows (K,) int64 of each source."""
        order = self.keys[rows].argsort(stable=True)
        keys = self.keys[rows][order]
        is_first = torch.ones(len(rows), dtype=torch.bool)
        is_first[1:] = keys[1:] != keys[:-1]
        return rows[order[is_first].sort().values]

    def alignment(self, row: int) -> list[list[int]]:
        """Return the source positions that each token of an answer is linked with; [] for those without a link."""
        sources: list[list[int]] = [[] for _ in self.tgt.row(row)]
        for number in self.links.row(row) if self.links else ():
            source, target = divmod(number, _LINK_BASE)
            sources[target].append(source)
        return sources

    def same_source(self, key: int) -> list[int]:
        """Return the row indices of the pairs whose source has a key, in the order of the table."""
        low, high = (
            int(torch.searchsorted(self._sorted_keys, torch.tensor(key), right=right)) for right in (False, True)
        )
        return self._by_key[low:high].tolist()


class TableRows:
    """Some rows of a table as a ``PairDataset``.

    Args:
        table: all pairs.
        rows: indices (K,) int64 of the chosen ones.
        device: of the batches.
        widths: symbols of the two sides of a batch; by default as many as the longest of the table has.
    """

    def __init__(
        self,
        table: PairTable,
        rows: torch.Tensor,
        *,
        device: torch.device | str = "cpu",
        widths: tuple[int, ...] | None = None,
    ) -> None:
        self.table, self.rows, self.device = table, rows, torch.device(device)
        self.widths = widths or table.widths

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: torch.Tensor) -> Batch:
        """Return the pairs at indices (B,) int64 of ``self.rows``, of the same widths in every call."""
        chosen = self.rows[rows.cpu()]
        src, tgt = (
            add_bos_eos(side.padded(chosen, width))
            for side, width in zip((self.table.src, self.table.tgt), self.widths, strict=True)
        )
        return Batch(src, tgt).to(self.device)

    def to(self, device: torch.device | str) -> "TableRows":
        """Return the same rows; batches will be on ``device``."""
        return TableRows(self.table, self.rows, device=device, widths=self.widths)

    def lengths(self) -> torch.Tensor:
        """Return the number of tokens of each source and answer, BOS and EOS included, (K, 2) int64."""
        return torch.stack([side.lengths[self.rows] + 2 for side in (self.table.src, self.table.tgt)], dim=1)


class PairTask(Task):
    """A task whose pairs are in a table; a source has one correct answer or several.

    A subclass provides ``table`` and the vocabularies.

    Args:
        tokenizers: of source and answer.
        lengths: tokens of the shortest and the longest source.
    """

    def __init__(
        self,
        *,
        src_vocab: Vocab,
        tgt_vocab: Vocab,
        tokenizers: tuple[Tokenizer, Tokenizer],
        lengths: tuple[int, int],
        examples: Sequence[str] = (),
    ) -> None:
        self.src_vocab, self.tgt_vocab, self.tokenizers = src_vocab, tgt_vocab, tokenizers
        self.min_length, self.max_length = lengths
        self.examples = tuple(examples)

    @property
    @abstractmethod
    def table(self) -> PairTable:
        """All pairs."""

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        return "sources uniform, each once"

    @property
    def lengths(self) -> range:
        """Lengths of the sources in the table; there is no data of other lengths."""
        return range(self.min_length, self.max_length + 1)

    @property
    def trained_lengths(self) -> range:
        """Lengths from the shortest to the longest training source; without the pairs, those of all sources."""
        return self._trained_lengths if self.has_pairs else super().trained_lengths

    @cached_property
    def _trained_lengths(self) -> range:
        lengths = self.table.src.lengths[self.table.rows("train")]
        return range(int(lengths.min()), int(lengths.max()) + 1) if len(lengths) else self.lengths

    def all_pairs(self, split: Split) -> TableRows:
        """Return all pairs of a split; see ``Task.all_pairs``."""
        return TableRows(self.table, self.table.rows(split))

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` pairs of a split, uniformly with replacement; see ``Task.sample``."""
        pairs = self.all_pairs(split).to(generator.device)
        return pairs[torch.randint(max(1, len(pairs)), (count,), generator=generator, device=generator.device)]

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw test pairs with sources of one length; see ``Task.sample_of_length``."""
        pairs = self.all_pairs("test")
        fitting = (self.table.src.lengths[pairs.rows] == length).nonzero().squeeze(1)
        order = torch.randperm(len(fitting), generator=generator, device=generator.device).cpu()
        return pairs.to(generator.device)[fitting[order[:count]]]

    def tokenize(self, text: str) -> list[str]:
        """Split typed text into tokens as the pairs were split; see ``Task.tokenize``."""
        check_input_length(text)
        symbols = self.tokenizers[0].tokenize(text)
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        return symbols

    def source_text(self, symbols: Sequence[str]) -> str:
        """Write the tokens of a source as text; UNK becomes U+FFFD, which is read as an unknown token again."""
        return self.tokenizers[0].detokenize([_UNKNOWN if token == UNK else token for token in symbols])

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return all answers to a source of the table; [] for other sources, and without pairs."""
        return [self.tgt_vocab.decode(self.table.tgt.row(row)) for row in self._rows_of(symbols)]

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the first answer to a source of the table; [] for other sources."""
        return next(iter(self.references(symbols)), [])

    def answer_text(self, tokens: Sequence[str]) -> str:
        """Write the tokens of an answer as text."""
        return self.tokenizers[1].detokenize(tokens)

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the alignment that the pairs give the first answer; see ``Task.gold_alignment``."""
        rows = self._rows_of(symbols)
        return self.table.alignment(rows[0]) if rows else []

    def produced_alignment(self, symbols: Sequence[str], produced: Sequence[str]) -> list[list[int]]:
        """Return the alignment of the answer that was produced, if the pairs give one; otherwise that of shared words.

        Shared words are aligned if the tokens are subwords; see ``shared_words``. Of other tokens, it is
        ``gold_alignment``.
        """
        for row in self._rows_of(symbols) if self.has_pairs and self.table.links else ():
            if self.tgt_vocab.decode(self.table.tgt.row(row)) == list(produced):
                return self.table.alignment(row)
        return self.gold_alignment(symbols) if self.subwords is None else shared_words(symbols, produced)

    def _rows_of(self, symbols: Sequence[str]) -> list[int]:
        """Return the rows of the table with a source; [] without pairs."""
        return self.table.same_source(source_key(self.tokenizers[0].detokenize(symbols))) if self.has_pairs else []

    def breakdown(self, count: int, *, generator: torch.Generator) -> Breakdown | None:
        """Draw pairs of each test set that has a name, ``count`` of all of them together; see ``Task.breakdown``."""
        if not self.has_pairs or not (sets := self.table.rows_by_set()):
            return None
        share = max(1, count // len(sets))
        chosen = {name: rows[torch.randperm(len(rows), generator=generator)[:share]] for name, rows in sets.items()}
        ends = torch.tensor([len(rows) for rows in chosen.values()]).cumsum(0).tolist()
        groups = {
            name: torch.arange(end - len(rows), end) for (name, rows), end in zip(chosen.items(), ends, strict=True)
        }
        everything = torch.cat(list(chosen.values()))
        pairs = TableRows(self.table, everything)[torch.arange(len(everything))]
        return Breakdown("test sets", "each by itself; sources uniform, each once", pairs, groups)

    def split_of(self, symbols: Sequence[str]) -> Split | None:
        """Return the split of a source of the table; None for other sources, and without pairs."""
        rows = self._rows_of(symbols)
        return SPLITS[self.table.split[rows[0]]] if rows else None

    def note(self, symbols: Sequence[str]) -> str:
        """Report a source without a reference answer, if there are pairs, or of another length than the training's."""
        is_unknown = self.has_pairs and not self.references(symbols)
        no_reference = "not among the pairs, so there is no reference answer" if is_unknown else ""
        return "; ".join(filter(None, [no_reference, super().note(symbols)]))


def source_key(source: str) -> int:
    """Return 64 bits of the BLAKE2 hash of a source as a signed integer, the same on every machine."""
    return int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "little", signed=True)


def split_by_source(keys: torch.Tensor, *, test: float, validation: float, seed: int) -> torch.Tensor:
    """Assign every source, with all its pairs, to one split.

    The sources are ordered by a hash of key and seed. The first are the test split, the next the validation split; each
    has at least one source if its share is above 0 and there are at least three sources.

    Args:
        keys: (N,) int64; see ``source_key``.
        test, validation: shares of the sources, 0-1.
        seed: another one gives another split.

    Returns:
        (N,) int8 indices into ``SPLITS``.
    """
    sources, source_of_pair = torch.unique(keys, return_inverse=True)
    order = _mix(sources, seed).argsort(stable=True)
    held_out = [max(round(share * len(sources)), int(share > 0 and len(sources) > 2)) for share in (test, validation)]
    split = torch.zeros(len(sources), dtype=torch.int8)
    split[order[: held_out[0]]] = SPLITS.index("test")
    split[order[held_out[0] : sum(held_out)]] = SPLITS.index("validation")
    return split[source_of_pair]


def hold_out(keys: torch.Tensor, is_test: torch.Tensor, *, validation: float) -> torch.Tensor:
    """Return the splits of sources whose test split is known, indices into ``SPLITS``, (N,) int8.

    Args:
        keys: (N,) int64; see ``source_key``.
        is_test: (N,) bool.
        validation: share of the other sources, 0-1.
    """
    split = torch.full((len(keys),), SPLITS.index("test"), dtype=torch.int8)
    split[~is_test] = split_by_source(keys[~is_test], test=0, validation=validation, seed=0)
    return split


def _mix(keys: torch.Tensor, seed: int) -> torch.Tensor:
    """Hash keys (N,) int64 to (N,) int64 with the finalizer of SplitMix64 (Steele et al. 2014)."""
    value = keys + (seed + 1) * _GOLDEN % 2**63
    for shift, multiplier in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB)):
        value = (value ^ (value >> shift)) * multiplier  # the overflow is part of the hash
    return value ^ (value >> 31)


def as_tensor(numbers: array) -> torch.Tensor:
    """Return a copy of an array as a tensor of the same type."""
    return torch.from_numpy(np.array(numbers, dtype=numbers.typecode))
