"""Decode a batch step by step, reading the target or the model's own predictions."""

import torch

from core.models import Seq2Seq
from core.tasks import Batch


def stepwise_logits(model: Seq2Seq, batch: Batch, is_forced: torch.Tensor) -> torch.Tensor:
    """Decode a batch step by step, feeding back some of the model's own predictions (Bengio et al. 2015).

    Gradients flow through the logits, not through the choice of tokens.

    Args:
        is_forced: (B, T) bool. True: the decoder reads the target token; False: its most likely token of the step
            before. The first token is BOS in any case.

    Returns:
        (B, T, V) logits.
    """
    memory, cache = model.encode(batch.src), None
    logits: list[torch.Tensor] = []
    for position, target in enumerate(batch.tgt_in.split(1, dim=1)):
        predicted = logits[-1].argmax(dim=-1) if logits else target  # (B, 1)
        token = torch.where(is_forced[:, position, None], target, predicted)
        step = model.decode(token, memory, cache)
        cache = step.cache
        logits.append(step.logits)
    return torch.cat(logits, dim=1)


def free_running_logits(model: Seq2Seq, batch: Batch) -> torch.Tensor:
    """Decode a batch that reads its own most likely tokens, for as many steps as the targets have: (B, T, V) logits.

    The decoder goes on after an EOS of its own, so that there are logits for every token of the reference.
    """
    return stepwise_logits(model, batch, torch.zeros_like(batch.tgt_in, dtype=torch.bool))
