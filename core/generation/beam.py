"""Beam search for a batch of sources (Wu et al. 2016, section 7).

Shape letters: B sources, K running hypotheses per source, N hypotheses in general, V vocabulary, L layers, H heads.
The model's batch has a row for each running hypothesis: B × K rows.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from core.generation.result import (
    NO_SLOT,
    BeamSearch,
    BeamStep,
    GenerationResult,
    stack_causal_rows,
    stack_rows,
    top_candidates,
)
from core.generation.sampling import RepetitionPenalty, can_drop_rows, running_rows
from core.generation.strategy import Beam
from core.models import AttentionMaps, AttentionRecorder, Seq2Seq, kernels
from core.models.seq2seq import Cache, Memory
from core.models.step_decoder import step_decoder
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class _RunningHypotheses:
    """Partial hypotheses that continue: K = 1 per source at first, then up to ``beam_size``.

    Attributes:
        tokens: (B, K) int64, the last token of each.
        log_probs: (B, K) float, of the whole partial hypothesis; -inf in an empty slot.
    """

    tokens: torch.Tensor
    log_probs: torch.Tensor

    @staticmethod
    def start(batch_size: int, device: torch.device) -> "_RunningHypotheses":
        """Return BOS for each source."""
        bos = torch.full((batch_size, 1), BOS_ID, device=device)
        return _RunningHypotheses(bos, torch.zeros_like(bos, dtype=torch.float32))

    def expand(self, log_probs: torch.Tensor, forced: torch.Tensor | None, beam_size: int) -> BeamStep:
        """Return the 2 × ``beam_size`` most likely continuations by one token, most likely first.

        At most one continuation of each hypothesis ends, so at least ``beam_size`` of these continue.

        Args:
            log_probs: (B, K, V) float, of each next token.
            forced: (B, 1) int64, the only next token allowed, or None.
            beam_size: maximum number of running hypotheses.
        """
        vocab_size = log_probs.shape[-1]
        totals = (self.log_probs[..., None] + log_probs).flatten(1)
        # Ties go to the first, as in argmax, so a beam of 1 is greedy decoding with ties, too.
        indices = kernels.top_k(totals, 2 * beam_size) if forced is None else forced
        totals, token_log_probs = totals.gather(1, indices), log_probs.flatten(1).gather(1, indices)
        return BeamStep(indices % vocab_size, indices // vocab_size, token_log_probs, totals, ~totals.isneginf())


@dataclass(frozen=True)
class _FinishedHypotheses:
    """The N best finished hypotheses of each source, best first.

    Attributes:
        scores: (B, N) float, for ranking; -inf if there are fewer.
        log_probs: (B, N) float, of the whole hypothesis.
        lengths: (B, N) int64, number of tokens, which is the number of the step it ended in.
        slots: (B, N) int64, its slot in that step.
    """

    scores: torch.Tensor
    log_probs: torch.Tensor
    lengths: torch.Tensor
    slots: torch.Tensor

    @staticmethod
    def start(batch_size: int, device: torch.device) -> "_FinishedHypotheses":
        """Return no hypotheses."""
        empty = torch.empty(batch_size, 0, device=device)
        return _FinishedHypotheses(empty, empty, empty.long(), empty.long())

    def add(self, step: BeamStep, slots: torch.Tensor, length: int, strategy: Beam) -> "_FinishedHypotheses":
        """Return the ``beam_size`` best of these and of those that ended in a step.

        Args:
            step: the step.
            slots: (N',) int64, the slots of hypotheses that ended.
            length: their number of tokens.
            strategy: for the length penalty.
        """
        log_probs = step.total_log_probs[:, slots]
        lengths = torch.full_like(slots, length).expand(log_probs.shape)
        scores = torch.cat([self.scores, log_probs / length_penalty(lengths, strategy.length_penalty)], dim=1)
        best = scores.sort(dim=1, descending=True, stable=True)
        order = best.indices[:, : strategy.beam_size]
        joined = ((self.log_probs, log_probs), (self.lengths, lengths), (self.slots, slots.expand(log_probs.shape)))
        return _FinishedHypotheses(
            best.values[:, : strategy.beam_size], *(torch.cat(pair, dim=1).gather(1, order) for pair in joined)
        )

    def select(self, rows: torch.Tensor) -> "_FinishedHypotheses":
        """Return the hypotheses of some sources, (R,) int64."""
        return _FinishedHypotheses(self.scores[rows], self.log_probs[rows], self.lengths[rows], self.slots[rows])

    @staticmethod
    def join(parts: list[tuple[torch.Tensor, "_FinishedHypotheses"]]) -> "_FinishedHypotheses":
        """Return the hypotheses of all sources in order, from parts: (sources (R,), hypotheses)."""
        if len(parts) == 1:
            return parts[0][1]
        order = torch.cat([sources for sources, _ in parts]).argsort()
        width = max(part.scores.shape[1] for _, part in parts)

        def joined(name: str, fill: float) -> torch.Tensor:
            columns = [getattr(part, name) for _, part in parts]
            return torch.cat([F.pad(each, (0, width - each.shape[1]), value=fill) for each in columns])[order]

        return _FinishedHypotheses(
            joined("scores", -torch.inf), joined("log_probs", -torch.inf), joined("lengths", 0), joined("slots", 0)
        )

    def is_search_done(self, running: torch.Tensor, strategy: Beam, max_steps: int) -> torch.Tensor:
        """Return for which sources the search is over, (B, 1) bool.

        It is over when ``beam_size`` hypotheses are finished, or when no running one can become better than the
        ``n_best``-th finished one. A running hypothesis can at best keep its log-probability, which never rises, and
        reach ``max_steps`` tokens, the length that is penalized least.

        Args:
            running: (B, K) float, log-probabilities of the running hypotheses.
            strategy: beam size, number of hypotheses to return, length penalty.
            max_steps: maximum number of tokens.
        """
        num_finished = (self.scores > -torch.inf).sum(dim=1, keepdim=True)
        is_done = num_finished >= strategy.beam_size
        nth_score = self.scores[:, strategy.n_best - 1 : strategy.n_best]
        if nth_score.shape[1]:
            best_possible = running.amax(dim=1, keepdim=True)
            best_possible = best_possible / length_penalty(torch.tensor(max_steps), strategy.length_penalty)
            is_done = is_done | (nth_score >= best_possible)
        return is_done


@dataclass(frozen=True)
class _StepRecord:
    """The record of a step, from which the result is built.

    Attributes:
        step: the slots.
        rows: (B, slots) int64, the row of the model's batch that each slot came from.
        log_probs: (rows, V) float, the distributions, if candidates are requested.
        decoder_weights, cross_weights: (L, rows, H, 1, …) float, if attention is recorded.
    """

    step: BeamStep
    rows: torch.Tensor
    log_probs: torch.Tensor | None
    decoder_weights: torch.Tensor | None
    cross_weights: torch.Tensor | None


def length_penalty(lengths: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return ((5 + length) / 6) ** alpha, which log-probabilities are divided by (Wu et al. 2016, eq. 14)."""
    return ((5 + lengths) / 6) ** alpha


def beam_search(
    model: Seq2Seq,
    src: torch.Tensor,
    strategy: Beam,
    *,
    max_steps: int,
    prefix: torch.Tensor,
    num_candidates: int,
    recorder: AttentionRecorder,
) -> GenerationResult:
    """Search until no better hypothesis can be found; see ``Beam``. Arguments of ``core.generation.generate``.

    Args:
        prefix: (B, P) int64, the first tokens of each output; they count in its log-probability.
        recorder: records the attention of the model, if it is enabled.
    """
    memory, encoder_weights = model.encode(src), recorder.take().encoder
    decoder = step_decoder(model, memory, strategy.beam_size) or model
    penalty = RepetitionPenalty(strategy.repetition_penalty)
    running = _RunningHypotheses.start(len(src), src.device)
    finished = _FinishedHypotheses.start(len(src), src.device)
    can_drop = can_drop_rows(recorder, num_candidates)
    sources = torch.arange(len(src), device=src.device)  # sources that the model still decodes
    done: list[tuple[torch.Tensor, _FinishedHypotheses]] = []  # the others, and their results
    cache: Cache | None = None
    records: list[_StepRecord] = []
    for number in range(1, max_steps + 1):
        output = decoder.decode(running.tokens.reshape(-1, 1), memory, cache)
        log_probs = penalty(output.logits[:, -1].float()).log_softmax(dim=-1)
        by_hypothesis = log_probs.view(*running.tokens.shape, -1)  # (B, K, V)
        forced = prefix[sources, number - 1 : number] if number <= prefix.shape[1] else None
        expanded = running.expand(by_hypothesis, forced, strategy.beam_size)
        step, num_running = _select(expanded, strategy.beam_size, is_last=number == max_steps)
        ended_slots = torch.arange(num_running, step.tokens.shape[1], device=src.device)
        finished = finished.add(step, ended_slots, number, strategy)
        rows = _model_rows(step.parents, by_hypothesis.shape[1])
        kept_log_probs = log_probs if num_candidates else None
        maps = recorder.take()
        recorded = step.in_rows(sources, len(src))
        records.append(_StepRecord(recorded, rows, kept_log_probs, maps.decoder, maps.cross))
        totals = step.total_log_probs[:, :num_running]
        totals = totals.masked_fill(finished.is_search_done(totals, strategy, max_steps), -torch.inf)
        is_done = totals.isneginf().all(dim=1)
        if is_done.all():
            break
        kept = running_rows(is_done) if can_drop else None
        tokens, rows = step.tokens[:, :num_running], rows[:, :num_running]
        if kept is not None:
            done.append((sources[is_done], finished.select(is_done.nonzero().squeeze(1))))
            sources, finished = sources[kept], finished.select(kept)
            tokens, totals, rows = tokens[kept], totals[kept], rows[kept]
        running, rows = _RunningHypotheses(tokens, totals), rows.flatten()
        cache, memory = _reorder(output.cache, memory, rows, kept)
        penalty.update(running.tokens.reshape(-1, 1), rows)
    finished = _FinishedHypotheses.join([*done, (sources, finished)])
    search = _backtrack(finished, records, strategy)
    result = _build_result(search, records, num_candidates)
    if not recorder.enabled:
        return result
    return replace(result, maps=_build_maps(search, records, encoder_weights).with_masks(model, src))


def _select(expanded: BeamStep, beam_size: int, *, is_last: bool) -> tuple[BeamStep, int]:
    """Split the most likely continuations into those that keep running and, after them, those that end here.

    A hypothesis ends with EOS or at the last step, and must be among the ``beam_size`` most likely.

    Returns:
        The selected continuations, and the number of slots for running ones.
    """
    ends = (expanded.tokens == EOS_ID) | is_last
    running = ends.long().sort(dim=1, stable=True).indices[:, :beam_size]
    is_used = torch.cat([~ends.gather(1, running), ends[:, :beam_size]], dim=1)
    ended = torch.arange(ends.shape[1], device=ends.device)[:beam_size].expand_as(running)
    order = torch.cat([running, ended], dim=1)
    is_active = expanded.is_active.gather(1, order) & is_used
    selected = BeamStep(
        expanded.tokens.gather(1, order).masked_fill(~is_active, PAD_ID),
        expanded.parents.gather(1, order),
        expanded.log_probs.gather(1, order).masked_fill(~is_active, 0),
        expanded.total_log_probs.gather(1, order).masked_fill(~is_active, -torch.inf),
        is_active,
    )
    return selected, running.shape[1]


def _model_rows(slots: torch.Tensor, num_slots: int) -> torch.Tensor:
    """Convert slots (B, N) int64, of ``num_slots`` per source, to rows of the model's batch, (B, N) int64."""
    return torch.arange(0, len(slots) * num_slots, num_slots, device=slots.device)[:, None] + slots


def _reorder(cache: Cache, memory: Memory, rows: torch.Tensor, kept: torch.Tensor | None) -> tuple[Cache, Memory]:
    """Reorder the cache and the memory so that they match the selected hypotheses.

    Args:
        rows: (N,) int64, the row of the model's batch that each hypothesis continues.
        kept: (R,) int64, the sources that they belong to; None for all sources.
    """
    num_rows = len(memory.states)
    if kept is not None or len(rows) != num_rows:
        return cache.reorder(rows, kept), memory.select(rows)
    # All rows of a source have the same memory, and often no hypothesis has moved.
    is_in_order = torch.equal(rows, torch.arange(num_rows, device=rows.device))
    return cache if is_in_order else cache.reorder(rows), memory


def _backtrack(finished: _FinishedHypotheses, records: list[_StepRecord], strategy: Beam) -> BeamSearch:
    """Follow the best hypotheses from their last token back to their first."""
    scores, log_probs, lengths, last_slots = (
        column[:, : strategy.n_best]
        for column in (finished.scores, finished.log_probs, finished.lengths, finished.slots)
    )
    tokens, best_slots, slots = [], [], torch.zeros_like(last_slots)
    for number, record in reversed(list(enumerate(records, start=1))):
        slots = torch.where(lengths == number, last_slots, slots)
        is_after_end = lengths < number
        tokens.append(record.step.tokens.gather(1, slots).masked_fill(is_after_end, PAD_ID))
        best_slots.append(slots.masked_fill(is_after_end, NO_SLOT)[:, 0])
        slots = record.step.parents.gather(1, slots).masked_fill(is_after_end, 0)
    return BeamSearch(
        tokens=torch.stack(tokens[::-1], dim=2)[:, :, : int(lengths.max())],
        lengths=lengths,
        log_probs=log_probs,
        scores=scores,
        steps=tuple(record.step for record in records),
        best_slots=torch.stack(best_slots[::-1], dim=1),
    )


def _build_result(search: BeamSearch, records: list[_StepRecord], num_candidates: int) -> GenerationResult:
    """Return the best hypotheses with the distributions that their tokens were chosen from."""
    tokens = search.tokens[:, 0, : int(search.lengths[:, 0].max())]
    log_probs, distributions = [], []
    for record, slots in zip(records[: tokens.shape[1]], search.best_slots.unbind(dim=1), strict=False):
        of_slots = record.step.log_probs.gather(1, slots[:, None].clamp(min=0))
        log_probs.append(of_slots.masked_fill(slots[:, None] == NO_SLOT, 0))
        if record.log_probs is not None:
            distributions.append(record.log_probs[_rows_of(record, slots)])
    candidates = top_candidates(distributions, num_candidates, tokens)
    return GenerationResult(tokens, *candidates, None, torch.cat(log_probs, dim=1), search=search)


def _build_maps(search: BeamSearch, records: list[_StepRecord], encoder_weights: torch.Tensor | None) -> AttentionMaps:
    """Assemble the attention of the best hypotheses from the model rows that they passed through."""
    decoder_rows, cross_rows = [], []
    num_steps = int(search.lengths[:, 0].max())
    for record, slots in zip(records[:num_steps], search.best_slots.unbind(dim=1), strict=False):
        rows = _rows_of(record, slots)
        decoder_rows.append(None if record.decoder_weights is None else record.decoder_weights[:, rows])
        cross_rows.append(None if record.cross_weights is None else record.cross_weights[:, rows])
    return AttentionMaps(encoder_weights, stack_causal_rows(decoder_rows), stack_rows(cross_rows))


def _rows_of(record: _StepRecord, slots: torch.Tensor) -> torch.Tensor:
    """Return the model rows (B,) int64 that slots (B,) int64 of a step came from; any row for ``NO_SLOT``."""
    return record.rows.gather(1, slots[:, None].clamp(min=0)).squeeze(1)
