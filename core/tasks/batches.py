"""The batches that a run trains on: fresh sequences or epochs of a fixed set, by a number of sequences or of tokens."""

from abc import ABC, abstractmethod
from dataclasses import replace

import torch

from core.config import ConfigError
from core.tasks.data import fixed_pairs
from core.tasks.task import Batch, PairDataset, Task

POOL_BATCHES = 16  # batches drawn together and then grouped by length
CURRICULUM_START = 0.1  # share of the drawn sequences, the shortest, that a curriculum begins with
_EPOCH_STRIDE = 1_000_003


class FreshBatches:
    """Batches of newly drawn sequences, each used for one update."""

    def __init__(self, task: Task, batch_size: int) -> None:
        self.task, self.batch_size = task, batch_size

    def at(self, number: int, generator: torch.Generator) -> Batch:
        """Return batch ``number``, counted from 1, drawn from the generator."""
        return self.task.sample(self.batch_size, split="train", generator=generator)


class _FreshPools(ABC):
    """Batches of newly drawn sequences of similar lengths, without shared padding, drawn for several batches together.

    A batch depends only on the seed and its number, so a resumed run continues with the same batches.

    Args:
        task: draws the sequences.
        size: of a batch, in the unit of the subclass.
        seed: of the sequences and of the order of the batches.
        device: that the batches are moved to.
    """

    def __init__(self, task: Task, size: int, *, seed: int, device: torch.device | str = "cpu") -> None:
        self.task, self.size, self.seed, self.device = task, size, seed, device
        self._pool: tuple[int, list[Batch]] = (-1, [])

    def at(self, number: int, generator: torch.Generator) -> Batch:
        """Return batch ``number``, counted from 1; the generator is not used."""
        pool, index = divmod(number - 1, POOL_BATCHES)
        if self._pool[0] != pool:
            self._pool = (pool, self._draw_pool(pool, torch.Generator().manual_seed(self.seed * _EPOCH_STRIDE + pool)))
        return self._pool[1][index]

    @abstractmethod
    def _draw_pool(self, pool: int, generator: torch.Generator) -> list[Batch]:
        """Return the ``POOL_BATCHES`` batches of a pool, counted from 0, in the order in which they are used."""


class FreshByLength(_FreshPools):
    """Fresh batches of ``size`` sequences.

    Sequences for ``POOL_BATCHES`` batches are drawn together, sorted by length and cut into batches, which are used in
    random order. Every drawn sequence is used, so no length is trained on more than others, unless there is a
    curriculum: the first batches then consist of the shortest sequences of more that are drawn (Platanios et al. 2019,
    "Competence-based Curriculum Learning for Neural Machine Translation", with a linear competence).

    Args:
        curriculum: the number of batches over which the share of the drawn sequences that is used grows linearly from
            ``CURRICULUM_START`` to all.
    """

    def __init__(
        self, task: Task, size: int, *, seed: int, device: torch.device | str = "cpu", curriculum: int = 0
    ) -> None:
        super().__init__(task, size, seed=seed, device=device)
        self.curriculum = curriculum

    def _draw_pool(self, pool: int, generator: torch.Generator) -> list[Batch]:
        progress = min(1.0, pool * POOL_BATCHES / self.curriculum) if self.curriculum else 1.0
        used, share = POOL_BATCHES * self.size, CURRICULUM_START + progress * (1 - CURRICULUM_START)
        pairs = self.task.sample(round(used / share), split="train", generator=generator)
        slices = _length_order(pairs.lengths())[:used].split(self.size)
        order = torch.randperm(POOL_BATCHES, generator=generator).tolist()
        return [pairs[slices[index]].trimmed().to(self.device) for index in order]


