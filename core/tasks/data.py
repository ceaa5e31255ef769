"""Datasets of a run: fixed sets of a split, the same for every run of a task, and the batches it trains on."""

from collections.abc import Iterator

import torch

from core.tasks.drawing import sample_distinct
from core.tasks.task import Batch, PairDataset, Split, Task
from core.text.vocab import PAD_ID

DATA_SEED = 42  # the fixed sets of a task are the same for all runs, so that runs can be compared
POOL_BATCHES = 16  # batches drawn together and then grouped by length
_EPOCH_STRIDE = 1_000_003


def fixed_pairs(task: Task, count: int, *, split: Split, device: str = "cpu") -> Batch:
    """Return the first ``count`` distinct pairs of a split, the same for every run of a task on every device.

    There are fewer if the split holds fewer distinct pairs.
    """
    generator = torch.Generator().manual_seed(DATA_SEED)  # on the CPU: other devices draw other numbers
    if (pairs := task.all_pairs(split)) is not None:
        return pairs[torch.randperm(len(pairs), generator=generator)[:count]].to(device)
    return sample_distinct(task, count, split=split, generator=generator).to(device)


def unpadded_batches(pairs: Batch, *, batch_size: int = 1_000) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Group pairs by source length into batches whose sources have no PAD.

    Yields:
        The indices (N,) int64 of a batch's pairs in ``pairs``, and the batch of at most ``batch_size`` pairs.
    """
    lengths = (pairs.src != PAD_ID).sum(dim=1)
    for length in lengths.unique().tolist():
        for indices in (lengths == length).nonzero().squeeze(1).split(batch_size):
            yield indices, Batch(pairs.src[indices, :length], pairs.tgt[indices])


class FreshBatches:
    """Batches of newly drawn sequences, each used for one update."""

    def __init__(self, task: Task, batch_size: int) -> None:
        self.task, self.batch_size = task, batch_size

    def at(self, number: int, generator: torch.Generator) -> Batch:
        """Return batch ``number``, counted from 1, drawn from the generator."""
        return self.task.sample(self.batch_size, split="train", generator=generator)


class FreshByLength:
    """Batches of newly drawn sequences of similar lengths, without shared padding.

    Sequences for ``POOL_BATCHES`` batches are drawn together, sorted by length and cut into batches, which are used in
    random order. Every drawn sequence is used, so no length is trained on more than others. A batch depends only on the
    seed and its number, so a resumed run continues with the same batches.
    """

    def __init__(self, task: Task, batch_size: int, *, seed: int, device: torch.device | str = "cpu") -> None:
        self.task, self.batch_size, self.seed, self.device = task, batch_size, seed, device
        self._pool: tuple[int, list[Batch]] = (-1, [])

    def at(self, number: int, generator: torch.Generator) -> Batch:
        """Return batch ``number``, counted from 1; the generator is not used."""
        pool, index = divmod(number - 1, POOL_BATCHES)
        if self._pool[0] != pool:
            self._pool = (pool, self._draw_pool(torch.Generator().manual_seed(self.seed * _EPOCH_STRIDE + pool)))
        return self._pool[1][index]

    def _draw_pool(self, generator: torch.Generator) -> list[Batch]:
        pairs = self.task.sample(POOL_BATCHES * self.batch_size, split="train", generator=generator)
        slices = _length_order(pairs.lengths()).split(self.batch_size)
        order = torch.randperm(POOL_BATCHES, generator=generator).tolist()
        return [pairs[slices[index]].trimmed().to(self.device) for index in order]


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


Batches = FreshBatches | FreshByLength | Epochs


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
    device: str = "cpu",
) -> Batches:
    """Return the training batches of a run.

    Args:
        sequences: size of a fixed training set; 0 draws fresh sequences for every batch or, if the task is a finite
            list of pairs, uses all of them.
        seed: of the order of a fixed set, and of fresh batches grouped by length.
        group_by_length: batch sequences of similar lengths.
    """
    if sequences:
        pairs = fixed_pairs(task, sequences, split="train", device=device)
        return Epochs(pairs, batch_size, seed=seed, group_by_length=group_by_length)
    if (all_pairs := task.all_pairs("train")) is not None:
        return Epochs(all_pairs.to(device), batch_size, seed=seed, group_by_length=group_by_length)
    if group_by_length:
        return FreshByLength(task, batch_size, seed=seed, device=device)
    return FreshBatches(task, batch_size)
