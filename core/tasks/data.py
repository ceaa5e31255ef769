"""Where pairs come from: fixed sets of a split, the same for every run of a task, and batches to train on."""

import torch

from core.tasks.splits import Split
from core.tasks.task import Batch, Task, sample_distinct

DATA_SEED = 42  # one training, validation and test set of a task for all runs, so that runs can be compared
_EPOCH_STRIDE = 1_000_003


def fixed_pairs(task: Task, count: int, *, split: Split, device: str = "cpu") -> Batch:
    """Return the first ``count`` distinct pairs of a split, the same for every run of a task.

    There are fewer where the split holds fewer different sequences.
    """
    return sample_distinct(task, count, split=split, generator=torch.Generator(device).manual_seed(DATA_SEED))


class FreshBatches:
    """Batches of sequences drawn for one update each."""

    def __init__(self, task: Task, batch_size: int) -> None:
        self.task, self.batch_size = task, batch_size

    def at(self, step: int, generator: torch.Generator) -> Batch:
        """Return the batch of an update, counted from 1, drawn from the generator."""
        return self.task.sample(self.batch_size, split="train", generator=generator)


class Epochs:
    """Batches of a fixed set, which is gone through again and again, every time in another order.

    The order of an epoch depends on the seed and the epoch's number only, so a resumed run goes on where it was.

    Args:
        pairs: the set.
        seed: of the orders.
    """

    def __init__(self, pairs: Batch, batch_size: int, *, seed: int) -> None:
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed
        self._orders: dict[int, torch.Tensor] = {}

    def at(self, step: int, generator: torch.Generator) -> Batch:
        """Return the batch of an update, counted from 1; where an epoch ends inside it, the next one begins."""
        first = (step - 1) * self.batch_size
        rows, left = [], self.batch_size
        while left:
            epoch, place = divmod(first, len(self.pairs))
            rows.append(self._order(epoch)[place : place + left])
            left -= len(rows[-1])
            first += len(rows[-1])
        return self.pairs[torch.cat(rows)]

    def _order(self, epoch: int) -> torch.Tensor:
        """Return the rows in the order of an epoch, (N,) int64; the last two orders are remembered."""
        if epoch not in self._orders:
            generator = torch.Generator().manual_seed(self.seed * _EPOCH_STRIDE + epoch)
            order = torch.randperm(len(self.pairs), generator=generator).to(self.pairs.src.device)
            self._orders = {known: rows for known, rows in self._orders.items() if known == epoch - 1} | {epoch: order}
        return self._orders[epoch]


def training_batches(
    task: Task, *, sequences: int, batch_size: int, seed: int, device: str = "cpu"
) -> FreshBatches | Epochs:
    """Return what a run trains on.

    Args:
        sequences: size of the fixed set; 0 draws fresh sequences for every batch.
        seed: of the order in which a fixed set is gone through.
    """
    if not sequences:
        return FreshBatches(task, batch_size)
    return Epochs(fixed_pairs(task, sequences, split="train", device=device), batch_size, seed=seed)
