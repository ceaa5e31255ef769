"""Drawing tokens by chance, in such a way that a sequence gets the same draws alone and in any batch."""

from hashlib import blake2b

import torch

from core.generation.strategy import Sample
from core.text.vocab import PAD_ID


def draws_of(src: torch.Tensor, seed: int, steps: int) -> torch.Tensor:
    """Return random numbers for every source and step, (B, steps) float64, evenly distributed over [0, 1).

    Each source has a generator of its own, seeded from ``seed`` and from its tokens, PAD left out. So its draws depend
    on neither its neighbours nor its place in the batch, and other sources have others. The price is that the same
    source with the same seed is answered alike every time: another answer takes another seed.
    """
    generator, rows = torch.Generator(), []
    for ids in src.tolist():
        key = repr((seed, [token for token in ids if token != PAD_ID]))
        generator.manual_seed(int.from_bytes(blake2b(key.encode(), digest_size=8).digest()))
        rows.append(torch.rand(steps, generator=generator, dtype=torch.float64))
    return torch.stack(rows).to(src.device)


def sampling_log_probs(logits: torch.Tensor, strategy: Sample) -> torch.Tensor:
    """Return the log-probabilities (N, V) to draw from; -inf for tokens that top-k or top-p cut off.

    Args:
        logits: (N, V) float.
    """
    # Against the largest, so that no temperature makes a logit overflow.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / strategy.temperature
    if strategy.top_k or strategy.top_p < 1:
        logits = _cut_off(logits, strategy.top_k or logits.shape[-1], strategy.top_p)
    return logits.log_softmax(dim=-1)


def _cut_off(logits: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Set all logits (N, V) to -inf but the ``top_k`` largest and, of these, the smallest set with ``top_p``."""
    # A stable sort, so that of equal logits the first are kept, as argmax does, and never more than top_k.
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    ordered[:, top_k:] = -torch.inf
    if top_p < 1:
        shares = ordered.double().softmax(dim=-1)
        before = shares.cumsum(dim=-1) - shares
        ordered = ordered.masked_fill(before >= top_p, -torch.inf)
    return torch.empty_like(ordered).scatter(-1, order, ordered)


def draw(log_probs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Draw a token for each row by inverting the distribution function.

    The tokens stand in the order of their ids: in the order of their probabilities, two that are nearly equal could
    change places by a rounding error, and with them the draw.

    Args:
        log_probs: (N, V) float.
        numbers: (N,) float64 in [0, 1).

    Returns:
        (N,) int64, never a token of probability 0.
    """
    cumulative = log_probs.double().exp().cumsum(dim=-1)
    return (cumulative <= (numbers * cumulative[:, -1])[:, None]).sum(dim=-1)
