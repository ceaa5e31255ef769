"""Beam search: many beginnings of an answer at once, of which the likeliest are kept."""

from dataclasses import dataclass, replace

import torch

from core.generation.repetition import RepetitionPenalty
from core.generation.result import (
    NOWHERE,
    BeamSearch,
    BeamStep,
    GenerationResult,
    likeliest,
    stack_causal_rows,
    stack_rows,
)
from core.generation.strategy import Beam
from core.models import AttentionMaps, Seq2Seq
from core.models.heads import Interventions
from core.models.seq2seq import Cache, Memory
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class _Open:
    """The beginnings that go on, K for each source: 1 at first, then as many as there are, up to ``beam_size``.

    Attributes:
        tokens: (B, K) int64, the last one of each.
        totals: (B, K) float, log-probability of each; -inf in a place with nothing to hold.
    """

    tokens: torch.Tensor
    totals: torch.Tensor

    @staticmethod
    def start(count: int, device: torch.device) -> "_Open":
        """Hold BOS for each source."""
        bos = torch.full((count, 1), BOS_ID, device=device)
        return _Open(bos, torch.zeros_like(bos, dtype=torch.float32))

    def continued(self, log_probs: torch.Tensor, forced: torch.Tensor | None, beam_size: int) -> BeamStep:
        """Return the likeliest continuations by one token, likeliest first, some more than there is room for.

        Args:
            log_probs: (B, K, V) float, of each token after each beginning.
            forced: (B, 1) int64, the only token to go on with, if there is one.
        """
        size = log_probs.shape[-1]
        totals = (self.totals[..., None] + log_probs).flatten(1)
        if forced is None:
            # Stable: of equals the first, as argmax takes it, so that a beam of 1 is greedy also then. Of each
            # beginning at most one continuation ends, so that twice as many are enough to go on with.
            places = totals.sort(dim=1, descending=True, stable=True).indices[:, : 2 * beam_size]
        else:
            places = forced
        totals, gained = totals.gather(1, places), log_probs.flatten(1).gather(1, places)
        return BeamStep(places % size, places // size, gained, totals, written=~totals.isneginf())


@dataclass(frozen=True)
class _Ended:
    """The best answers that have ended, N for each source, best first.

    Attributes:
        scores: (B, N) float, what they are ranked by; -inf where there are fewer.
        totals: (B, N) float, log-probability of each.
        lengths: (B, N) int64, tokens in each: the number of the step it ended at.
        places: (B, N) int64, where in that step.
    """

    scores: torch.Tensor
    totals: torch.Tensor
    lengths: torch.Tensor
    places: torch.Tensor

    @staticmethod
    def start(count: int, device: torch.device) -> "_Ended":
        """Hold nothing."""
        nothing = torch.empty(count, 0, device=device)
        return _Ended(nothing, nothing, nothing.long(), nothing.long())

    def joined(self, step: BeamStep, places: torch.Tensor, number: int, strategy: Beam) -> "_Ended":
        """Return the ``beam_size`` best of these and those that ended in the step of that number, at (N',) places."""
        totals = step.totals[:, places]
        scores = totals / penalty_of(torch.full_like(totals, number), strategy.length_penalty)
        new = (scores, totals, torch.full_like(places, number).expand(totals.shape), places.expand(totals.shape))
        old = (self.scores, self.totals, self.lengths, self.places)
        scores, *others = (torch.cat(pair, dim=1) for pair in zip(old, new, strict=True))
        best = scores.sort(dim=1, descending=True, stable=True)
        order = best.indices[:, : strategy.beam_size]
        return _Ended(best.values[:, : strategy.beam_size], *(each.gather(1, order) for each in others))

    def is_enough(self, still_open: torch.Tensor, strategy: Beam, max_steps: int) -> torch.Tensor:
        """Tell which sources' search is over, (B, 1) bool: as many have ended as the beam is wide, or nothing better
        can come.

        The totals only fall, and the longest answer is penalised least, so what is open ends at best with its present
        total, of (B, K), and the length of ``max_steps``.
        """
        longest = penalty_of(torch.tensor(max_steps), strategy.length_penalty)
        nth = self.scores[:, strategy.n_best - 1 : strategy.n_best]
        is_settled = (nth >= still_open.amax(dim=1, keepdim=True) / longest) if nth.shape[1] else False
        return (self.scores > -torch.inf).sum(dim=1, keepdim=True).ge(strategy.beam_size) | is_settled


@dataclass(frozen=True)
class _Recorded:
    """One step of the search.

    Attributes:
        step: what was kept of it.
        rows: (B, places) int64, the row of the model's batch that each place came from.
        log_probs: (rows, V) float, the distributions, where candidates are wanted.
        decoder_weights, cross_weights: (L, rows, H, 1, …) float, where the attention is wanted.
    """

    step: BeamStep
    rows: torch.Tensor
    log_probs: torch.Tensor | None
    decoder_weights: torch.Tensor | None
    cross_weights: torch.Tensor | None


def penalty_of(lengths: torch.Tensor, length_penalty: float) -> torch.Tensor:
    """Return what log-probabilities are divided by, ((5 + length) / 6) ** length_penalty, of the lengths' shape."""
    return ((5 + lengths) / 6) ** length_penalty


def search(
    model: Seq2Seq,
    src: torch.Tensor,
    strategy: Beam,
    *,
    max_steps: int,
    prefix: torch.Tensor,
    num_candidates: int,
    need_weights: bool,
    interventions: Interventions,
) -> GenerationResult:
    """Search until nothing better can be found; see ``core.generation.generate`` and ``Beam``.

    Args:
        prefix: (B, P) int64, the first tokens of each output; they count in its log-probability.
    """
    memory = model.encode(src, need_weights=need_weights, interventions=interventions)
    encoder_weights, memory = memory.weights, replace(memory, weights=None)
    penalty = RepetitionPenalty(strategy.repetition_penalty)
    held, ended = _Open.start(len(src), src.device), _Ended.start(len(src), src.device)
    cache, trace = None, []
    for number in range(1, max_steps + 1):
        decoding = model.decode(held.tokens.reshape(-1, 1), memory, cache, need_weights=need_weights)
        log_probs = penalty.apply(decoding.logits[:, -1].float()).log_softmax(dim=-1)
        of_places = log_probs.view(*held.tokens.shape, -1)
        forced = prefix[:, number - 1 : number] if number <= prefix.shape[1] else None
        best = held.continued(of_places, forced, strategy.beam_size)
        step, count = _kept(best, strategy.beam_size, is_last=number == max_steps)
        ended = ended.joined(step, torch.arange(count, step.tokens.shape[1], device=src.device), number, strategy)
        rows = _rows(step.parents, of_places.shape[1])
        trace.append(
            _Recorded(
                step, rows, log_probs if num_candidates else None, decoding.decoder_weights, decoding.cross_weights
            )
        )
        totals = step.totals[:, :count]
        totals = totals.masked_fill(ended.is_enough(totals, strategy, max_steps), -torch.inf)
        if totals.isneginf().all():
            break
        held, rows = _Open(step.tokens[:, :count], totals), rows[:, :count].flatten()
        cache, memory = _reordered(decoding.cache, memory, rows)
        penalty.note(held.tokens.reshape(-1, 1), rows)
    found = _best_of(ended, trace, strategy)
    decoded = _decoded(found, trace, num_candidates)
    return replace(decoded, maps=_maps(found, trace, encoder_weights)) if need_weights else decoded


def _kept(best: BeamStep, beam_size: int, *, is_last: bool) -> tuple[BeamStep, int]:
    """Return what is kept of the likeliest continuations: those that go on, and behind them those that end here.

    An answer ends by EOS, or because there are no more steps, and has to be among the ``beam_size`` likeliest.

    Returns:
        The step, and the number of places for what goes on.
    """
    ends = (best.tokens == EOS_ID) | is_last
    going = ends.long().sort(dim=1, stable=True).indices[:, :beam_size]
    exists = torch.cat([~ends.gather(1, going), ends[:, :beam_size]], dim=1)
    order = torch.cat([going, torch.arange(ends.shape[1], device=ends.device)[:beam_size].expand_as(going)], dim=1)
    tokens, parents, log_probs, totals, written = (each.gather(1, order) for each in best.values)
    written = written & exists
    kept = BeamStep(
        tokens.masked_fill(~written, PAD_ID),
        parents,
        log_probs.masked_fill(~written, 0),
        totals.masked_fill(~written, -torch.inf),
        written,
    )
    return kept, going.shape[1]


def _rows(parents: torch.Tensor, size: int) -> torch.Tensor:
    """Return the rows of a model's batch that places (B, N) of a beam of that size stand for, in that shape."""
    return torch.arange(0, len(parents) * size, size, device=parents.device)[:, None] + parents


def _reordered(cache: Cache, memory: Memory, rows: torch.Tensor) -> tuple[Cache, Memory]:
    """Put a cache and a memory in the order of the hypotheses that were kept, unless they are in it."""
    count = len(memory.states)
    if len(rows) != count:
        return cache.reordered(rows), memory.rows(rows)
    # All rows of a source have the same memory, and often no hypothesis has moved.
    in_order = torch.equal(rows, torch.arange(count, device=rows.device))
    return cache if in_order else cache.reordered(rows), memory


def _best_of(ended: _Ended, trace: list[_Recorded], strategy: Beam) -> BeamSearch:
    """Follow the best answers back to their beginnings."""
    scores, totals, lengths, ends = (each[:, : strategy.n_best] for each in vars(ended).values())
    tokens, winners, places = [], [], torch.zeros_like(ends)
    for number, recorded in reversed(list(enumerate(trace, start=1))):
        places = torch.where(lengths == number, ends, places)
        is_behind = lengths < number
        tokens.append(recorded.step.tokens.gather(1, places).masked_fill(is_behind, PAD_ID))
        winners.append(places.masked_fill(is_behind, NOWHERE)[:, 0])
        places = recorded.step.parents.gather(1, places).masked_fill(is_behind, 0)
    return BeamSearch(
        tokens=torch.stack(tokens[::-1], dim=2)[:, :, : lengths.max()],
        lengths=lengths,
        log_probs=totals,
        scores=scores,
        steps=tuple(recorded.step for recorded in trace),
        winners=torch.stack(winners[::-1], dim=1),
    )


def _of_winners(
    values: torch.Tensor | None, recorded: _Recorded, places: torch.Tensor, *, dim: int = 0
) -> torch.Tensor | None:
    """Take, of what the model's rows had in a step, that of the rows which places (B,) of the beam came from."""
    if values is None:
        return None
    rows = recorded.rows.gather(1, places[:, None].clamp(min=0)).squeeze(1)
    return values.index_select(dim, rows)


def _decoded(found: BeamSearch, trace: list[_Recorded], num_candidates: int) -> GenerationResult:
    """Return the best hypotheses, with the distributions that their tokens were chosen from."""
    tokens = found.tokens[:, 0, : found.lengths[:, 0].max()]
    steps = list(zip(trace, found.winners.unbind(dim=1), strict=True))[: tokens.shape[1]]
    chances = [
        recorded.step.log_probs.gather(1, places[:, None].clamp(min=0)).masked_fill(places[:, None] == NOWHERE, 0)
        for recorded, places in steps
    ]
    distributions = [_of_winners(recorded.log_probs, recorded, places) for recorded, places in steps if num_candidates]
    return GenerationResult(
        tokens, *likeliest(distributions, num_candidates, tokens), None, torch.cat(chances, dim=1), search=found
    )


def _maps(found: BeamSearch, trace: list[_Recorded], encoder_weights: torch.Tensor | None) -> AttentionMaps:
    """Put together the attention of the best hypotheses from the rows of the batch that they came by."""
    steps = list(zip(trace, found.winners.unbind(dim=1), strict=True))[: found.lengths[:, 0].max()]
    decoder_rows = [_of_winners(recorded.decoder_weights, recorded, places, dim=1) for recorded, places in steps]
    cross_rows = [_of_winners(recorded.cross_weights, recorded, places, dim=1) for recorded, places in steps]
    return AttentionMaps(encoder_weights, stack_causal_rows(decoder_rows), stack_rows(cross_rows))
