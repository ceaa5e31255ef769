"""Fixed inputs that a model answers again and again while it trains, so that its attention can be watched changing.

The inputs depend on the task only, so runs of one task can be compared. What is kept of an answer is small: a byte a
weight, and at most ``MAX_CELLS`` weights a snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from core.evaluation.accuracy import evaluation_mode
from core.generation import GenerationResult, generate
from core.interpret import gold_cells, score_decoded
from core.models import Seq2Seq
from core.models.heads import BLOCKS, Block, Head
from core.tasks import Batch, Task, fixed_pairs
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

FULL = 255  # a weight of 1, as it is kept; rounding to a 255th changes a weight by 0.002 at most
MAX_CELLS = 50_000  # weights in one snapshot
SCORED = 32  # inputs that the heads are scored on, if there are as many, some of them shown
MAX_SNAPSHOTS = 64  # of a run
OPEN_ENDED_STEPS = 32  # written for an input that has no right answer
_CANDIDATES = 128  # held-out inputs to choose from


Shares = tuple[tuple[float, ...], ...]  # by layer and head


@dataclass(frozen=True)
class ProbeInput:
    """An input whose attention is kept.

    Attributes:
        expected: the right answer's symbols; empty where many answers are as good.
        gold_cells: (step, source column) of a map where the symbols of the right answer come from.
    """

    symbols: tuple[str, ...]
    expected: tuple[str, ...]
    gold_cells: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PackedMaps:
    """All heads' maps of one kind, a byte a weight: (L, H, Tq, Tk), the weights times ``FULL`` and rounded."""

    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, weights: torch.Tensor) -> "PackedMaps":
        """Pack weights (L, H, Tq, Tk) float; one that is not a number counts as 0."""
        return cls(tuple(weights.shape), (weights.nan_to_num() * FULL).round().to(torch.uint8).cpu().numpy().tobytes())

    def array(self) -> np.ndarray:
        """Return them as they are kept, (L, H, Tq, Tk) uint8, not to be written to."""
        return np.frombuffer(self.data, dtype=np.uint8).reshape(self.shape)


@dataclass(frozen=True)
class ProbeAnswer:
    """What a model wrote for a probe input, greedily, and where its heads looked meanwhile.

    Attributes:
        tokens: produced, EOS included if it came before the steps ran out.
        maps: by block, of those that the model has.
    """

    tokens: tuple[str, ...]
    maps: dict[Block, PackedMaps]


@dataclass(frozen=True)
class Snapshot:
    """What a model did with the probe inputs after ``step`` updates.

    Attributes:
        inputs: whose attention is kept, the same at every step; none where one input's would be too much to keep.
        answers: one an input.
        shares: by layer and head, the mean attention on the true source token over the scored inputs, 0-1, in
            which each of their lengths counts alike; None where the task or the model has nothing to score.
        uniform: what such a share would be if every source token got the same weight.
        scored: how many inputs were scored.
    """

    step: int
    inputs: tuple[ProbeInput, ...]
    answers: tuple[ProbeAnswer, ...]
    shares: Shares | None = None
    uniform: float | None = None
    scored: int = 0


@dataclass(frozen=True)
class _Group:
    """Inputs of one length: decoded together, each comes out as it would alone, whatever the model makes of PAD.

    Attributes:
        src: (B, S) int64.
        steps: most tokens to write.
        kept: (row, place among the probe inputs) of those whose attention is kept.
    """

    src: torch.Tensor
    steps: int
    kept: tuple[tuple[int, int], ...]


def spacing(step: int, *, every: int) -> int:
    """Return how many steps lie between the snapshots of a run that has come to a step.

    At first there is one at every evaluation. Whenever there would be more than ``MAX_SNAPSHOTS``, with one for a last
    step that is off the beat, every second is dropped, and only every second is taken from there on.

    Args:
        every: steps between two evaluations.
    """
    between = every
    while step // between + 2 > MAX_SNAPSHOTS:
        between *= 2
    return between


def is_kept(step: int, *, every: int) -> bool:
    """Tell whether a run that evaluates every so many steps takes a snapshot at one of them."""
    return step % spacing(step, every=every) == 0