class FreshByTokens(_FreshPools):
    """Fresh batches, each with as many sequences as a budget of ``size`` tokens a side holds, PAD included.

    Sequences are drawn until they fill ``POOL_BATCHES`` batches, sorted by length and cut by ``split_by_tokens``. Of
    the batches, ``POOL_BATCHES`` are used, in random order, so every drawn sequence is equally likely to be used.
    """

    def _draw_pool(self, pool: int, generator: torch.Generator) -> list[Batch]:
        parts: list[Batch] = []
        batches: list[torch.Tensor] = []
        while len(batches) < POOL_BATCHES:
            count = POOL_BATCHES if not parts else sum(map(len, parts))  # twice as many each time
            parts.append(self.task.sample(count, split="train", generator=generator))
            lengths = torch.cat([part.lengths() for part in parts])
            order = _length_order(lengths)
            batches = list(order.split(split_by_tokens(lengths[order], self.size)))
        src, tgt = (torch.cat([getattr(part, side) for part in parts]) for side in ("src", "tgt"))
        pairs = replace(parts[0], src=src, tgt=tgt)  # of the class that the task samples
        chosen = torch.randperm(len(batches), generator=generator)[:POOL_BATCHES].tolist()
        return [pairs[batches[index]].trimmed().to(self.device) for index in chosen]


class Epochs:
    """Batches of a fixed set, reshuffled every epoch.

    The order of an epoch depends only on the seed and the number of the epoch, so a resumed run continues with the same
    batches.

    Args:
        pairs: the fixed set.
        seed: of the orders.
        group_by_length: batch sequences of similar lengths, and trim shared padding.
    """

    def __init__(
        self, pairs: Batch | PairDataset, batch_size: int, *, seed: int, group_by_length: bool = False
    ) -> None:
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed
        self.device = pairs.device
        self.lengths = pairs.lengths().cpu() if group_by_length else None
        self._orders: dict[int, torch.Tensor] = {}

    def at(self, number: int, generator: torch.Generator | None = None) -> Batch:
        """Return batch ``number``, counted from 1; a batch at the end of an epoch is filled up from the next one."""
        first = (number - 1) * self.batch_size
        rows, missing = [], self.batch_size
        while missing:
            epoch, index = divmod(first, len(self.pairs))
            rows.append(self._order(epoch)[index : index + missing])
            missing -= len(rows[-1])
            first += len(rows[-1])
        batch = self.pairs[torch.cat(rows)]
        return batch if self.lengths is None else batch.trimmed()

    def _order(self, epoch: int) -> torch.Tensor:
        """Return the row indices in the order of an epoch, (N,) int64; the last two orders are cached."""
        if epoch not in self._orders:
            generator = torch.Generator().manual_seed(self.seed * _EPOCH_STRIDE + epoch)
            order = torch.randperm(len(self.pairs), generator=generator)
            if self.lengths is not None:
                order = self._group_by_length(order, self.lengths, epoch, generator)
            order = order.to(self.device)
            self._orders = {known: rows for known, rows in self._orders.items() if known == epoch - 1} | {epoch: order}
        return self._orders[epoch]

    def _group_by_length(
        self, order: torch.Tensor, lengths: torch.Tensor, epoch: int, generator: torch.Generator
    ) -> torch.Tensor:
        """Sort a random order (N,) by length within the batches that lie inside the epoch, and shuffle those batches.

        Rows of the same length stay in random order. Rows of batches shared with the neighboring epochs are not moved.
        """
        first = min(-epoch * len(order) % self.batch_size, len(order))  # rows that complete the previous epoch's batch
        last = first + (len(order) - first) // self.batch_size * self.batch_size
        inside = order[first:last]
        batches = inside[_length_order(lengths[inside])].view(-1, self.batch_size)
        shuffled = batches[torch.randperm(len(batches), generator=generator)].flatten()
        return torch.cat([order[:first], shuffled, order[last:]])


