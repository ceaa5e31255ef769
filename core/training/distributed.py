"""Data-parallel training in several processes started by ``torchrun``.

Every process draws the same batches and computes its own rows of each. Losses and gradients are summed over all
processes before each update, so all processes have the same weights as one process that computes whole batches.
``torch.nn.parallel.DistributedDataParallel`` averages per process instead, which differs if rows have different numbers
of tokens.
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

TIMEOUT = timedelta(minutes=10)  # the other ranks wait while rank 0 evaluates
_STEP_STRIDE = 1_000_003


class LostWorkerError(LabError):
    """Another process of this training has ended or did not answer, so this one cannot continue."""


class ProcessGroup:
    """The processes that train one run together. The default is a single process.

    Attributes:
        rank: number of this process, from 0. Rank 0 alone evaluates, prints and writes files.
        world_size: number of processes.
        rows: rows of every batch that this rank computes: every ``world_size``-th, because a batch may be sorted by
            length.
    """

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.rows = slice(rank, None, world_size)
        self._stop_requested = threading.Event()
        self._stop_agreed = False

    def request_stop(self) -> None:
        """Ask all processes to stop after the same step, the current or the next one."""
        self._stop_requested.set()

    def should_stop(self) -> bool:
        """Whether to stop now. After a step every rank returns the same."""
        return self._stop_requested.is_set() if self.world_size == 1 else self._stop_agreed

    @contextmanager
    def rank_specific_rng(self, generator: torch.Generator, *, seed: int, step: int) -> Iterator[None]:
        """Use a rank-specific random stream inside the block, for dropout; restore the shared one at its end."""
        if self.world_size == 1:
            yield
            return
        shared = generator.get_state()
        generator.manual_seed((seed * _STEP_STRIDE + step) * self.world_size + self.rank)
        try:
            yield
        finally:
            generator.set_state(shared)

    def any_of(self, flag: bool, *, device: torch.device) -> bool:
        """Return whether the flag of any rank is set, the same on every rank.

        Raises:
            LostWorkerError: another process is gone.
        """
        if self.world_size == 1:
            return flag
        total = torch.tensor([float(flag)], device=device)
        _all_reduce(total)
        return total.item() > 0

    def all_reduce(self, loss: float, gradients: list[torch.Tensor]) -> float:
        """Return the sum of all ranks' losses and replace the gradients, in place, by their sums over all ranks.

        The ranks also agree here on whether to stop; see ``should_stop``.

        Raises:
            LostWorkerError: another process is gone; the gradients are unchanged.
        """
        if self.world_size == 1:
            return loss
        scalars = gradients[0].new_tensor([loss, self._stop_requested.is_set()])
        flat = torch.cat([scalars, *(gradient.flatten() for gradient in gradients)])
        _all_reduce(flat)
        scalars, *sums = flat.split([2, *(gradient.numel() for gradient in gradients)])
        for gradient, total in zip(gradients, sums, strict=True):
            gradient.copy_(total.view_as(gradient))
        loss, stop_requests = scalars.tolist()
        self._stop_agreed = stop_requests > 0
        return loss


def is_distributed() -> bool:
    """Whether torchrun started this process as one of several."""
    return _read_env_int("WORLD_SIZE") > 1


@contextmanager
def process_group(preset: Preset, device: str) -> Iterator[ProcessGroup]:
    """Join the process group that ``torchrun`` describes until the block ends; without torchrun, a group of one.

    Args:
        preset: the preset to train; must be the same in all processes.
        device: "cpu" or "cuda"; with "cuda" every process uses its own GPU.

    Raises:
        InputError: torchrun's environment variables, the device or the presets do not allow it.
        LostWorkerError: another process is gone.
    """
    if not is_distributed():
        yield ProcessGroup()
        return
    rank, world_size, local_rank = (_read_env_int(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    _check_batches(preset, world_size)
    if device == "cuda":
        _select_gpu(local_rank)
    elif device != "cpu":
        raise InputError(f"--device={device} trains in one process; several need --device=cpu or cuda")
    try:
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=TIMEOUT)
    except ValueError as error:  # an environment variable is missing
        raise InputError(f"WORLD_SIZE={world_size}: {error}; start the processes with torchrun") from error
    try:
        _check_same_preset(preset, device)
        yield ProcessGroup(rank, world_size)
    finally:
        dist.destroy_process_group()


def _check_batches(preset: Preset, world_size: int) -> None:
    """Raise InputError unless batches are large enough to divide them between the processes."""
    tokens, least = preset.training.tokens_per_batch, world_size * preset.longest_sequence
    if tokens and tokens < least:
        raise InputError(
            f"training.tokens_per_batch={tokens} must be at least {least}, one of the longest sequences, "
            f"{preset.longest_sequence} tokens, for each of {world_size} processes: each computes its own rows of "
            "every batch"
        )
    if not tokens and preset.training.batch_size < world_size:
        raise InputError(
            f"training.batch_size={preset.training.batch_size} must be at least the number of processes, {world_size}: "
            "each computes its own rows of every batch"
        )


def _read_env_int(name: str) -> int:
    """Read a non-negative integer that torchrun sets; 0 where it is not set."""
    value = os.environ.get(name, "0")
    if not value.isdecimal():
        raise InputError(f"{name}={value!r} must be a whole number, as torchrun sets it")
    return int(value)


def _select_gpu(local_rank: int) -> None:
    """Make ``cuda`` mean the GPU of this process."""
    gpus = torch.cuda.device_count()
    if local_rank >= gpus:
        raise InputError(f"--nproc-per-node must be at most {gpus}, the GPUs of this machine: each process takes one")
    torch.cuda.set_device(local_rank)


def _check_same_preset(preset: Preset, device: str) -> None:
    """Raise InputError unless all processes have the same preset."""
    checksum = zlib.crc32(preset_to_yaml(preset).encode())
    extremes = torch.tensor([checksum, -checksum], device=device)
    _all_reduce(extremes, dist.ReduceOp.MAX)
    if extremes.sum() != 0:  # the largest and the smallest checksum differ
        raise InputError("the processes were started with different --preset, --seed or --set; pass the same to all")


def _all_reduce(tensor: torch.Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
    try:
        dist.all_reduce(tensor, op)
    except RuntimeError as error:  # gloo raises nothing more specific
        raise LostWorkerError("another process of this training has ended or did not answer") from error
