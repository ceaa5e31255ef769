"""One input, looked into: what the model answered, how sure it was, and where every head looked meanwhile."""

import time
from dataclasses import dataclass

import torch

from core.evaluation.accuracy import sequence_log_prob
from core.evaluation.error_rates import nearest_reference
from core.generation import GREEDY, BeamNode, GenerationResult, Strategy, generate
from core.interpret import HeadScore, frame_labels, score_decoded, step_labels
from core.models import AttentionMaps, Seq2Seq
from core.models.heads import NO_INTERVENTIONS, Interventions
from core.storage.errors import InputError
from core.tasks import Batch, Task
from core.text.vocab import BOS_ID, EOS, EOS_ID, UNK

NUM_CANDIDATES = 5


@dataclass(frozen=True)
class Step:
    """One decoding step: what it produced, after reading what, and the likeliest tokens with probabilities 0-1.

    Attributes:
        probability: of the token produced, in the distribution that the strategy chose from.
        forced: whether the token was not chosen, but asked for.
    """

    produced: str
    read: str
    candidates: tuple[tuple[str, float], ...]
    probability: float
    forced: bool = False


@dataclass(frozen=True)
class Ranked:
    """One of the best answers of a beam search.

    Attributes:
        output: its symbols, EOS left out.
        log_prob: of the whole, its end included, in the distributions that the search chose from; in nats.
        score: the log-probability divided by the length penalty; the answers are ranked by it.
        stopped: whether it ended by EOS.
    """

    output: list[str]
    log_prob: float
    score: float
    stopped: bool


@dataclass(frozen=True)
class Branch:
    """One token in the tree of what a beam search held; see ``BeamNode``."""

    token: str
    node: BeamNode


@dataclass(frozen=True)
class Inspection:
    """A decode that happened, with everything there is to see in it.

    Attributes:
        symbols: the input as the model reads it: a word that is not known is UNK.
        output: the answer's symbols, EOS left out.
        expected: the right answer, the one most like the output where there are several; None where none is known.
        stopped: whether the model ended by EOS rather than by running out of positions.
        steps: one a produced token, EOS included.
        maps: attention of this decode, batch of one; rows are the steps.
        scores: of the cross-attention heads on this decode.
        log_prob: of the answer in the model's own distribution, whatever strategy wrote it; nats.
        sources: of the right answer's symbols in the input; see ``Task.sources``.
        seconds: the decode took.
        note: what else there is to say about the input, or "".
        strategy: how the tokens were chosen.
        interventions: what was done to heads meanwhile.
        ranked: the best answers of a beam search, the one shown first; empty for other strategies.
        tree: everything a beam search held, parents before their children; empty for other strategies.
    """

    symbols: list[str]
    output: list[str]
    expected: list[str] | None
    stopped: bool
    steps: tuple[Step, ...]
    maps: AttentionMaps
    scores: list[HeadScore]
    sources: list[list[int]]
    log_prob: float
    seconds: float
    note: str = ""
    strategy: Strategy = GREEDY
    interventions: Interventions = NO_INTERVENTIONS
    ranked: tuple[Ranked, ...] = ()
    tree: tuple[Branch, ...] = ()

    @property
    def correct(self) -> bool | None:
        """Whether the answer is exactly right and the model stopped by itself; None where many are as good."""
        return None if self.expected is None else self.stopped and self.output == self.expected

    @property
    def over_source(self) -> torch.Tensor | None:
        """Where writing looked in the source, (L, 1, H, T, S), or None; see ``AttentionMaps.over_source``."""
        return self.maps.over_source(len(self.symbols) + 2)

    @property
    def source_labels(self) -> list[str]:
        """Names of the source positions: BOS, the input, EOS."""
        return frame_labels(self.symbols)


