"""Results of decoding: tokens and their probabilities, attention maps, and the hypotheses of a beam search."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.models import AttentionMaps
from core.text.vocab import EOS_ID, PAD_ID

NO_SLOT = -1  # in ``BeamSearch.best_slots``: the best hypothesis has already ended


@dataclass(frozen=True)
class Hypothesis:
    """A complete output found by beam search.

    Attributes:
        tokens: ids, including EOS unless the steps ran out.
        log_prob: log P(tokens | source) in nats, after the repetition penalty.
        score: ``log_prob`` divided by the length penalty; hypotheses are ranked by it.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float

    @property
    def finished(self) -> bool:
        """Whether it ended with EOS rather than at ``max_steps``."""
        return self.tokens[-1] == EOS_ID


@dataclass(frozen=True)
class BeamNode:
    """A token in the beam search tree of one source.

    Attributes:
        step: decoding step, from 1.
        token: id.
        parent: index of the previous token's node in the tree; None at step 1.
        log_prob: log-probability of the token given the previous ones, in nats.
        total_log_prob: log-probability of the partial hypothesis up to and including the token.
        finished: whether the token is EOS, which has no children.
        is_best: whether the node belongs to the best hypothesis.
    """

    step: int
    token: int
    parent: int | None
    log_prob: float
    total_log_prob: float
    finished: bool
    is_best: bool


@dataclass(frozen=True)
class BeamStep:
    """The beam after one step, in K slots: first the running hypotheses, then those that ended, each most likely first.

    Attributes:
        tokens: (B, K) int64, the token chosen in each slot; PAD in an empty slot.
        parents: (B, K) int64, the slot in the previous step that each hypothesis continues.
        log_probs: (B, K) float, of the token; 0 in an empty slot.
        total_log_probs: (B, K) float, of the whole partial hypothesis; -inf in an empty slot.
        is_active: (B, K) bool, whether the slot holds a hypothesis.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    log_probs: torch.Tensor
    total_log_probs: torch.Tensor
    is_active: torch.Tensor

    def in_rows(self, rows: torch.Tensor, num_rows: int) -> "BeamStep":
        """Return the beam of ``num_rows`` sources: these in ``rows``, (R,) int64, and empty slots elsewhere."""
        columns = (self.tokens, self.parents, self.log_probs, self.total_log_probs, self.is_active)
        fills = (PAD_ID, 0, 0, -torch.inf, False)
        return BeamStep(*(in_rows(each, rows, num_rows, fill) for each, fill in zip(columns, fills, strict=True)))

    def slots(self, row: int) -> Iterator[tuple[int, int, float, float, bool]]:
        """Yield (token, parent, log_prob, total_log_prob, is_active) of each slot of one source."""
        columns = (self.tokens, self.parents, self.log_probs, self.total_log_probs, self.is_active)
        return zip(*(column[row].tolist() for column in columns), strict=True)


@dataclass(frozen=True)
class BeamSearch:
    """The best hypotheses of a beam search for a batch of sources, and the beam after each step.

    Attributes:
        tokens: (B, N, T) int64, the N best hypotheses, best first, PAD after each one's end.
        lengths: (B, N) int64, number of tokens, EOS included.
        log_probs: (B, N) float, log P(tokens | source).
        scores: (B, N) float, what hypotheses are ranked by; -inf if there are fewer than N.
        steps: the beam after each step.
        best_slots: (B, steps) int64, the best hypothesis' slot in each step; ``NO_SLOT`` after its end.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    log_probs: torch.Tensor
    scores: torch.Tensor
    steps: tuple[BeamStep, ...]
    best_slots: torch.Tensor

    def hypotheses(self, row: int) -> tuple[Hypothesis, ...]:
        """Return the best hypotheses of one source, best first."""
        columns = (self.tokens, self.lengths, self.log_probs, self.scores)
        return tuple(
            Hypothesis(tuple(tokens[:length]), log_prob, score)
            for tokens, length, log_prob, score in zip(*(column[row].tolist() for column in columns), strict=True)
            if score > -torch.inf
        )

    def tree(self, row: int) -> tuple[BeamNode, ...]:
        """Return the search tree of one source: the tokens kept at each step, parents before their children."""
        nodes: list[BeamNode] = []
        slot_nodes: list[int | None] = [None]  # index of the node that each slot has reached
        for number, (step, best_slot) in enumerate(
            zip(self.steps, self.best_slots[row].tolist(), strict=True), start=1
        ):
            parent_nodes, slot_nodes = slot_nodes, []
            for slot, (token, parent, log_prob, total_log_prob, is_active) in enumerate(step.slots(row)):
                if is_active:
                    finished, is_best = token == EOS_ID, slot == best_slot
                    nodes.append(
                        BeamNode(number, token, parent_nodes[parent], log_prob, total_log_prob, finished, is_best)
                    )
                slot_nodes.append(len(nodes) - 1 if is_active else None)
        return tuple(nodes)


