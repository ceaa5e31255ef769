"""Repetitive inputs, on which a model may be worse than on uniform ones: of one symbol, of two, and palindromes.

They are rare in uniform draws, so accuracy on those says little about them.
"""

from collections.abc import Callable

import torch

from core.text.vocab import PAD_ID

KINDS = ("one symbol", "two symbols", "palindromes of three or more symbols")


def kind_of(symbols: torch.Tensor) -> torch.Tensor:
    """Return the kind of each input (B, N) int64, padded on the right, as an index of ``KINDS`` (B,); -1 for none."""
    ordered = symbols.sort(dim=1).values
    is_new = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, :-1] != PAD_ID)
    distinct = is_new.sum(dim=1) + 1
    is_palindrome = (symbols == _mirrored(symbols)).all(dim=1)
    kinds = torch.where(is_palindrome, 2, -1)
    return torch.where(distinct <= 2, distinct - 1, kinds)


def of_one_symbol(symbols: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return inputs of the same lengths, each of its first symbol alone."""
    return torch.where(symbols == PAD_ID, PAD_ID, symbols[:, :1])


def of_two_symbols(symbols: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return inputs of the same lengths, each of its first and its last symbol."""
    last = (symbols != PAD_ID).sum(dim=1, keepdim=True) - 1
    is_first = torch.rand(symbols.shape, generator=generator, device=symbols.device) < 0.5
    return torch.where(symbols == PAD_ID, PAD_ID, torch.where(is_first, symbols[:, :1], symbols.gather(1, last)))


def of_palindromes(symbols: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return inputs of the same lengths, the second half of each being its first half mirrored."""
    positions = torch.arange(symbols.shape[1], device=symbols.device)
    lengths = (symbols != PAD_ID).sum(dim=1, keepdim=True)
    return torch.where(positions < (lengths + 1) // 2, symbols, _mirrored(symbols))


MAKERS: tuple[Callable[[torch.Tensor, torch.Generator], torch.Tensor], ...] = (
    of_one_symbol,
    of_two_symbols,
    of_palindromes,
)
"""What makes an input of each of the ``KINDS`` from a uniform one (B, N) int64."""


def _mirrored(symbols: torch.Tensor) -> torch.Tensor:
    """Return the symbols (B, N) int64 of each row in reverse order, PAD staying on the right."""
    positions = torch.arange(symbols.shape[1], device=symbols.device).expand_as(symbols)
    lengths = (symbols != PAD_ID).sum(dim=1, keepdim=True)
    return symbols.gather(1, torch.where(positions < lengths, lengths - 1 - positions, positions))