def inspect(
    model: Seq2Seq,
    task: Task,
    text: str,
    *,
    strategy: Strategy = GREEDY,
    prefix: str = "",
    interventions: Interventions = NO_INTERVENTIONS,
) -> Inspection:
    """Decode what a person typed and record it all.

    Args:
        model: in evaluation mode.
        text: as typed.
        strategy: how the tokens are chosen.
        prefix: what the answer must begin with, as typed.
        interventions: what is done to heads meanwhile.

    Raises:
        InputError: the text is not an input of this task, the prefix none of its answers, either is too long for the
            model, or it lacks a head that something is to be done to; the message says why.
    """
    typed = task.read(text)
    positions = len(typed) + 2
    if positions > model.max_seq_len:
        raise InputError(
            f"input has {len(typed)} tokens, {positions} with BOS and EOS; "
            f"this model reads at most max_seq_len={model.max_seq_len}"
        )
    ids = task.src_vocab.encode(typed)
    symbols = task.src_vocab.decode(ids)
    src = torch.tensor([[BOS_ID, *ids, EOS_ID]], device=model.device)
    forced = _read_prefix(task, prefix, model.max_seq_len)
    started = time.perf_counter()
    decoded = generate(
        model,
        src,
        max_steps=model.max_seq_len,
        strategy=strategy,
        prefix=forced,
        num_candidates=NUM_CANDIDATES,
        need_weights=True,
        interventions=interventions,
    )
    seconds = time.perf_counter() - started
    tokens = task.tgt_vocab.decode(decoded.tokens[0].tolist())
    stopped = bool(decoded.stopped[0])
    return Inspection(
        strategy=strategy,
        interventions=interventions,
        ranked=_ranked(task, decoded),
        tree=_tree(task, decoded),
        symbols=symbols,
        output=_without_end(tokens),
        expected=_nearest(_without_end(tokens), task.references(symbols)),
        stopped=stopped,
        steps=_steps(task, decoded, len(forced)),
        maps=decoded.maps,
        scores=score_decoded(task, Batch(src, src), decoded),
        sources=task.sources(symbols),
        log_prob=sequence_log_prob(model, src, decoded.tokens, interventions=interventions).item(),
        seconds=seconds,
        note="; ".join(filter(None, [_unknown_note(typed, symbols), task.note(symbols)])),
    )


def _read_prefix(task: Task, prefix: str, max_seq_len: int) -> list[int]:
    """Return the ids of typed tokens of an answer; where both sides have one vocabulary, typed as inputs are."""
    if not prefix.strip():
        return []
    try:
        tokens = task.read(prefix) if task.tgt_vocab is task.src_vocab else prefix.split()
        ids = task.tgt_vocab.encode(tokens)
    except InputError as error:
        raise InputError(f"prefix: {error}") from error
    if len(ids) >= max_seq_len:
        raise InputError(f"prefix has {len(ids)} tokens, {len(ids) + 1} with EOS; this model writes {max_seq_len}")
    return ids


def _steps(task: Task, decoded: GenerationResult, num_forced: int) -> tuple[Step, ...]:
    """Name what each step of a batch of one produced, and the tokens that were likely there."""
    names = task.tgt_vocab.decode
    produced, read = step_labels(names(decoded.tokens[0].tolist()))
    candidates = [
        tuple((name, share) for name, share in zip(names(ids), shares, strict=True) if share > 0)
        for ids, shares in zip(decoded.candidates[0].tolist(), decoded.probabilities[0].tolist(), strict=True)
    ]
    probabilities = decoded.log_probs[0].exp().tolist()
    return tuple(
        Step(*step, forced=number < num_forced)
        for number, step in enumerate(zip(produced, read, candidates, probabilities, strict=True))
    )


def _ranked(task: Task, decoded: GenerationResult) -> tuple[Ranked, ...]:
    """Name the best hypotheses of a batch of one."""
    return tuple(
        Ranked(_without_end(task.tgt_vocab.decode(each.tokens)), each.log_prob, each.score, each.finished)
        for each in (decoded.search.hypotheses(0) if decoded.search else ())
    )


def _tree(task: Task, decoded: GenerationResult) -> tuple[Branch, ...]:
    """Name the tokens in the beam search of a batch of one."""
    nodes = decoded.search.tree(0) if decoded.search else ()
    return tuple(Branch(task.tgt_vocab.tokens[node.token], node) for node in nodes)


def _nearest(output: list[str], references: list[list[str]]) -> list[str] | None:
    """Return the right answer that takes the fewest interventions; None where none is known."""
    return nearest_reference(output, references)[1] if references else None


def _without_end(tokens: list[str]) -> list[str]:
    return [token for token in tokens if token != EOS]


def _unknown_note(typed: list[str], symbols: list[str]) -> str:
    unknown = dict.fromkeys(word[:20] for word, read in zip(typed, symbols, strict=True) if word != read)
    return f"not in its vocabulary, so read as {UNK}: {', '.join(unknown)}" if unknown else ""
