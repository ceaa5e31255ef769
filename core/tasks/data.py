"""Data: the split of every sequence, pairs of one split, padding, and fixed sets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from core.tasks.task import Batch, Split, Task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

SHARES: dict[Split, float] = {"test": 0.1, "validation": 0.1, "train": 0.8}
OVERSAMPLING = 50  # draws per held-out input of one length: one in ten is held out, and short inputs repeat
_MAX_DRAWS = 20  # of ``count`` rows each, before a split counts as exhausted
_UNPADDED_PAIRS = 1_000  # at most, in a batch without PAD
_PRIME = 2**31 - 1
_MULTIPLIER = 48_271  # a primitive root modulo the prime: its powers look random (Park & Miller 1988)


# Splits. A stable hash of the tokens decides, so training can draw fresh sequences forever without storing the held-out
# ones, and a sequence is in the same split on every machine and in every run.


def split_mask(tokens: torch.Tensor, split: Split) -> torch.Tensor:
    """Return which sequences belong to a split.

    Args:
        tokens: (B, T) int64 ids. PAD is 0, so padding on the right does not change the hash.

    Returns:
        (B,) bool.
    """
    bucket = _hash(tokens) % 100
    if split == "test":
        return bucket < 10
    if split == "validation":
        return (bucket >= 10) & (bucket < 20)
    return bucket >= 20


def split_of(tokens: torch.Tensor) -> Split:
    """Return the split of a sequence (1, T) int64; see ``split_mask``."""
    return next(split for split in SHARES if split_mask(tokens, split).item())


def _hash(tokens: torch.Tensor) -> torch.Tensor:
    """Hash rows (B, T) int64 to (B,) int64 below 2**31 in exact integer arithmetic."""
    powers = [pow(_MULTIPLIER, position + 1, _PRIME) for position in range(tokens.shape[1])]
    value = (tokens * torch.tensor(powers, device=tokens.device)).sum(dim=1) % _PRIME
    # The sum is linear in the tokens; two multiply-and-shift rounds (the end of MurmurHash) break that.
    for multiplier, shift in ((0x2C1B3C6D, 12), (0x297A2D39, 15)):
        value = value ^ (value >> shift)
        value = (value * multiplier) & 0x7FFFFFFF
    return value ^ (value >> 15)


def draw_split(
    draw: Callable[[int], tuple[torch.Tensor, ...]], count: int, *, split: Split
) -> tuple[torch.Tensor, ...]:
    """Draw until ``count`` rows of a split have been found.

    Args:
        draw: draws about as many rows as its argument says. Its first tensor, (B, K) int64, decides the split: rows
            that must be in the same split have to be equal there. Further tensors hold the rest of each row.

    Returns:
        The same tensors, with ``count`` rows.
    """
    parts: list[tuple[torch.Tensor, ...]] = []
    missing = count
    while missing > 0:
        drawn = draw(int(missing / SHARES[split] * 1.1) + 16)
        inside = split_mask(drawn[0], split).nonzero().squeeze(1)[:missing]
        parts.append(tuple(tensor[inside] for tensor in drawn))
        missing -= len(inside)
    return tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))


def draw_numbers(size: tuple[int, int], *, largest: int, generator: torch.Generator) -> torch.Tensor:
    """Draw integers from 0 to ``largest``, (B, N) int64: the number of digits is uniform, then the number among those.

    Small numbers are therefore much more likely than in a uniform draw.
    """
    device, max_digits = generator.device, len(str(largest))
    digits = torch.randint(1, max_digits + 1, size, generator=generator, device=device)
    low = torch.where(digits == 1, 0, 10 ** (digits - 1))
    high = (10**digits).clamp(max=largest + 1)
    fraction = torch.rand(size, generator=generator, device=device, dtype=torch.float64)
    return low + (fraction * (high - low)).long()


# Duplicates


def sample_distinct(task: Task, count: int, *, split: Split, generator: torch.Generator) -> Batch:
    """Draw pairs without duplicates.

    There are few short sequences, so plain sampling would repeat them and give them too much weight.

    Returns:
        ``count`` pairs in the order drawn, or fewer if the split does not seem to hold as many.
    """
    latest: list[Batch] = []

    def draw(number: int) -> tuple[torch.Tensor, ...]:
        latest[:] = [task.sample(number, split=split, generator=generator)]
        return latest[0].src, latest[0].tgt

    src, tgt = draw_distinct(draw, count)
    return replace(latest[0], src=src, tgt=tgt)  # of the class that the task samples


def draw_distinct(draw: Callable[[int], tuple[torch.Tensor, ...]], count: int) -> tuple[torch.Tensor, ...]:
    """Draw until there are ``count`` distinct rows, or until many draws have not found as many.

    Args:
        draw: draws as many rows as its argument says, as tensors (B, …) int64 that together make up a row.

    Returns:
        The same tensors, at most ``count`` rows, in the order drawn.
    """
    drawn = draw(count)
    for _ in range(_MAX_DRAWS):
        rows = _first_occurrences(*drawn)
        if len(rows) >= count:
            break
        drawn = tuple(torch.cat([old[rows], new]) for old, new in zip(drawn, draw(count), strict=True))
    rows = _first_occurrences(*drawn)[:count]
    return tuple(tensor[rows] for tensor in drawn)


def first_distinct(pairs: Batch, count: int) -> Batch:
    """Return the first ``count`` distinct pairs, or as many as there are."""
    for candidates in (pairs[: 2 * count], pairs):  # the short prefix is nearly always enough, and much faster
        distinct = candidates[_first_occurrences(candidates.src, candidates.tgt)] if len(candidates) else candidates
        if len(distinct) >= count:
            break
    return distinct[:count]


def _first_occurrences(*tensors: torch.Tensor) -> torch.Tensor:
    """Return the sorted indices (K,) int64 of the first occurrence of each distinct row."""
    rows = torch.cat(tensors, dim=1)
    _, group = torch.unique(rows, dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1,), len(rows), device=rows.device)
    first.scatter_reduce_(0, group, torch.arange(len(rows), device=rows.device), reduce="amin")
    return first.sort().values


# Padding


def pad_rows(rows: Sequence[Sequence[int]], width: int, *, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return rows of at most ``width`` ids as a tensor (B, width) int64, padded on the right with PAD."""
    padded = [[*row, *[PAD_ID] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64, device=device).reshape(len(rows), width)


def add_bos_eos(symbols: torch.Tensor, *, has_eos: bool = True) -> torch.Tensor:
    """Put BOS before each row and EOS after its last symbol: (B, N) to (B, N + 2) int64, PAD after EOS."""
    lengths = (symbols != PAD_ID).sum(dim=1, keepdim=True)
    rows = torch.nn.functional.pad(symbols, (1, 1), value=PAD_ID)
    rows[:, 0] = BOS_ID
    return rows.scatter(1, lengths + 1, EOS_ID) if has_eos else rows


def left_align(rows: torch.Tensor) -> torch.Tensor:
    """Move the PAD of each row (B, N) int64 to its end; the other tokens keep their order."""
    return rows.gather(1, (rows == PAD_ID).long().argsort(dim=1, stable=True))


# --- fixed sets ---------------------------------------------------------------------------------------------------

DATA_SEED = 42  # the fixed sets of a task are the same for all runs, so that runs can be compared


def fixed_pairs(task: Task, count: int, *, split: Split, device: str = "cpu") -> Batch:
    """Return the first ``count`` distinct pairs of a split, the same for every run of a task on every device.

    There are fewer if the split holds fewer distinct pairs.
    """
    generator = torch.Generator().manual_seed(DATA_SEED)  # on the CPU: other devices draw other numbers
    if (pairs := task.all_pairs(split)) is not None:
        return pairs[torch.randperm(len(pairs), generator=generator)[:count]].to(device)
    return sample_distinct(task, count, split=split, generator=generator).to(device)


def training_sample(task: Task, count: int, *, training_sequences: int, device: str = "cpu") -> Batch:
    """Return ``count`` pairs of the training split, the same for every run of a task, to measure what was memorized.

    Args:
        training_sequences: size of the fixed training set, of which the sample is taken; 0 if every batch is drawn from
            the whole split.
    """
    return fixed_pairs(task, training_sequences or count, split="train", device=device)[:count]


def input_lengths(pairs: Batch) -> dict[int, int]:
    """Return the number of inputs by their number of tokens; there are few distinct short ones, which run out."""
    lengths, counts = ((pairs.src != PAD_ID).sum(dim=1) - 2).unique(return_counts=True)  # without BOS and EOS
    return dict(zip(lengths.tolist(), counts.tolist(), strict=True))


def unpadded_batches(pairs: Batch) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Group pairs by source length into batches whose sources have no PAD.

    Yields:
        The indices (N,) int64 of a batch's pairs in ``pairs``, and the batch of at most 1,000 pairs.
    """
    lengths = (pairs.src != PAD_ID).sum(dim=1)
    for length in lengths.unique().tolist():
        for indices in (lengths == length).nonzero().squeeze(1).split(_UNPADDED_PAIRS):
            yield indices, replace(pairs, src=pairs.src[indices, :length], tgt=pairs.tgt[indices])
