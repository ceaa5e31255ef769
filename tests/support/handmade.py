"""Decodes that never happened, with maps made by hand."""

import torch
import torch.nn.functional as F

from core.generation import GenerationResult
from core.models import AttentionMaps
from core.tasks import Batch
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def framed_pairs(*sources: str) -> Batch:
    """Digits with BOS and EOS, PAD behind the shorter ones; their targets are them once more."""
    rows = [[BOS_ID, *(int(digit) + 3 for digit in source), EOS_ID] for source in sources]
    width = max(map(len, rows))
    src = torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])
    return Batch(src, src)


def tokens_of(*answers: str, width: int) -> torch.Tensor:
    """GenerationResult digits, (B, width), each with EOS behind it where there is room, and PAD behind that."""
    rows = [[*(int(digit) + 3 for digit in answer), EOS_ID][:width] for answer in answers]
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])


def decode_of(tokens: torch.Tensor, **maps: torch.Tensor) -> GenerationResult:
    """A decode that wrote these tokens, (B, T), with some blocks' maps; those not named are None."""
    blocks = {"encoder": None, "decoder": None, "cross": None}
    return GenerationResult(tokens, tokens[..., None], torch.ones(*tokens.shape, 1), AttentionMaps(**(blocks | maps)))


def pointing(columns: list[list[int]], *, keys: int, layers: int = 1, heads: int = 1) -> torch.Tensor:
    """Maps (L, B, H, T, keys) whose every head puts all its weight on the given columns (B, T)."""
    weights = F.one_hot(torch.tensor(columns), keys).float()
    return weights[None, :, None].repeat(layers, 1, heads, 1, 1)
