"""Batches, generation results and attention maps written by hand."""

import torch
import torch.nn.functional as F

from core.generation import GenerationResult
from core.models import AttentionMaps
from core.tasks import Batch
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def framed_pairs(*sources: str) -> Batch:
    """A batch of digit strings framed by BOS and EOS and padded; every target equals its source."""
    rows = [[BOS_ID, *(int(digit) + 3 for digit in source), EOS_ID] for source in sources]
    width = max(map(len, rows))
    src = torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])
    return Batch(src, src)


def answer_tokens(*answers: str, width: int) -> torch.Tensor:
    """Digit strings as ids (B, width) int64: each followed by EOS where it fits, then PAD."""
    rows = [[*(int(digit) + 3 for digit in answer), EOS_ID][:width] for answer in answers]
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])


def generation_result(tokens: torch.Tensor, **maps: torch.Tensor) -> GenerationResult:
    """A result with these tokens (B, T) and the given blocks' attention maps; other blocks have None."""
    blocks = {"encoder": None, "decoder": None, "cross": None}
    return GenerationResult(
        tokens=tokens,
        candidates=tokens[..., None],
        probabilities=torch.ones(*tokens.shape, 1),
        maps=AttentionMaps(**(blocks | maps)),
        log_probs=torch.zeros(tokens.shape),
    )


def one_hot_maps(columns: list[list[int]], *, keys: int, layers: int = 1, heads: int = 1) -> torch.Tensor:
    """Maps (L, B, H, T, keys) in which every head attends only to the given columns (B, T)."""
    weights = F.one_hot(torch.tensor(columns), keys).float()
    return weights[None, :, None].repeat(layers, 1, heads, 1, 1)
