"""Beam search: many beginnings of an answer at once, of which the likeliest are kept."""

from dataclasses import dataclass, replace

import torch

from core.decoding.decoded import BeamSearch, BeamStep, Decoded, likeliest, stack_causal_rows, stack_rows
from core.decoding.repetition import RepetitionPenalty
from core.decoding.strategy import Beam
from core.models import AttentionMaps, Seq2Seq
from core.models.heads import HeadEdits
from core.models.seq2seq import Cache, Memory
from core.vocab import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class _Held:
    """The hypotheses in the beam, K for each source: 1 at first, then as many as there are, up to ``beam_size``.

    Attributes:
        tokens: (B, K) int64, the last one of each.
        totals: (B, K) float, log-probability of each; -inf in a place with nothing to hold.
        lengths: (B, K) int64, tokens in each.
        finished: (B, K) bool, whether it has ended by EOS.
        closed: (B, K) bool, whether it is not to be extended: finished, or its source's search is over.
    """

    tokens: torch.Tensor
    totals: torch.Tensor
    lengths: torch.Tensor
    finished: torch.Tensor
    closed: torch.Tensor

    @staticmethod
    def start(count: int, device: torch.device) -> "_Held":
        """Hold BOS for each source."""
        bos = torch.full((count, 1), BOS_ID, device=device)
        nothing = torch.zeros_like(bos)
        return _Held(bos, nothing.float(), nothing, nothing.bool(), nothing.bool())

    def best(self, log_probs: torch.Tensor, beam_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose what to hold next, from all continuations by one token, (B, K, V).

        Returns:
            Places (B, K') int64 in the flattened (K·V), and whether there is anything, (B, K') bool. What is closed
            comes first, and is continued by PAD alone.
        """
        stay = torch.full_like(log_probs[0, 0], -torch.inf)
        stay[PAD_ID] = torch.inf
        totals = torch.where(self.closed[..., None], stay, self.totals[..., None] + log_probs)
        # Stable: of equals the first, as argmax takes it, so that a beam of 1 is greedy also then.
        ordered = totals.flatten(1).sort(dim=1, descending=True, stable=True)
        return ordered.indices[:, :beam_size], ordered.values[:, :beam_size] > -torch.inf

    def extended(self, log_probs: torch.Tensor, places: torch.Tensor, exists: torch.Tensor) -> tuple["_Held", BeamStep]:
        """Return what is held after the continuations at these places, as ``best`` returns them, are written."""
        size = log_probs.shape[-1]
        parents, tokens = places // size, places % size
        was_closed = self.closed.gather(1, parents) & exists
        written = exists & ~was_closed
        gained = log_probs.flatten(1).gather(1, places).masked_fill(~written, 0)
        totals = (self.totals.gather(1, parents) + gained).masked_fill(~exists, -torch.inf)
        ended = written & (tokens == EOS_ID)
        held = _Held(
            tokens,
            totals,
            self.lengths.gather(1, parents) + written,
            self.finished.gather(1, parents) & was_closed | ended,
            was_closed | ended,
        )
        return held, BeamStep(tokens, parents, gained, totals, written)

    def scores(self, length_penalty: float) -> torch.Tensor:
        """Return log P / ((5 + length) / 6) ** length_penalty, (B, K) float (Wu et al. 2016, eq. 14)."""
        return self.totals / penalty_of(self.lengths, length_penalty)

    def settled(self, strategy: Beam, max_steps: int) -> "_Held":
        """Close the sources whose n best are found: nothing still open can become as good as they are.

        The totals only fall, and the longest answer is penalised least, so an open hypothesis ends at best with its
        present total and the length of ``max_steps``.
        """
        if not self.finished.any():
            return self
        scores = self.scores(strategy.length_penalty).masked_fill(~self.finished, -torch.inf)
        last = scores.sort(dim=1, descending=True).values[:, : strategy.n_best]
        if last.shape[1] < strategy.n_best:
            return self
        open_totals = self.totals.masked_fill(self.closed, -torch.inf).amax(dim=1)
        longest = penalty_of(torch.full_like(open_totals, max_steps), strategy.length_penalty)
        return replace(self, closed=self.closed | (last[:, -1] >= open_totals / longest)[:, None])


@dataclass(frozen=True)
class _Recorded:
    """One step of the search.

    Attributes:
        step: what was held after it.
        rows: (B·K,) int64, the row of the model's batch that each place of the beam came from.
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
    edits: HeadEdits,
) -> Decoded:
    """Search until nothing better can be found; see ``core.decoding.decode`` and ``Beam``.

    Args:
        prefix: (B, P) int64, the first tokens of each output; they count in its log-probability.
    """
    memory = model.encode(src, need_weights=need_weights, edits=edits)
    encoder_weights, memory = memory.weights, replace(memory, weights=None)
    penalty = RepetitionPenalty(strategy.repetition_penalty)
    held, cache, trace = _Held.start(len(src), src.device), None, []
    for number in range(max_steps):
        decoding = model.decode(held.tokens.view(-1, 1), memory, cache, need_weights=need_weights)
        log_probs = penalty.apply(decoding.logits[:, -1].float()).log_softmax(dim=-1)
        of_places = log_probs.view(*held.tokens.shape, -1)
        if number < prefix.shape[1]:
            places = prefix[:, number : number + 1]
            exists = torch.ones_like(places, dtype=torch.bool)
        else:
            places, exists = held.best(of_places, strategy.beam_size)
        held, step = held.extended(of_places, places, exists)
        held = held.settled(strategy, max_steps)
        rows = _rows(step.parents, of_places.shape[1])
        trace.append(
            _Recorded(
                step, rows, log_probs if num_candidates else None, decoding.decoder_weights, decoding.cross_weights
            )
        )
        if (held.closed | held.totals.isneginf()).all():
            break
        cache, memory = _reordered(decoding.cache, memory, rows)
        penalty.note(step.tokens.view(-1, 1), rows)
    found = _best_of(held, trace, strategy, max_steps)
    decoded = _decoded(found, trace, num_candidates)
    return replace(decoded, maps=_maps(found, trace, encoder_weights)) if need_weights else decoded


