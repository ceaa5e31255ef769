"""Writing one sequence a source: the likeliest token at each step, or one drawn by chance."""

from collections.abc import Callable

import torch

from core.generation.repetition import RepetitionPenalty
from core.generation.result import GenerationResult, likeliest, stack_causal_rows, stack_rows
from core.generation.sampling import draw, draws_of, sampling_log_probs
from core.generation.strategy import Greedy, Sample
from core.models import AttentionMaps, Seq2Seq
from core.models.heads import Interventions
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

Choose = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


def write(
    model: Seq2Seq,
    src: torch.Tensor,
    strategy: Greedy | Sample,
    *,
    max_steps: int,
    prefix: torch.Tensor,
    num_candidates: int,
    need_weights: bool,
    interventions: Interventions,
) -> GenerationResult:
    """Write token by token until every sequence has ended; see ``core.generation.generate``.

    Args:
        prefix: (B, P) int64, the first tokens of each output.
    """
    memory = model.encode(src, need_weights=need_weights, interventions=interventions)
    choose = _drawing(strategy, src, max_steps) if isinstance(strategy, Sample) else _likeliest
    penalty = RepetitionPenalty(strategy.repetition_penalty)
    token = torch.full((len(src), 1), BOS_ID, device=src.device)
    finished = torch.zeros_like(token, dtype=torch.bool)
    cache, tokens, chances, distributions, decoder_rows, cross_rows = None, [], [], [], [], []
    for number in range(max_steps):
        step = model.decode(token, memory, cache, need_weights=need_weights)
        cache = step.cache
        token, log_probs = choose(penalty.apply(step.logits[:, -1].float()), number)
        if number < prefix.shape[1]:
            token = prefix[:, number : number + 1]
        token = token.masked_fill(finished, PAD_ID)
        penalty.note(token)
        tokens.append(token)
        chances.append(log_probs.gather(1, token).masked_fill(finished, 0))
        if num_candidates:
            distributions.append(log_probs)
        decoder_rows.append(step.decoder_weights)
        cross_rows.append(step.cross_weights)
        finished = finished | (token == EOS_ID)
        if finished.all():
            break
    written = torch.cat(tokens, dim=1)
    maps = AttentionMaps(memory.weights, stack_causal_rows(decoder_rows), stack_rows(cross_rows))
    return GenerationResult(
        written,
        *likeliest(distributions, num_candidates, written),
        maps if need_weights else None,
        torch.cat(chances, dim=1),
    )


def _likeliest(logits: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the tokens (B, 1) with the largest logits (B, V); also the log-probabilities (B, V)."""
    return logits.argmax(dim=-1, keepdim=True), logits.log_softmax(dim=-1)


def _drawing(strategy: Sample, src: torch.Tensor, max_steps: int) -> Choose:
    """Return a function that draws the tokens of a step."""
    numbers = draws_of(src, strategy.seed, max_steps)

    def choose(logits: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs = sampling_log_probs(logits, strategy)
        return draw(log_probs, numbers[:, number])[:, None], log_probs

    return choose
