"""Inspect one input: decode it and record tokens, probabilities, attention maps and alignment scores."""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from core.config.counting import counted
from core.generation import GREEDY, BeamNode, GenerationResult, Strategy, generate, sequence_log_prob
from core.generation.reading import read_input
from core.models import AttentionMaps, Seq2Seq
from core.storage.errors import InputError
from core.tasks import Batch, Split, Task
from core.text.vocab import BOS, BOS_ID, EOS, EOS_ID

if TYPE_CHECKING:  # decoding on the command line needs neither
    from core.interpret.head_scores import HeadScore
    from core.interpret.interventions import Interventions

NUM_CANDIDATES = 5


SURENESS = {
    True: "its tokens are less probable on average than in nine of ten correct validation answers",
    False: "its tokens are about as probable as in correct validation answers, which does not make it right",
}
"""What is known about an answer, by ``Inspection.is_unsure``."""


@dataclass(frozen=True)
class Step:
    """One decoding step.

    Attributes:
        produced: the token this step generated.
        read: the decoder input of this step: BOS, then the token produced before.
        candidates: the most probable tokens with their probabilities, 0-1, best first.
        probability: of the produced token, in the distribution that the strategy chose from.
        forced: whether the token belongs to a given prefix and was not chosen by the strategy.
    """

    produced: str
    read: str
    candidates: tuple[tuple[str, float], ...]
    probability: float
    forced: bool = False


@dataclass(frozen=True)
class RankedHypothesis:
    """One of the best hypotheses of a beam search.

    Attributes:
        output: its symbols, without EOS.
        log_prob: of the whole sequence, EOS included, in the distributions that the search used; in nats.
        score: the log-probability divided by the length penalty; hypotheses are ranked by it.
        stopped: whether it ended with EOS.
    """

    output: list[str]
    log_prob: float
    score: float
    stopped: bool


@dataclass(frozen=True)
class TreeNode:
    """One node of the beam search tree, with its token as text; see ``BeamNode``."""

    token: str
    node: BeamNode


@dataclass(frozen=True)
class Inspection:
    """One decoded input and its recordings.

    Attributes:
        symbols: the input as the model reads it; unknown words are UNK.
        output: the answer's symbols, without EOS.
        expected: the reference, or the nearest to the output if there are several; None for tasks without references.
        stopped: whether the model produced EOS before it reached its maximum length.
        steps: one per produced token, EOS included.
        maps: attention maps of this generation, batch of one; rows of decoder and cross maps are the steps.
        sources: gold alignment; see ``Task.produced_alignment``.
        log_prob: of the answer in the model's own distribution, whichever strategy chose it; nats.
        seconds: duration of the generation.
        note: a remark about the input, such as unknown words, or "".
        split: of the input; None if it is in none, or if that is not known.
        strategy: the decoding strategy.
        interventions: applied to the heads during generation, or None.
        scored: the data from which ``scores`` is computed when it is read.
        hypotheses: the best of a beam search, the answer first; empty for other strategies.
        tree: all nodes of a beam search, parents before their children; empty for other strategies.
        confidence_threshold: mean log-probability per token that nine in ten of the model's correct outputs reach, see
            ``core.evaluation.confidence``; None if it is not known for these weights and this strategy.
    """

    symbols: list[str]
    output: list[str]
    expected: list[str] | None
    stopped: bool
    steps: tuple[Step, ...]
    maps: AttentionMaps
    sources: list[list[int]]
    log_prob: float
    seconds: float
    note: str = ""
    split: Split | None = None
    strategy: Strategy = GREEDY
    interventions: "Interventions | None" = None
    hypotheses: tuple[RankedHypothesis, ...] = ()
    tree: tuple[TreeNode, ...] = ()
    confidence_threshold: float | None = None
    scored: tuple[Task, Batch, GenerationResult] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        source, output = " ".join(self.symbols), " ".join(self.output)
        return f"<Inspection {source!r} → {output!r}, {counted(len(self.steps), 'step')}>"

    @cached_property
    def scores(self) -> "list[HeadScore]":
        """Alignment scores of the heads that attend to the source; [] without a gold alignment."""
        from core.interpret.head_scores import score_heads

        return score_heads(*self.scored) if self.scored else []

    @property
    def correct(self) -> bool | None:
        """Whether the model produced EOS after exactly the expected output; None without a reference."""
        return None if self.expected is None else self.stopped and self.output == self.expected

    @property
    def is_unsure(self) -> bool | None:
        """Whether the mean log-probability of the answer's tokens is below the threshold; None if it is not known."""
        if self.confidence_threshold is None or not self.steps:
            return None
        return self.log_prob / len(self.steps) < self.confidence_threshold

    @property
    def text(self) -> str:
        """The answer as text: words joined from subwords; for other tasks the symbols with spaces between them."""
        return self.scored[0].answer_text(self.output) if self.scored else " ".join(self.output)

    @property
    def has_subwords(self) -> bool:
        """Whether the tokens are subwords, so that the text is not the tokens with spaces between them."""
        return self.scored is not None and self.scored[0].subwords is not None

    @property
    def over_source(self) -> torch.Tensor | None:
        """Attention over the source while decoding, (L, 1, H, T, S), or None; see ``AttentionMaps.over_source``."""
        return self.maps.over_source(len(self.symbols) + 2)

    @property
    def source_labels(self) -> list[str]:
        """Labels of the source positions: BOS, the input, EOS."""
        return label_source(self.symbols)


