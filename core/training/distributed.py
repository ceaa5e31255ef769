"""Training in several processes, each of which computes its own rows of every batch (data-parallel).

All of them draw the same batches, add up what they computed of loss and gradients, and make the
same update. So they hold the same weights all along: those of one process that computes whole batches. ``torchrun``
starts them and tells each its place by environment variables.
"""

import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from core.config import Preset, preset_to_yaml
from core.storage.errors import InputError, LabError

TIMEOUT = timedelta(minutes=10)  # all wait for the first while it evaluates
_STEP_STRIDE = 1_000_003


class LostWorkerError(LabError):
    """Another process of the training has ended, or did not answer for long, so this one cannot go on."""


class ProcessGroup:
    """The processes that train one run together; as a rule there is but one.

    Attributes:
        rank: which of them this one is, from 0; the first alone evaluates, writes and speaks.
        world_size: how many there are.
        rows: those of every batch that this one computes. They are dealt out like cards, because a batch may be
            sorted by length.
    """

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.rows = slice(rank, None, world_size)
        self._asked = threading.Event()
        self._agreed = False

    def request_stop(self) -> None:
        """Have all of them stop after the same step, the present one or the next."""
        self._asked.set()

    def should_stop(self) -> bool:
        """Whether to stop now; after every step all of them say the same."""
        return self._asked.is_set() if self.world_size == 1 else self._agreed

    @contextmanager
    def rank_specific_rng(self, generator: torch.Generator, *, seed: int, step: int) -> Iterator[None]:
        """Draw other numbers than the others inside the block, such as dropout's, and behind it the same as they."""
        if self.world_size == 1:
            yield
            return
        shared = generator.get_state()
        generator.manual_seed((seed * _STEP_STRIDE + step) * self.world_size + self.rank)
        try:
            yield
        finally:
            generator.set_state(shared)

    def all_reduce(self, loss: float, gradients: list[torch.Tensor]) -> float:
        """Return the sum of everyone's losses, and replace the gradients, in place, by their sums.

        Raises:
            LostWorkerError: another one is gone; the gradients are as they were.
        """
        if self.world_size == 1:
            return loss
        numbers = gradients[0].new_tensor([loss, self._asked.is_set()])
        flat = torch.cat([numbers, *(each.flatten() for each in gradients)])
        _all_reduce(flat)
        numbers, *sums = flat.split([2, *(each.numel() for each in gradients)])
        for each, total in zip(gradients, sums, strict=True):
            each.copy_(total.view_as(each))
        loss, asked = numbers.tolist()
        self._agreed = asked > 0
        return loss


def is_distributed() -> bool:
    """Whether torchrun started this process along with others."""
    return _place("WORLD_SIZE") > 1


@contextmanager
def process_group(preset: Preset, device: str) -> Iterator[ProcessGroup]:
    """Join the processes that ``torchrun`` started along with this one, until the block ends; alone, do nothing.

    Args:
        preset: what they are to train.
        device: of each of them; on ``cuda`` each takes a GPU of its own.

    Raises:
        InputError: they cannot train this together.
        LostWorkerError: another one is gone.
    """
    if not is_distributed():
        yield ProcessGroup()
        return
    rank, world_size, local_rank = (_place(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if preset.training.batch_size < world_size:
        raise InputError(
            f"training.batch_size={preset.training.batch_size} must be at least the number of processes, {world_size}: "
            "each computes its own rows of every batch"
        )
    if device == "cuda":
        _take_gpu(local_rank)
    elif device != "cpu":
        raise InputError(f"--device={device} trains in one process; several need --device=cpu or cuda")
    try:
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=TIMEOUT)
    except ValueError as error:  # a variable is missing
        raise InputError(f"WORLD_SIZE={world_size}: {error}; start the processes with torchrun") from error
    try:
        _check_alike(preset, device)
        yield ProcessGroup(rank, world_size)
    finally:
        dist.destroy_process_group()


def _place(name: str) -> int:
    """Read a whole number that torchrun set; without torchrun 0."""
    value = os.environ.get(name, "0")
    if not value.isdecimal():
        raise InputError(f"{name}={value!r} must be a whole number, as torchrun sets it")
    return int(value)


def _take_gpu(local_rank: int) -> None:
    """Make ``cuda`` mean the GPU of this process: one for each on its machine."""
    gpus = torch.cuda.device_count()
    if local_rank >= gpus:
        raise InputError(f"--nproc-per-node must be at most {gpus}, the GPUs of this machine: each process takes one")
    torch.cuda.set_device(local_rank)


def _check_alike(preset: Preset, device: str) -> None:
    """Raise InputError unless all processes have the same preset."""
    own = zlib.crc32(preset_to_yaml(preset).encode())
    extremes = torch.tensor([own, -own], device=device)
    _all_reduce(extremes, dist.ReduceOp.MAX)
    if extremes.sum() != 0:  # the largest and the smallest differ
        raise InputError("the processes were started with different --preset, --seed or --set; give all the same")


def _all_reduce(tensor: torch.Tensor, how: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
    try:
        dist.all_reduce(tensor, how)
    except RuntimeError as error:  # torch has no narrower one for gloo
        raise LostWorkerError("another process of this training has ended or did not answer") from error