def _rows(places: torch.Tensor, size: int) -> torch.Tensor:
    """Return the rows (B·K,) int64 of a model's batch that places (B, K) of a beam of that size stand for."""
    first = torch.arange(0, len(places) * size, size, device=places.device)
    return (first[:, None] + places).view(-1)


def _reordered(cache: Cache, memory: Memory, rows: torch.Tensor) -> tuple[Cache, Memory]:
    """Put a cache and a memory in the order of the hypotheses that were kept, unless they are in it."""
    count = len(memory.states)
    if len(rows) != count:
        return cache.rows(rows), memory.rows(rows)
    # All rows of a source have the same memory, and often no hypothesis has moved.
    in_order = torch.equal(rows, torch.arange(count, device=rows.device))
    return cache if in_order else cache.reordered(rows), memory


def _best_of(held: _Held, trace: list[_Recorded], strategy: Beam, max_steps: int) -> BeamSearch:
    """Rank what is held in the end, and follow the best hypotheses back to their beginnings."""
    complete = held.finished | (held.lengths == max_steps)
    scores = held.scores(strategy.length_penalty).masked_fill(~complete, -torch.inf)
    best = scores.sort(dim=1, descending=True, stable=True)
    ends = best.indices[:, : strategy.n_best]
    tokens, winners, places = [], [], ends
    for recorded in reversed(trace):
        tokens.append(recorded.step.tokens.gather(1, places))
        winners.append(places[:, 0])
        places = recorded.step.parents.gather(1, places)
    lengths = held.lengths.gather(1, ends)
    return BeamSearch(
        tokens=torch.stack(tokens[::-1], dim=2)[:, :, : lengths.max()],
        lengths=lengths,
        log_probs=held.totals.gather(1, ends),
        scores=best.values[:, : strategy.n_best],
        steps=tuple(recorded.step for recorded in trace),
        winners=torch.stack(winners[::-1], dim=1),
    )


def _of_winners(
    values: torch.Tensor | None, recorded: _Recorded, places: torch.Tensor, *, dim: int = 0
) -> torch.Tensor | None:
    """Take, of what the model's rows had in a step, that of the rows which places (B,) of the beam came from."""
    if values is None:
        return None
    rows = recorded.rows.view_as(recorded.step.parents).gather(1, places[:, None]).squeeze(1)
    return values.index_select(dim, rows)


def _decoded(found: BeamSearch, trace: list[_Recorded], num_candidates: int) -> Decoded:
    """Return the best hypotheses, with the distributions that their tokens were chosen from."""
    tokens = found.tokens[:, 0, : found.lengths[:, 0].max()]
    steps = list(zip(trace, found.winners.unbind(dim=1), strict=True))[: tokens.shape[1]]
    chances = [recorded.step.log_probs.gather(1, places[:, None]) for recorded, places in steps]
    distributions = [_of_winners(recorded.log_probs, recorded, places) for recorded, places in steps if num_candidates]
    return Decoded(
        tokens, *likeliest(distributions, num_candidates, tokens), None, torch.cat(chances, dim=1), search=found
    )


def _maps(found: BeamSearch, trace: list[_Recorded], encoder_weights: torch.Tensor | None) -> AttentionMaps:
    """Put together the attention of the best hypotheses from the rows of the batch that they came by."""
    steps = list(zip(trace, found.winners.unbind(dim=1), strict=True))[: found.lengths[:, 0].max()]
    decoder_rows = [_of_winners(recorded.decoder_weights, recorded, places, dim=1) for recorded, places in steps]
    cross_rows = [_of_winners(recorded.cross_weights, recorded, places, dim=1) for recorded, places in steps]
    return AttentionMaps(encoder_weights, stack_causal_rows(decoder_rows), stack_rows(cross_rows))
