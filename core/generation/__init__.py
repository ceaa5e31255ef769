"""Let a model write: token by token, each chosen from what it has written so far; one way in for every strategy."""

from collections.abc import Sequence

import torch

from core.generation.beam import search
from core.generation.result import BeamNode, BeamSearch, GenerationResult, Hypothesis
from core.generation.stepwise import write
from core.generation.strategy import GREEDY, Beam, Greedy, Sample, Strategy, parse_strategy, strategy_class
from core.models import Seq2Seq
from core.models.heads import NO_INTERVENTIONS, Interventions
from core.text.vocab import EOS_ID

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
    interventions: Interventions = NO_INTERVENTIONS,
) -> GenerationResult:
    """Decode a batch: each sequence comes out as it would alone, with any strategy.

    Any token of the vocabulary may be produced, PAD and BOS too: a model that writes them has not learned its task,
    and hiding that would not help it.

    Args:
        model: in evaluation mode.
        src: (B, S) int64, BOS first, EOS last.
        max_steps: most tokens to produce, EOS included; at most the model's ``max_seq_len``.
        strategy: how tokens are chosen; the likeliest one at each step by default.
        prefix: tokens that the output must begin with, (P,) for all sources alike or (B, P) int64.
        num_candidates: how many of the likeliest tokens to report at each step.
        need_weights: record the attention of every head.
        interventions: what is done to heads meanwhile.

    Raises:
        ValueError: the source is longer than the model can read, or the prefix does not fit.
        InputError: the model lacks a head that something is to be done to.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps={max_steps} must be at least 1")
    forced = torch.as_tensor(prefix, dtype=torch.int64, device=src.device).expand(len(src), -1)
    if forced.shape[1] > max_steps:
        raise ValueError(f"prefix has {forced.shape[1]} tokens, more than max_steps={max_steps}")
    if (forced[:, :-1] == EOS_ID).any():
        raise ValueError("prefix goes on behind EOS")
    run = search if isinstance(strategy, Beam) else write
    return run(
        model,
        src,
        strategy,
        max_steps=max_steps,
        prefix=forced,
        num_candidates=num_candidates,
        need_weights=need_weights,
        interventions=interventions,
    )