def label_source(symbols: Sequence[str]) -> list[str]:
    """Label the source positions of a map: BOS, the symbols, EOS."""
    return [BOS, *symbols, EOS]


def label_steps(output: Sequence[str]) -> tuple[list[str], list[str]]:
    """Label the rows of a decoder or cross map: the token each step produced, and the token it read."""
    return list(output), [BOS, *output[:-1]]


def inspect(
    model: Seq2Seq,
    task: Task,
    text: str,
    *,
    strategy: Strategy = GREEDY,
    prefix: str = "",
    interventions: "Interventions | None" = None,
) -> Inspection:
    """Decode a typed input and record everything about it.

    Args:
        model: in evaluation mode.
        text: the input as typed.
        strategy: the decoding strategy.
        prefix: tokens the answer must begin with, as typed.
        interventions: applied to the model's heads.

    Raises:
        InputError: the text or the prefix is not valid for the task or too long for the model, or an intervention
            names a head that the model does not have.
    """
    reading = read_input(model, task, text)
    symbols = reading.symbols
    src = torch.tensor([[BOS_ID, *reading.ids, EOS_ID]], device=model.device)
    forced = _read_prefix(task, prefix, model.max_seq_len) or list(model.forced_start)
    started = time.perf_counter()
    with interventions.applied_to(model) if interventions else nullcontext():
        decoded = generate(
            model,
            src,
            max_steps=model.max_seq_len,
            strategy=strategy,
            prefix=forced,
            num_candidates=NUM_CANDIDATES,
            need_weights=True,
        )
        seconds = time.perf_counter() - started
        log_prob = sequence_log_prob(model, src, decoded.tokens).item()
    tokens = task.tgt_vocab.decode(decoded.tokens[0].tolist())
    stopped = bool(decoded.stopped[0])
    return Inspection(
        strategy=strategy,
        interventions=interventions,
        hypotheses=_hypotheses(task, decoded),
        tree=_tree(task, decoded),
        symbols=symbols,
        output=_without_eos(tokens),
        expected=_nearest(_without_eos(tokens), task.references(symbols)),
        stopped=stopped,
        steps=_steps(task, decoded, len(forced)),
        maps=decoded.maps or AttentionMaps(None, None, None),
        sources=task.produced_alignment(symbols, _without_eos(tokens)),
        log_prob=log_prob,
        seconds=seconds,
        note="; ".join(filter(None, [reading.note, task.note(symbols), *_beyond(interventions, src.shape[1] - 1)])),
        split=task.split_of(symbols),
        scored=(task, Batch(src, src), decoded),
    )


def _beyond(interventions: "Interventions | None", last: int) -> Iterator[str]:
    """Yield a note for every pattern whose position this input does not have; ``last`` is its last column."""
    for head, pattern in interventions.patterns if interventions else ():
        if pattern.position > last:
            yield f"{head} follows {pattern}, but the last position of this input is {last}, which it attends to"


def _read_prefix(task: Task, prefix: str, max_seq_len: int) -> list[int]:
    """Return the ids of a typed prefix: text if the tokens are subwords, or if both sides share a vocabulary."""
    if not prefix.strip():
        return []
    try:
        if task.subwords is not None:
            tokens = task.subwords.sides[1].tokenize(prefix.strip())  # as an input is read
        else:
            tokens = task.tokenize(prefix) if task.tgt_vocab is task.src_vocab else prefix.split()
        ids = task.tgt_vocab.encode(tokens)
    except InputError as error:
        raise InputError(f"prefix: {error}") from error
    if len(ids) >= max_seq_len:
        raise InputError(f"prefix has {len(ids)} tokens, {len(ids) + 1} with EOS; this model writes {max_seq_len}")
    return ids


def _steps(task: Task, decoded: GenerationResult, num_forced: int) -> tuple[Step, ...]:
    """Return the steps of a batch of one as text."""
    to_tokens = task.tgt_vocab.decode
    produced, read = label_steps(to_tokens(decoded.tokens[0].tolist()))
    candidates = [
        tuple((token, each) for token, each in zip(to_tokens(ids), of_step, strict=True) if each > 0)
        for ids, of_step in zip(decoded.candidates[0].tolist(), decoded.probabilities[0].tolist(), strict=True)
    ]
    probabilities = decoded.log_probs[0].exp().tolist()
    return tuple(
        Step(*step, forced=number < num_forced)
        for number, step in enumerate(zip(produced, read, candidates, probabilities, strict=True))
    )


def _hypotheses(task: Task, decoded: GenerationResult) -> tuple[RankedHypothesis, ...]:
    """Return the best hypotheses of a batch of one as text."""
    return tuple(
        RankedHypothesis(_without_eos(task.tgt_vocab.decode(each.tokens)), each.log_prob, each.score, each.finished)
        for each in (decoded.search.hypotheses(0) if decoded.search else ())
    )


def _tree(task: Task, decoded: GenerationResult) -> tuple[TreeNode, ...]:
    """Return the beam search tree of a batch of one with its tokens as text."""
    nodes = decoded.search.tree(0) if decoded.search else ()
    return tuple(TreeNode(task.tgt_vocab.tokens[node.token], node) for node in nodes)


def _nearest(output: list[str], references: list[list[str]]) -> list[str] | None:
    """Return the reference with the smallest edit distance to the output; None if there is no reference."""
    if len(references) < 2:
        return references[0] if references else None
    from core.evaluation.error_rates import nearest_reference  # few tasks need it

    return list(nearest_reference(output, references)[1])


def _without_eos(tokens: list[str]) -> list[str]:
    return [token for token in tokens if token != EOS]
