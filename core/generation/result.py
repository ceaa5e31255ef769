"""What comes out of a decode: the tokens, how likely they were, and how beam search found them."""

from dataclasses import dataclass

import torch

from core.models import AttentionMaps
from core.text.vocab import EOS_ID

NOWHERE = -1  # in place of a place in a beam


@dataclass(frozen=True)
class Hypothesis:
    """One answer that beam search arrived at.

    Attributes:
        tokens: ids, EOS included where it ended.
        log_prob: log P(tokens | source), the sum over the tokens, in nats; with a repetition penalty, as it lowered it.
        score: what the answers are ranked by: the log-probability divided by the length penalty.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float

    @property
    def finished(self) -> bool:
        """Whether it ended by EOS rather than by running out of steps."""
        return self.tokens[-1] == EOS_ID


@dataclass(frozen=True)
class BeamNode:
    """One token in the tree of everything that a beam held for one source.

    Attributes:
        step: at which it was written, from 1.
        token: id.
        parent: index in the tree of the token before it; None at step 1.
        log_prob: of the token, given those before it, in nats.
        total: log-probability of everything up to and with it.
        finished: whether it is EOS, behind which nothing is written.
        winning: whether it is part of the best hypothesis.
    """

    step: int
    token: int
    parent: int | None
    log_prob: float
    total: float
    finished: bool
    winning: bool


@dataclass(frozen=True)
class BeamStep:
    """What a beam kept of one step: the beginnings that go on, then the answers that ended, each likeliest first.

    Attributes:
        tokens: (B, K) int64, the token written in each place; PAD in a place with nothing to hold.
        parents: (B, K) int64, the place, in the step before, of what it continues.
        log_probs: (B, K) float, of the token; 0 where none was written.
        totals: (B, K) float, of all tokens so far; -inf where none was written.
        written: (B, K) bool, whether a token was written there.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    log_probs: torch.Tensor
    totals: torch.Tensor
    written: torch.Tensor

    @property
    def values(self) -> tuple[torch.Tensor, ...]:
        """All of it, in the order above."""
        return self.tokens, self.parents, self.log_probs, self.totals, self.written

    def places(self, row: int) -> zip:
        """Iterate over one source's places: (token, parent, log_prob, total, written) of each."""
        return zip(*(value[row].tolist() for value in self.values), strict=True)


@dataclass(frozen=True)
class BeamSearch:
    """Everything that a beam search held, for a batch of sources.

    Attributes:
        tokens: (B, N, T) int64, the best hypotheses, best first, PAD behind each one's end.
        lengths: (B, N) int64, tokens in each, EOS included.
        log_probs: (B, N) float, of each.
        scores: (B, N) float, what they are ranked by; -inf where there are fewer than N.
        steps: the beam after each step.
        winners: (B, steps) int64, the place of the best hypothesis in each step; ``NOWHERE`` behind its end.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    log_probs: torch.Tensor
    scores: torch.Tensor
    steps: tuple[BeamStep, ...]
    winners: torch.Tensor

    def hypotheses(self, row: int) -> tuple[Hypothesis, ...]:
        """Return the best hypotheses of one source, best first."""
        values = (self.tokens, self.lengths, self.log_probs, self.scores)
        return tuple(
            Hypothesis(tuple(tokens[:length]), log_prob, score)
            for tokens, length, log_prob, score in zip(*(value[row].tolist() for value in values), strict=True)
            if score > -torch.inf
        )

    def tree(self, row: int) -> tuple[BeamNode, ...]:
        """Return every token that was kept for one source, step by step, so parents before their children."""
        nodes: list[BeamNode] = []
        ends: list[int | None] = [None]  # the node that each place of the beam has come to
        for number, (step, winner) in enumerate(zip(self.steps, self.winners[row].tolist(), strict=True), start=1):
            before, ends = ends, []
            for place, (token, parent, log_prob, total, written) in enumerate(step.places(row)):
                if written:
                    finished, winning = token == EOS_ID, place == winner
                    nodes.append(BeamNode(number, token, before[parent], log_prob, total, finished, winning))
                ends.append(len(nodes) - 1 if written else None)
        return tuple(nodes)


@dataclass(frozen=True)
class GenerationResult:
    """What a model wrote for a batch of sources; of a beam search, the best hypotheses.

    "The distribution" of a step is the one the strategy chose from: after the repetition penalty and, when sampling,
    after temperature, top-k and top-p.

    Attributes:
        tokens: (B, T) int64, the tokens produced, EOS included, PAD behind it.
        candidates: (B, T, C) int64, the C likeliest tokens of each step's distribution, likeliest first.
        probabilities: (B, T, C) float, their probabilities.
        maps: attention recorded at these very steps: row t belongs to the step that *produced* ``tokens[:, t]``
            after *reading* the token before it (BOS at t = 0); rows behind EOS mean nothing; None unless asked for.
        log_probs: (B, T) float, log-probability of each token in its step's distribution, in nats; 0 behind EOS,
            and -inf for a forced token that sampling would never have drawn.
        search: how beam search got there; None for other strategies.
    """

    tokens: torch.Tensor
    candidates: torch.Tensor
    probabilities: torch.Tensor
    maps: AttentionMaps | None
    log_probs: torch.Tensor | None = None
    search: BeamSearch | None = None

    @property
    def stopped(self) -> torch.Tensor:
        """(B,) bool: whether each sequence ended by its own EOS."""
        return (self.tokens == EOS_ID).any(dim=1)


def likeliest(log_probs: list[torch.Tensor], count: int, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ``count`` likeliest tokens of each step, and their probabilities, each (B, T, C).

    Args:
        log_probs: one (B, V) a step; not looked at where nobody asked for candidates.
        count: at most the size of the vocabulary is returned.
        tokens: (B, T) int64, what was produced.
    """
    if not count:
        return tokens.new_empty(*tokens.shape, 0), torch.empty(*tokens.shape, 0, device=tokens.device)
    # Equally likely ones come in the order of their ids, as argmax takes them.
    ordered = torch.stack(log_probs, dim=1).sort(dim=-1, descending=True, stable=True)
    return ordered.indices[..., :count], ordered.values[..., :count].exp()


def stack_rows(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    """Join T steps' rows of cross-attention, each (L, B, H, 1, S), to (L, B, H, T, S)."""
    return None if rows[0] is None else torch.cat(rows, dim=3)


def stack_causal_rows(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    """Join T steps' rows, of which step t's is (L, B, H, 1, t), to (L, B, H, T, T), zero above the diagonal."""
    if rows[0] is None:
        return None
    width = rows[-1].shape[-1]
    return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[-1])) for row in rows], dim=3)
