"""Greedy decoding and sampling: one sequence per source, one token per step.

The repetition penalty is here too; beam search shares it. Random draws are reproducible per source: a sequence gets
the same draws in any batch.
"""

from collections.abc import Callable
from hashlib import blake2b

import torch

from core.generation.result import GenerationResult, in_rows, stack_causal_rows, stack_rows, top_candidates
from core.generation.strategy import Greedy, Sample
from core.models import AttentionMaps, AttentionRecorder, Seq2Seq, kernels
from core.models.hooks import hooks_are_active
from core.models.step_decoder import step_decoder
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

# (logits (R, V), step, sources (R,)) → chosen tokens (R, 1), log-probabilities (R, V) they were chosen from
ChooseToken = Callable[[torch.Tensor, int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
MAX_RUNNING = 0.75  # fraction of unfinished sequences at which the finished ones are dropped from the batch


def generate_stepwise(
    model: Seq2Seq,
    src: torch.Tensor,
    strategy: Greedy | Sample,
    *,
    max_steps: int,
    prefix: torch.Tensor,
    num_candidates: int,
    recorder: AttentionRecorder,
) -> GenerationResult:
    """Generate token by token until every sequence has ended. Arguments of ``core.generation.generate``.

    Args:
        prefix: (B, P) int64, the first tokens of each output.
        recorder: records the attention of the model, if it is enabled.
    """
    memory, encoder_weights = model.encode(src), recorder.take().encoder
    decoder = step_decoder(model, memory, rows_per_source=1) or model
    choose_token = _sampler(strategy, src, max_steps) if isinstance(strategy, Sample) else _argmax
    penalty = RepetitionPenalty(strategy.repetition_penalty)
    token = torch.full((len(src), 1), BOS_ID, device=src.device)
    finished = torch.zeros_like(token, dtype=torch.bool)
    sources = torch.arange(len(src), device=src.device)  # of the rows that the model still decodes
    can_drop = can_drop_rows(recorder, num_candidates)
    cache, tokens, token_log_probs, distributions, decoder_rows, cross_rows = None, [], [], [], [], []
    for step in range(max_steps):
        output = decoder.decode(token, memory, cache)
        cache = output.cache
        token, log_probs = choose_token(penalty(output.logits[:, -1].float()), step, sources)
        if step < prefix.shape[1]:
            token = prefix[sources, step : step + 1]
        token = token.masked_fill(finished, PAD_ID)
        penalty.update(token)
        tokens.append(in_rows(token, sources, len(src), PAD_ID))
        log_prob = log_probs.gather(1, token).masked_fill(finished, 0)
        token_log_probs.append(in_rows(log_prob, sources, len(src), 0))
        if num_candidates:
            distributions.append(log_probs)
        step_maps = recorder.take()
        decoder_rows.append(step_maps.decoder)
        cross_rows.append(step_maps.cross)
        finished = finished | (token == EOS_ID)
        if finished.all():
            break
        rows = running_rows(finished.squeeze(1)) if can_drop else None
        if rows is not None:
            cache, memory, penalty = cache.select(rows), memory.select(rows), penalty.select(rows)
            token, finished, sources = token[rows], finished[rows], sources[rows]
    generated = torch.cat(tokens, dim=1)
    maps = AttentionMaps(encoder_weights, stack_causal_rows(decoder_rows), stack_rows(cross_rows))
    return GenerationResult(
        generated,
        *top_candidates(distributions, num_candidates, generated),
        maps.with_masks(model, src) if recorder.enabled else None,
        torch.cat(token_log_probs, dim=1),
    )


def can_drop_rows(recorder: AttentionRecorder, num_candidates: int) -> bool:
    """Whether finished sequences may be left out of the batch: nothing is recorded of every row, and no hook runs."""
    return not recorder.enabled and not num_candidates and not hooks_are_active()


def running_rows(finished: torch.Tensor) -> torch.Tensor | None:
    """Return the indices of the rows not finished, (R,) int64; None if too few are finished to leave them out.

    Args:
        finished: (B,) bool; not all are.
    """
    rows = (~finished).nonzero().squeeze(1)
    return rows if len(rows) <= MAX_RUNNING * len(finished) else None


def _argmax(logits: torch.Tensor, step: int, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the most likely tokens; see ``ChooseToken``."""
    return kernels.argmax(logits)[:, None], logits.log_softmax(dim=-1)


def _sampler(strategy: Sample, src: torch.Tensor, max_steps: int) -> ChooseToken:
    """Return a function that samples the tokens of a step."""
    noise = sampling_noise(src, strategy.seed, max_steps)

    def sample(logits: torch.Tensor, step: int, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs = sampling_log_probs(logits, strategy)
        return sample_token(log_probs, noise[sources, step])[:, None], log_probs

    return sample


# --- sampling -----------------------------------------------------------------------------------------------------


def sampling_noise(src: torch.Tensor, seed: int, steps: int) -> torch.Tensor:
    """Return uniform random numbers in [0, 1) for every source and step, (B, steps) float64.

    Each source has its own generator, seeded from ``seed`` and the source's tokens without PAD. Its numbers are
    independent of the batch, and different sources get different numbers. As a consequence, the same source and seed
    always give the same output.
    """
    generator, rows = torch.Generator(), []
    for ids in src.tolist():
        key = repr((seed, [token for token in ids if token != PAD_ID]))
        generator.manual_seed(int.from_bytes(blake2b(key.encode(), digest_size=8).digest()))
        rows.append(torch.rand(steps, generator=generator, dtype=torch.float64))
    return torch.stack(rows).to(src.device)


def sampling_log_probs(logits: torch.Tensor, strategy: Sample) -> torch.Tensor:
    """Apply temperature, top-k and top-p to logits (N, V) float; return log-probabilities, -inf for excluded tokens."""
    # Subtracting the maximum first keeps a small temperature from overflowing.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / strategy.temperature
    if strategy.top_k or strategy.top_p < 1:
        logits = _top_k_top_p(logits, strategy.top_k or logits.shape[-1], strategy.top_p)
    return logits.log_softmax(dim=-1)


def _top_k_top_p(logits: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Set logits (N, V) to -inf except the ``top_k`` largest and, of these, the smallest set with mass ``top_p``."""
    # A stable sort keeps the first of equal logits, as argmax does, and never more than top_k.
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    ordered[:, top_k:] = -torch.inf
    if top_p < 1:
        probabilities = ordered.double().softmax(dim=-1)
        mass_before = probabilities.cumsum(dim=-1) - probabilities
        ordered = ordered.masked_fill(mass_before >= top_p, -torch.inf)
    return torch.empty_like(ordered).scatter(-1, order, ordered)


def sample_token(log_probs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Sample one token per row by inverting the cumulative distribution function.

    Tokens stay in the order of their ids: sorted by probability, two nearly equal ones could swap by a rounding error
    and change the sample.

    Args:
        log_probs: (N, V) float.
        noise: (N,) float64 in [0, 1).

    Returns:
        (N,) int64, never a token of probability 0.
    """
    cumulative = log_probs.double().exp().cumsum(dim=-1)
    return (cumulative <= (noise * cumulative[:, -1])[:, None]).sum(dim=-1)


# --- repetition penalty -------------------------------------------------------------------------------------------


class RepetitionPenalty:
    """Lowers the logits of tokens that a sequence already contains: positive ones are divided, negative multiplied.

    Keskar et al. 2019 (CTRL), section 4.1, in the form that lowers negative logits too. Forced tokens count, BOS does
    not.

    Args:
        penalty: at least 1, which changes nothing and costs nothing.
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty
        self._seen: torch.Tensor | None = None  # (N, V) bool

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits (N, V) float, penalized."""
        if self.penalty == 1:
            return logits
        if self._seen is None:
            self._seen = torch.zeros_like(logits, dtype=torch.bool)
        lowered = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(self._seen, lowered, logits)

    def update(self, tokens: torch.Tensor, rows: torch.Tensor | None = None) -> None:
        """Append tokens (N, 1) int64 to the sequences; call after ``__call__``.

        Args:
            tokens: one new token per sequence.
            rows: (N,) int64, the previous sequence that each one continues; None for the same order.
        """
        if self._seen is not None:
            seen = self._seen if rows is None else self._seen[rows]
            self._seen = seen.scatter(1, tokens, True)

    def select(self, rows: torch.Tensor) -> "RepetitionPenalty":
        """Return the penalty of these sequences, (R,) int64."""
        selected = RepetitionPenalty(self.penalty)
        selected._seen = None if self._seen is None else self._seen[rows]
        return selected
