"""Where pairs come from: fixed sets of a split, the same for every run of a task, and batches to train on."""

import torch

from core.tasks.splits import Split
from core.tasks.task import Batch, ManyPairs, Task, sample_distinct

DATA_SEED = 42  # one training, validation and test set of a task for all runs, so that runs can be compared
_EPOCH_STRIDE = 1_000_003
POOL_BATCHES = 16  # fresh batches of like lengths are drawn so many at once, and dealt out by length


def fixed_pairs(task: Task, count: int, *, split: Split, device: str = "cpu") -> Batch:
    """Return the first ``count`` distinct pairs of a split, the same for every run of a task, on whatever device.

    There are fewer where the split holds fewer different sequences.
    """
    generator = torch.Generator().manual_seed(DATA_SEED)  # on the CPU: every kind of device draws other numbers
    if (pairs := task.all_pairs(split)) is not None:
        return pairs[torch.randperm(len(pairs), generator=generator)[:count]].to(device)
    return sample_distinct(task, count, split=split, generator=generator).to(device)


class FreshBatches:
    """Batches of sequences drawn for one update each."""

    def __init__(self, task: Task, batch_size: int) -> None:
        self.task, self.batch_size = task, batch_size

    def at(self, number: int, generator: torch.Generator) -> Batch:
        """Return a batch, counted from 1, drawn from the generator."""
        return self.task.sample(self.batch_size, split="train", generator=generator)


class FreshByLength:
    """Batches of fresh sequences of like lengths, without the PAD that they share.

    Sequences for many batches are drawn at once, dealt out by length, and the batches taken in random order. All of
    them are taken, so no length is learned from more than another. What is drawn depends on the seed and the number of
    the batch only, so a resumed run goes on where it was.
    """

    def __init__(self, task: Task, batch_size: int, *, seed: int, device: torch.device | str = "cpu") -> None:
        self.task, self.batch_size, self.seed, self.device = task, batch_size, seed, device
        self._pool: tuple[int, list[Batch]] = (-1, [])

    def at(self, number: int, generator: torch.Generator) -> Batch:
        """Return a batch, counted from 1; the generator stays as it is."""
        pool, place = divmod(number - 1, POOL_BATCHES)
        if self._pool[0] != pool:
            self._pool = (pool, self._drawn(torch.Generator().manual_seed(self.seed * _EPOCH_STRIDE + pool)))
        return self._pool[1][place]

    def _drawn(self, generator: torch.Generator) -> list[Batch]:
        pairs = self.task.sample(POOL_BATCHES * self.batch_size, split="train", generator=generator)
        slices = _by_length(pairs.lengths()).split(self.batch_size)
        order = torch.randperm(POOL_BATCHES, generator=generator)
        return [pairs[slices[place]].trimmed().to(self.device) for place in order]


class Epochs:
    """Batches of a fixed set, which is gone through again and again, every time in another order.

    The order of an epoch depends on the seed and the epoch's number only, so a resumed run goes on where it was.

    Args:
        pairs: the set, as a batch or as something that makes batches of its rows.
        seed: of the orders.
        group_by_length: put sequences of like lengths into a batch, and trim the PAD that they share.
    """

    def __init__(self, pairs: Batch | ManyPairs, batch_size: int, *, seed: int, group_by_length: bool = False) -> None:
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed
        self.device = pairs.device
        self.lengths = pairs.lengths().cpu() if group_by_length else None
        self._orders: dict[int, torch.Tensor] = {}

    def at(self, number: int, generator: torch.Generator) -> Batch:
        """Return a batch, counted from 1; where an epoch ends inside it, the next one begins."""
        first = (number - 1) * self.batch_size
        rows, left = [], self.batch_size
        while left:
            epoch, place = divmod(first, len(self.pairs))
            rows.append(self._order(epoch)[place : place + left])
            left -= len(rows[-1])
            first += len(rows[-1])
        batch = self.pairs[torch.cat(rows)]
        return batch if self.lengths is None else batch.trimmed()

    def _order(self, epoch: int) -> torch.Tensor:
        """Return the rows in the order of an epoch, (N,) int64; the last two orders are remembered."""
        if epoch not in self._orders:
            generator = torch.Generator().manual_seed(self.seed * _EPOCH_STRIDE + epoch)
            order = torch.randperm(len(self.pairs), generator=generator)
            if self.lengths is not None:
                order = self._grouped(order, epoch, generator)
            order = order.to(self.device)
            self._orders = {known: rows for known, rows in self._orders.items() if known == epoch - 1} | {epoch: order}
        return self._orders[epoch]

    def _grouped(self, order: torch.Tensor, epoch: int, generator: torch.Generator) -> torch.Tensor:
        """Sort a random order (N,) by length within the batches that lie inside the epoch, and shuffle those batches.

        Rows of one length stay in random order. What an epoch shares a batch with its neighbours for stays as it is.
        """
        first = min(-epoch * len(order) % self.batch_size, len(order))  # rows that complete the batch before
        last = first + (len(order) - first) // self.batch_size * self.batch_size
        inside = order[first:last]
        batches = inside[_by_length(self.lengths[inside])].view(-1, self.batch_size)
        shuffled = batches[torch.randperm(len(batches), generator=generator)].flatten()
        return torch.cat([order[:first], shuffled, order[last:]])


Batches = FreshBatches | FreshByLength | Epochs


def _by_length(lengths: torch.Tensor) -> torch.Tensor:
    """Return places in order of the source's length and, where that is alike, of the answer's, (N,) int64.

    In the order of both together a batch would have short sources with long answers and the reverse: more padding.

    Args:
        lengths: (N, 2) int64, of sources and answers.
    """
    source, answer = lengths.unbind(dim=1)
    by_answer = answer.argsort(stable=True)
    return by_answer[source[by_answer].argsort(stable=True)]


def training_batches(
    task: Task,
    *,
    sequences: int,
    batch_size: int,
    seed: int,
    group_by_length: bool = False,
    device: str = "cpu",
) -> Batches:
    """Return what a run trains on.

    Args:
        sequences: size of the fixed set; 0 draws fresh sequences for every batch or, where the task is a list of pairs,
            takes all of them.
        seed: of the order in which a fixed set is gone through, and of fresh batches of like lengths.
        group_by_length: make batches of sequences of like lengths.
    """
    if sequences:
        pairs = fixed_pairs(task, sequences, split="train", device=device)
        return Epochs(pairs, batch_size, seed=seed, group_by_length=group_by_length)
    if (everything := task.all_pairs("train")) is not None:
        return Epochs(everything.to(device), batch_size, seed=seed, group_by_length=group_by_length)
    if group_by_length:
        return FreshByLength(task, batch_size, seed=seed, device=device)
    return FreshBatches(task, batch_size)