@dataclass(frozen=True)
class GenerationResult:
    """The tokens generated for a batch of sources; for beam search, those of the best hypotheses.

    "The distribution" of a step is the one the token was chosen from: after the repetition penalty and, for sampling,
    after temperature, top-k and top-p.

    Attributes:
        tokens: (B, T) int64, EOS included, PAD after it.
        candidates: (B, T, C) int64, the C most likely tokens of each step's distribution, most likely first.
        probabilities: (B, T, C) float, their probabilities.
        maps: attention recorded in these steps: row t belongs to the step that *produced* ``tokens[:, t]`` after
            *reading* the previous token (BOS at t = 0). Rows after EOS are meaningless. None unless recorded.
        log_probs: (B, T) float, log-probability of each token in its step's distribution, in nats; 0 after EOS, -inf
            for a forced token that top-k or top-p excludes.
        search: the beam search; None for other strategies.
    """

    tokens: torch.Tensor
    candidates: torch.Tensor
    probabilities: torch.Tensor
    maps: AttentionMaps | None
    log_probs: torch.Tensor
    search: BeamSearch | None = None

    @property
    def stopped(self) -> torch.Tensor:
        """Whether each sequence ended with EOS, (B,) bool."""
        return (self.tokens == EOS_ID).any(dim=1)


def in_rows(values: torch.Tensor, rows: torch.Tensor, num_rows: int, fill: float) -> torch.Tensor:
    """Return a tensor (``num_rows``, N) with values (R, N) in their rows and ``fill`` in the others."""
    if len(values) == num_rows:
        return values
    return values.new_full((num_rows, *values.shape[1:]), fill).index_copy(0, rows, values)


def top_candidates(
    log_probs: list[torch.Tensor], count: int, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ``count`` most likely tokens of each step and their probabilities, each (B, T, C).

    Args:
        log_probs: (B, V) float for each of T steps; may be empty if ``count`` is 0.
        count: number of candidates C, limited to the vocabulary size.
        tokens: (B, T) int64, the tokens generated.
    """
    if not count:
        return tokens.new_empty(*tokens.shape, 0), torch.empty(*tokens.shape, 0, device=tokens.device)
    # A stable sort puts equally likely tokens in the order of their ids, as argmax does.
    ordered = torch.stack(log_probs, dim=1).sort(dim=-1, descending=True, stable=True)
    return ordered.indices[..., :count], ordered.values[..., :count].exp()


def stack_rows(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    """Concatenate the cross-attention rows of T steps, each (L, B, H, 1, S), to (L, B, H, T, S)."""
    recorded = [row for row in rows if row is not None]
    return torch.cat(recorded, dim=3) if recorded else None


def stack_causal_rows(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    """Concatenate the self-attention rows of T steps, step t's (L, B, H, 1, t), to (L, B, H, T, T), zero-padded."""
    recorded = [row for row in rows if row is not None]
    if not recorded:
        return None
    width = recorded[-1].shape[-1]
    return torch.cat([F.pad(row, (0, width - row.shape[-1])) for row in recorded], dim=3)