class Probes:
    """The probe inputs of a task: its first example, held-out ones of its length, and of the longest there is.

    A task without a right answer is shown by its first examples. A large model keeps fewer of them.

    Args:
        model: whose attention is to be kept; what it is made of decides how many inputs that can be done for.
    """

    def __init__(self, task: Task, model: Seq2Seq) -> None:
        self.task = task
        chosen = _open_ended_inputs(task) if task.open_ended else _inputs_with_answers(task)
        fitting = [each for each in chosen if len(each.source) <= model.max_seq_len]
        shown = _affordable(list(dict.fromkeys(each for each in fitting if each.shown)), model)
        self.inputs = tuple(_described(task, each) for each in shown)
        has_scores = any(_true_cells(task, each.symbols(task)) for each in fitting)
        self._groups = _groups(fitting if has_scores else shown, shown, model)

    @torch.no_grad()
    def snapshot(self, model: Seq2Seq, step: int) -> Snapshot:
        """Let the model answer the inputs and keep its attention; its mode is left as it was, and nothing is drawn.

        Args:
            step: updates made so far.
        """
        with evaluation_mode(model):
            decodes = [generate(model, each.src, max_steps=each.steps, need_weights=True) for each in self._groups]
        answers: dict[int, ProbeAnswer] = {}
        for group, decoded in zip(self._groups, decodes, strict=True):
            answers |= {place: self._answer(decoded, row) for row, place in group.kept}
        return Snapshot(step, self.inputs, tuple(answers[place] for place in sorted(answers)), *self._scores(decodes))

    def _answer(self, decoded: GenerationResult, row: int) -> ProbeAnswer:
        """Return one row of a decode up to its EOS."""
        ids = decoded.tokens[row].tolist()
        steps = ids.index(EOS_ID) + 1 if EOS_ID in ids else len(ids)
        encoder, decoder, cross = (getattr(decoded.maps, block) for block in BLOCKS)
        read = None if decoder is None else decoder.shape[-1] - len(ids) + steps  # keys there are by the last step
        made = {
            "encoder": None if encoder is None else encoder[:, row],
            "decoder": None if decoder is None else decoder[:, row, :, :steps, :read],
            "cross": None if cross is None else cross[:, row, :, :steps],
        }
        maps = {block: PackedMaps.of(weights) for block, weights in made.items() if weights is not None}
        return ProbeAnswer(tuple(self.task.tgt_vocab.decode(ids[:steps])), maps)

    def _scores(self, decodes: list[GenerationResult]) -> tuple[Shares | None, float | None, int]:
        """Score the heads on the inputs of each length: the means over the lengths, the same for uniform attention
        (see ``Snapshot``), and how many inputs these are.
        """
        groups = zip(self._groups, decodes, strict=True)
        scores = [score_decoded(self.task, Batch(group.src, group.src), decoded) for group, decoded in groups]
        if not all(scores) or not scores:
            return None, None, 0
        shares: dict[int, list[float]] = {}
        for same_head in zip(*scores, strict=True):
            share = fmean(score.share for score in same_head)
            shares.setdefault(same_head[0].layer, []).append(round(share, 6))
        uniform = fmean(each[0].uniform for each in scores)
        return tuple(map(tuple, shares.values())), uniform, sum(len(group.src) for group in self._groups)


@dataclass(frozen=True)
class _Chosen:
    """An input, as ids with BOS and EOS, the most steps to answer it in, and whether its attention is to be kept."""

    source: tuple[int, ...]
    steps: int
    shown: bool

    def symbols(self, task: Task) -> list[str]:
        return task.src_vocab.decode(self.source[1:-1])


def _open_ended_inputs(task: Task) -> list[_Chosen]:
    """Return the first examples of a task that has no right answers."""
    typed = [task.src_vocab.encode(task.read(text)) for text in task.examples[:3]]
    return [_Chosen((BOS_ID, *ids, EOS_ID), OPEN_ENDED_STEPS, shown=True) for ids in typed]


def _inputs_with_answers(task: Task) -> list[_Chosen]:
    """Return the first example and held-out inputs, half about as long as it, half as long as they get.

    One more of the short ones and two of the long ones are to be shown, the others are for the scores. There are only
    two lengths because each takes a decode of its own, and they are to take next to no time.
    """
    example = task.src_vocab.encode(task.read(task.examples[0]))
    steps = len(task.answer(task.src_vocab.decode(example))) + 1
    chosen = [_Chosen((BOS_ID, *example, EOS_ID), steps, shown=True)]
    pairs = fixed_pairs(task, _CANDIDATES, split="validation")
    lengths = (pairs.src != PAD_ID).sum(dim=1)
    short = int(lengths[(lengths - len(chosen[0].source)).abs().argmin()])
    for length in dict.fromkeys((short, int(lengths.max()))):
        room = SCORED // 2 - (length == short)  # the example is one of the short ones
        same = pairs[lengths == length][:room]
        answers = (same.tgt_out != PAD_ID).sum(dim=1).tolist()
        shown = 1 if length == short else 2
        chosen += [
            _Chosen(tuple(source), answer, shown=place < shown)
            for place, (source, answer) in enumerate(zip(same.src[:, :length].tolist(), answers, strict=True))
        ]
    return chosen


def _affordable(chosen: list[_Chosen], model: Seq2Seq) -> list[_Chosen]:
    """Return as many of the inputs, in their order, as ``MAX_CELLS`` allows for."""
    kept, cells = [], 0
    for each in chosen:
        cells += _cells(model.heads, len(each.source), min(each.steps, model.max_seq_len))
        if cells > MAX_CELLS:
            break
        kept.append(each)
    return kept


def _cells(heads: Sequence[Head], source: int, steps: int) -> int:
    """Return how many weights these heads have for a source of so many tokens and as many steps."""
    blocks = [head.block for head in heads]
    read = steps if "cross" in blocks else source + steps  # a decoder that read the source itself looks back at it
    sizes = {"encoder": source * source, "decoder": steps * read, "cross": steps * source}
    return sum(sizes[block] for block in blocks)


def _groups(chosen: Sequence[_Chosen], shown: list[_Chosen], model: Seq2Seq) -> list[_Group]:
    """Put inputs of one length together."""
    groups = []
    for length in dict.fromkeys(len(each.source) for each in chosen):
        same = [each for each in chosen if len(each.source) == length]
        src = torch.tensor([each.source for each in same], device=model.device)
        steps = min(max(each.steps for each in same), model.max_seq_len)
        kept = tuple((row, shown.index(each)) for row, each in enumerate(same) if each in shown)
        groups.append(_Group(src, steps, kept))
    return groups


def _described(task: Task, chosen: _Chosen) -> ProbeInput:
    symbols = chosen.symbols(task)
    return ProbeInput(tuple(symbols), tuple(task.answer(symbols)), _true_cells(task, symbols))


def _true_cells(task: Task, symbols: Sequence[str]) -> tuple[tuple[int, int], ...]:
    sources = task.sources(symbols)
    return tuple(gold_cells(sources, steps=len(sources)))