class EpochsByTokens:
    """Batches of a fixed set, reshuffled every epoch, each with as many sequences as a token budget holds.

    Every epoch sorts the set by length, with sequences of equal lengths in another random order, and cuts it by
    ``split_by_tokens``. So all epochs have as many batches, ``num_batches``; they are used in random order. A batch
    depends only on the seed and its number, so a resumed run continues with the same batches.

    Args:
        pairs: the fixed set.
        tokens: the budget of each side of a batch, PAD included.
        seed: of the orders.
    """

    def __init__(self, pairs: Batch | PairDataset, tokens: int, *, seed: int) -> None:
        self.pairs, self.seed, self.device = pairs, seed, pairs.device
        self.lengths = pairs.lengths().cpu()
        self._sizes = split_by_tokens(self.lengths[_length_order(self.lengths)], tokens)
        self.num_batches = len(self._sizes)
        self._epoch: tuple[int, list[torch.Tensor]] = (-1, [])

    def at(self, number: int, generator: torch.Generator | None = None) -> Batch:
        """Return batch ``number``, counted from 1; the generator is not used."""
        epoch, index = divmod(number - 1, self.num_batches)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._shuffled(epoch))
        return self.pairs[self._epoch[1][index].to(self.device)].trimmed()

    def _shuffled(self, epoch: int) -> list[torch.Tensor]:
        """Return the row indices of each batch of an epoch, (B,) int64."""
        generator = torch.Generator().manual_seed(self.seed * _EPOCH_STRIDE + epoch)
        order = torch.randperm(len(self.pairs), generator=generator)
        batches = order[_length_order(self.lengths[order])].split(self._sizes)
        return [batches[index] for index in torch.randperm(self.num_batches, generator=generator).tolist()]


def split_by_tokens(lengths: torch.Tensor, tokens: int) -> list[int]:
    """Cut a list of pairs into batches, each with as many consecutive pairs as a token budget holds.

    A batch of B pairs, padded to S source and T target tokens, has B · max(S, T) ≤ ``tokens``.

    Args:
        lengths: (N, 2) int64, of sources and targets, BOS and EOS included.
        tokens: the budget of each side of a batch, PAD included.

    Returns:
        The number of pairs in each batch.

    Raises:
        ConfigError: a single sequence is longer than the budget.
    """
    sizes: list[int] = []
    size = width = 0
    for longer in lengths.amax(dim=1).tolist():
        if longer > tokens:
            field = "training.tokens_per_batch"
            raise ConfigError([(field, f"{field}={tokens} must be at least {longer}, the length of a sequence")])
        width = max(width, longer)
        if (size + 1) * width > tokens:
            sizes.append(size)
            size, width = 0, longer
        size += 1
    return [*sizes, size] if size else sizes


Batches = FreshBatches | FreshByLength | FreshByTokens | Epochs | EpochsByTokens


def _length_order(lengths: torch.Tensor) -> torch.Tensor:
    """Return row indices sorted by the length of the source and then by that of the target, (N,) int64.

    Sorting by the sum would put short sources with long targets beside the reverse, which needs more padding.

    Args:
        lengths: (N, 2) int64, of sources and targets.
    """
    source, target = lengths.unbind(dim=1)
    by_target = target.argsort(stable=True)
    return by_target[source[by_target].argsort(stable=True)]


def training_batches(
    task: Task,
    *,
    sequences: int,
    batch_size: int,
    seed: int,
    group_by_length: bool = False,
    tokens_per_batch: int = 0,
    curriculum: int = 0,
    device: str = "cpu",
) -> Batches:
    """Return the training batches of a run.

    Args:
        sequences: size of a fixed training set; 0 draws fresh sequences for every batch or, if the task is a finite
            list of pairs, uses all of them.
        seed: of the order of a fixed set, and of fresh batches grouped by length.
        group_by_length: batch sequences of similar lengths.
        tokens_per_batch: the token budget of batches grouped by length, which replaces ``batch_size``; 0 is none.
        curriculum: the number of batches with which fresh sequences grow from short ones to all; 0 is none.

    Raises:
        ConfigError: a curriculum of a finite list of pairs.
    """
    fixed = fixed_pairs(task, sequences, split="train") if sequences else task.all_pairs("train")
    if fixed is not None and curriculum:
        field = "training.curriculum_steps"
        raise ConfigError([(field, f"{field} must be 0: this task has a finite list of training pairs")])
    if fixed is not None and tokens_per_batch:
        return EpochsByTokens(fixed.to(device), tokens_per_batch, seed=seed)
    if fixed is not None:
        return Epochs(fixed.to(device), batch_size, seed=seed, group_by_length=group_by_length)
    if tokens_per_batch:
        return FreshByTokens(task, tokens_per_batch, seed=seed, device=device)
    if group_by_length:
        return FreshByLength(task, batch_size, seed=seed, device=device, curriculum=curriculum)
    return FreshBatches(task, batch_size)
