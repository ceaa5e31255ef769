"""Answers that are the input's own symbols, in another order or without some: where each of them comes from."""

import torch

from core.tasks.task import NO_SOURCE
from core.text.vocab import PAD_ID

BY_KIND = (
    "sort",
    "deduplicate",
)  # transforms whose answer says which symbol comes next, but not which occurrence of it


def source_places(transform: str, symbols: torch.Tensor) -> torch.Tensor:
    """Say which input symbol each symbol of the answer comes from.

    Args:
        transform: "reverse"; "copy"; "sort", symbols in the order of their ids, equal ones in that of the input; or
            "deduplicate", the first occurrence of each symbol.
        symbols: (B, N) int64, PAD behind each sequence.

    Returns:
        (B, N) int64 indices along N, -1 behind the answer.
    """
    places = torch.arange(symbols.shape[1], device=symbols.device).expand_as(symbols)
    lengths = (symbols != PAD_ID).sum(dim=1, keepdim=True)
    if transform == "reverse":
        places = lengths - 1 - places
        return places.masked_fill(places < 0, NO_SOURCE)
    if transform == "sort":
        pad_last = symbols.masked_fill(symbols == PAD_ID, torch.iinfo(torch.int64).max)
        return pad_last.argsort(dim=1, stable=True).masked_fill(places >= lengths, NO_SOURCE)
    if transform == "deduplicate":
        first = first_of_their_kind(symbols) & (symbols != PAD_ID)
        # A stable sort of "no, not first" brings the first ones to the front and keeps their order.
        order = (~first).long().argsort(dim=1, stable=True)
        return order.masked_fill(places >= first.sum(dim=1, keepdim=True), NO_SOURCE)
    return places.masked_fill(places >= lengths, NO_SOURCE)


def first_of_their_kind(rows: torch.Tensor) -> torch.Tensor:
    """Tell which entries of each row (B, N) int64 do not occur before in it: (B, N) bool."""
    values, order = rows.sort(dim=1, stable=True)
    starts = torch.ones_like(values, dtype=torch.bool)
    starts[:, 1:] = values[:, 1:] != values[:, :-1]
    return torch.zeros_like(starts).scatter(1, order, starts)


def gathered(symbols: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the symbols (B, N) int64 at some places (B, M) int64 of them: (B, M), PAD where the place is -1."""
    return symbols.gather(1, places.clamp(min=0)).masked_fill(places == NO_SOURCE, PAD_ID)
