"""Decoding: greedy, sampling and beam search, all through ``generate``; the log-probability of given outputs."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from core.generation.result import BeamNode, BeamSearch, GenerationResult, Hypothesis
from core.generation.sampling import generate_stepwise
from core.generation.strategy import GREEDY, Beam, Greedy, Sample, Strategy, parse_strategy, strategy_class
from core.models import AttentionRecorder, Seq2Seq
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

__all__ = [
    "GREEDY",
    "Beam",
    "BeamNode",
    "BeamSearch",
    "GenerationResult",
    "Greedy",
    "Hypothesis",
    "Sample",
    "Strategy",
    "generate",
    "parse_strategy",
    "sequence_log_prob",
    "strategy_class",
]


@torch.no_grad()
def generate(
    model: Seq2Seq,
    src: torch.Tensor,
    *,
    max_steps: int,
    strategy: Strategy = GREEDY,
    prefix: torch.Tensor | Sequence[int] = (),
    num_candidates: int = 0,
    need_weights: bool = False,
) -> GenerationResult:
    """Generate an output for each source. Results are independent of the batch, with every strategy.

    No token of the vocabulary is suppressed, not even PAD and BOS: a model that generates them has not learned its
    task.

    Args:
        model: in evaluation mode.
        src: (B, S) int64, BOS first, EOS last, PAD after it.
        max_steps: maximum number of tokens, EOS included; at most the model's ``max_seq_len``.
        strategy: greedy by default.
        prefix: forced first tokens of the output, (P,) for all sources or (B, P) int64; none are the model's own,
            ``forced_start``, such as the language of its answers.
        num_candidates: how many of the most likely tokens to return for each step.
        need_weights: record the attention of all heads.

    Raises:
        InputError: the model cannot read the shape, dtype or token ids of the source or the prefix.
        ValueError: ``max_steps`` is below 1, or the prefix does not fit.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps={max_steps} must be at least 1")
    if not len(prefix):
        prefix = model.forced_start[:max_steps]
    forced = torch.as_tensor(prefix, dtype=torch.int64, device=src.device).expand(len(src), -1)
    if forced.shape[1] > max_steps:
        raise ValueError(f"prefix has {forced.shape[1]} tokens, more than max_steps={max_steps}")
    if (forced[:, :-1] == EOS_ID).any():
        raise ValueError("prefix continues after EOS")
    model.check_ids("prefix", forced, model.vocab_sizes[1])
    with AttentionRecorder(model, enabled=need_weights) as recorder:
        if isinstance(strategy, Beam):
            from core.generation.beam import beam_search  # on demand: most commands decode greedily

            return beam_search(
                model,
                src,
                strategy,
                max_steps=max_steps,
                prefix=forced,
                num_candidates=num_candidates,
                recorder=recorder,
            )
        return generate_stepwise(
            model, src, strategy, max_steps=max_steps, prefix=forced, num_candidates=num_candidates, recorder=recorder
        )


@torch.no_grad()
def sequence_log_prob(model: Seq2Seq, src: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return log P(tokens | source) in nats under a model in evaluation mode, (B,) float.

    Args:
        model: in evaluation mode.
        src: (B, S) int64.
        tokens: (B, T) int64, answers from any model or person, PAD after each one's end.
    """
    tgt_in = F.pad(tokens[:, :-1], (1, 0), value=BOS_ID)
    logits = model(src, tgt_in)
    log_probs = logits.log_softmax(dim=-1).gather(-1, tokens[..., None]).squeeze(-1)
    return log_probs.masked_fill(tokens == PAD_ID, 0.0).sum(dim=1)
