"""What tasks need to draw data: one split of it, framed by BOS and EOS."""

from collections.abc import Callable, Sequence

import torch

from core.tasks.splits import SHARES, Split, split_mask
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def draw_split(
    draw: Callable[[int], tuple[torch.Tensor, ...]], count: int, *, split: Split
) -> tuple[torch.Tensor, ...]:
    """Draw again and again until ``count`` rows of a split have come together.

    Args:
        draw: draws about as many rows as it is asked for. The first tensor, (B, K) int64, is what decides the split:
            rows that must not come apart have to be equal there. Whatever else there is of a row may follow.

    Returns:
        The same tensors, with ``count`` rows.
    """
    kept: list[tuple[torch.Tensor, ...]] = []
    missing = count
    while missing > 0:
        drawn = draw(int(missing / SHARES[split] * 1.1) + 16)
        inside = split_mask(drawn[0], split).nonzero().squeeze(1)[:missing]
        kept.append(tuple(part[inside] for part in drawn))
        missing -= len(inside)
    return tuple(torch.cat(parts) for parts in zip(*kept, strict=True))


def draw_numbers(size: tuple[int, int], *, largest: int, generator: torch.Generator) -> torch.Tensor:
    """Draw whole numbers from 0 to ``largest``, (B, N) int64: each number of digits as likely."""
    device, most_digits = generator.device, len(str(largest))
    digits = torch.randint(1, most_digits + 1, size, generator=generator, device=device)
    low = torch.where(digits == 1, 0, 10 ** (digits - 1))
    high = (10**digits).clamp(max=largest + 1)
    share = torch.rand(size, generator=generator, device=device, dtype=torch.float64)
    return low + (share * (high - low)).long()


def padded(rows: Sequence[Sequence[int]], width: int, *, device: torch.device | str = "cpu") -> torch.Tensor:
    """Make a tensor (B, width) int64 of rows of ids, none of them longer, with PAD behind each."""
    filled = [[*row, *[PAD_ID] * (width - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.int64, device=device).reshape(len(rows), width)


def framed(symbols: torch.Tensor, *, has_eos: bool = True) -> torch.Tensor:
    """Put BOS before and EOS behind each row, PAD behind its symbols: (B, N) to (B, N + 2) int64."""
    lengths = (symbols != PAD_ID).sum(dim=1, keepdim=True)
    rows = torch.nn.functional.pad(symbols, (1, 1), value=PAD_ID)
    rows[:, 0] = BOS_ID
    return rows.scatter(1, lengths + 1, EOS_ID) if has_eos else rows


def pushed_left(rows: torch.Tensor) -> torch.Tensor:
    """Move all PAD of each row (B, N) int64 to its end; the rest keeps its order."""
    return rows.gather(1, (rows == PAD_ID).long().argsort(dim=1, stable=True))
