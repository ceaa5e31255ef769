"""Attention snapshots: the attention maps of a few fixed inputs, recorded repeatedly during training.

The inputs depend on the task only, so runs of one task can be compared. Snapshots are small: one byte per weight, and
at most ``MAX_CELLS`` weights each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from core.evaluation.passes import evaluation_mode
from core.generation import GenerationResult, generate
from core.interpret.head_scores import score_heads
from core.interpret.health import Health
from core.models import Seq2Seq
from core.models.seq2seq import BLOCKS, Block, Head
from core.tasks import Batch, Task, fixed_pairs
from core.tasks.alignment import gold_cells
from core.tasks.data import pad_rows
from core.text.vocab import BOS, BOS_ID, EOS, EOS_ID, PAD_ID

MAX_BYTE = 255  # the byte of a weight of 1; rounding changes a weight by at most 0.002
MAX_CELLS = 50_000  # weights in one snapshot
NUM_SCORED = 32  # inputs for scoring the heads, if there are enough; a few of them are also shown
MAX_SNAPSHOTS = 64  # per run
OPEN_ENDED_STEPS = 32  # tokens generated for an input without a reference answer
_CANDIDATES = 128  # held-out inputs to choose from


HeadMasses = tuple[tuple[float, ...], ...]  # attention mass by layer and head


@dataclass(frozen=True)
class SnapshotInput:
    """An input with recorded attention maps.

    Attributes:
        symbols: of the input.
        expected: the reference answer's symbols; empty for tasks without one.
        gold_cells: (step, source column) of the gold alignment of the reference.
        tokens: all tokens of the source as a user's own model reads them, with its own marks of beginning and end, if
            any, and () if it is a language model; ``expected`` then has its end too. None in runs of the lab, whose
            marks are BOS and EOS.
    """

    symbols: tuple[str, ...]
    expected: tuple[str, ...]
    gold_cells: tuple[tuple[int, int], ...]
    tokens: tuple[str, ...] | None = None

    @property
    def source(self) -> tuple[str, ...]:
        """The tokens that the model reads, the columns of the maps."""
        return (BOS, *self.symbols, EOS) if self.tokens is None else self.tokens

    @property
    def answer(self) -> tuple[str, ...]:
        """The reference answer with its end; empty for tasks without one."""
        return (*self.expected, EOS) if self.expected and self.tokens is None else self.expected


@dataclass(frozen=True)
class PackedMaps:
    """The attention maps of one block as bytes: (L, H, Tq, Tk), weights times ``MAX_BYTE``, rounded."""

    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, weights: torch.Tensor) -> "PackedMaps":
        """Pack weights (L, H, Tq, Tk) float; NaN becomes 0."""
        as_bytes = (weights.nan_to_num() * MAX_BYTE).round().to(torch.uint8)
        return cls(tuple(weights.shape), as_bytes.cpu().numpy().tobytes())

    def array(self) -> np.ndarray:
        """Return the bytes as a read-only array, (L, H, Tq, Tk) uint8."""
        return np.frombuffer(self.data, dtype=np.uint8).reshape(self.shape)


@dataclass(frozen=True)
class SnapshotOutput:
    """A model's greedy answer to a snapshot input, with the attention maps of its generation.

    Attributes:
        tokens: the produced tokens, with EOS if the model produced it.
        maps: by block, for the blocks of the model.
        reference: the tokens of the decoder input, if each token was produced after these and not after those produced
            before it (teacher forcing); None for a generation.
    """

    tokens: tuple[str, ...]
    maps: dict[Block, PackedMaps]
    reference: tuple[str, ...] | None = None

    @property
    def read(self) -> tuple[str, ...]:
        """The token that each step read."""
        return (BOS, *self.tokens[:-1]) if self.reference is None else self.reference


@dataclass(frozen=True)
class Snapshot:
    """A model's answers to the snapshot inputs after ``step`` updates.

    Attributes:
        step: updates made.
        inputs: the inputs with recorded maps, the same at every step; empty if the maps of one input exceed
            ``MAX_CELLS``.
        outputs: one per input.
        attention_mass: by layer and head, the mean attention mass on the gold alignment over the scored inputs, 0-1;
            each input length has equal weight. None if the task or the model has no alignment to score.
        uniform_mass: the attention mass of uniform attention.
        num_scored: number of scored inputs.
        health: measures of heads and layers, and of the last update; None in older files.
    """

    step: int
    inputs: tuple[SnapshotInput, ...]
    outputs: tuple[SnapshotOutput, ...]
    attention_mass: HeadMasses | None = None
    uniform_mass: float | None = None
    num_scored: int = 0
    health: Health | None = None


def snapshot_interval(step: int, *, every: int) -> int:
    """Return the number of steps between the snapshots of a run that has reached ``step``.

    At first every evaluation takes a snapshot. If there would be more than ``MAX_SNAPSHOTS``, including one at a last
    step that is not a multiple of the interval, the interval doubles and every second snapshot is dropped.

    Args:
        every: steps between two evaluations.
    """
    interval = every
    while step // interval + 2 > MAX_SNAPSHOTS:
        interval *= 2
    return interval


def is_snapshot_step(step: int, *, every: int) -> bool:
    """Return whether a run that evaluates every ``every`` steps takes a snapshot at ``step``."""
    return step % snapshot_interval(step, every=every) == 0


def count_snapshots(steps: int, *, every: int) -> int:
    """Return how many snapshots a run of ``steps`` steps takes, including those that are dropped later."""
    count, first, interval = 0, 0, every
    while first <= steps:
        end = (MAX_SNAPSHOTS - 1) * interval  # from here on, the interval is twice as long
        count += len(range(-(-first // interval) * interval, min(end, steps + 1), interval))
        first, interval = end, 2 * interval
    return count + (not is_snapshot_step(steps, every=every))  # the last step always has one


class SnapshotTaker:
    """Takes attention snapshots on fixed inputs of a task.

    The inputs are the task's first example and held-out ones, some as long as the example and some of the maximum
    length. For a task without reference answers they are its first examples. A large model records fewer of them.

    Args:
        task: source of the inputs.
        model: its size decides how many inputs are recorded.

    Attributes:
        inputs: whose maps are recorded.
        pairs: the scored inputs with their reference answers; None for a task without reference answers.
        groups: all decoded inputs, by length.
    """

    def __init__(self, task: Task, model: Seq2Seq) -> None:
        self.task = task
        candidates = _open_ended_inputs(task) if task.open_ended else _inputs_with_answers(task)
        fitting = [each for each in candidates if len(each.source) <= model.max_seq_len]
        shown = _affordable(list(dict.fromkeys(each for each in fitting if each.is_shown)), model)
        self.pairs = None if task.open_ended else _as_pairs(candidates)
        self.inputs = tuple(_snapshot_input(task, each) for each in shown)
        self._has_scores = any(_gold_cells(task, each.symbols(task)) for each in fitting)
        self.groups = _groups(fitting if self._has_scores else shown, shown, model)

    @property
    def num_decoded(self) -> int:
        """Number of inputs that a snapshot decodes, including those that are only scored."""
        return sum(len(group.src) for group in self.groups)

    @torch.no_grad()
    def snapshot(self, model: Seq2Seq, step: int) -> Snapshot:
        """Decode the inputs and record the attention; the model's mode and all random generators are unchanged.

        Args:
            step: updates made so far.
        """
        with evaluation_mode(model):
            results = [generate(model, each.src, max_steps=each.steps, need_weights=True) for each in self.groups]
        outputs: dict[int, SnapshotOutput] = {}
        for group, result in zip(self.groups, results, strict=True):
            outputs |= {index: self._output(result, row) for row, index in group.shown}
        return Snapshot(step, self.inputs, tuple(outputs[index] for index in sorted(outputs)), *self._scores(results))

    def _output(self, result: GenerationResult, row: int) -> SnapshotOutput:
        """Return one row of a generation up to its EOS."""
        ids = result.tokens[row].tolist()
        steps = ids.index(EOS_ID) + 1 if EOS_ID in ids else len(ids)
        encoder, decoder, cross = (getattr(result.maps, block) for block in BLOCKS)
        keys = None if decoder is None else decoder.shape[-1] - len(ids) + steps  # visible to the last step
        cropped = {
            "encoder": None if encoder is None else encoder[:, row],
            "decoder": None if decoder is None else decoder[:, row, :, :steps, :keys],
            "cross": None if cross is None else cross[:, row, :, :steps],
        }
        maps = {block: PackedMaps.of(weights) for block in BLOCKS if (weights := cropped[block]) is not None}
        return SnapshotOutput(tuple(self.task.tgt_vocab.decode(ids[:steps])), maps)

    def _scores(self, results: list[GenerationResult]) -> tuple[HeadMasses | None, float | None, int]:
        """Return the last three fields of a ``Snapshot``, as means over the lengths of the inputs.

        An alignment that depends on the output is not scored: with so few inputs, each step would score different
        words.
        """
        if not self._has_scores:
            return None, None, 0
        groups = zip(self.groups, results, strict=True)
        scores = [score_heads(self.task, Batch(group.src, group.src), result) for group, result in groups]
        if not all(scores) or not scores:
            return None, None, 0
        masses: dict[int, list[float]] = {}
        for same_head in zip(*scores, strict=True):
            mass = fmean(score.attention_mass for score in same_head)
            masses.setdefault(same_head[0].layer, []).append(round(mass, 6))
        uniform_mass = fmean(each[0].uniform_mass for each in scores)
        return tuple(map(tuple, masses.values())), uniform_mass, sum(len(group.src) for group in self.groups)


@dataclass(frozen=True)
class SnapshotGroup:
    """Inputs of one length, decoded together: without PAD the results do not depend on the batch.

    Attributes:
        src: (B, S) int64.
        steps: most tokens to generate.
        shown: (row, index among the snapshot inputs) of the inputs with recorded maps.
    """

    src: torch.Tensor
    steps: int
    shown: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Candidate:
    """An input that may be scored.

    Attributes:
        source: ids with BOS and EOS.
        answer: ids of the reference answer as in the task's targets, usually with EOS; () if there is none.
        steps: most tokens to generate.
        is_shown: whether its maps are recorded.
    """

    source: tuple[int, ...]
    answer: tuple[int, ...]
    steps: int
    is_shown: bool

    def symbols(self, task: Task) -> list[str]:
        return task.src_vocab.decode(self.source[1:-1])


def _open_ended_inputs(task: Task) -> list[_Candidate]:
    """Return the first examples of a task without reference answers."""
    examples = [task.src_vocab.encode(task.tokenize(text)) for text in task.examples[:3]]
    return [_Candidate((BOS_ID, *ids, EOS_ID), (), OPEN_ENDED_STEPS, is_shown=True) for ids in examples]


def _inputs_with_answers(task: Task) -> list[_Candidate]:
    """Return the first example and held-out inputs, half about as long as it, half of the maximum length.

    Besides the example, one short input and two long ones are shown; the others are for the scores. There are only two
    lengths because each length needs a separate decode, and a snapshot should take almost no time.
    """
    example = task.src_vocab.encode(task.tokenize(task.examples[0]))
    answer = (*task.tgt_vocab.encode(task.answer(task.src_vocab.decode(example))), EOS_ID)
    most = len(answer) if len(answer) > 1 else OPEN_ENDED_STEPS  # an example may lack a reference
    candidates = [_Candidate((BOS_ID, *example, EOS_ID), answer, most, is_shown=True)]
    pairs = fixed_pairs(task, _CANDIDATES, split="validation")
    lengths = (pairs.src != PAD_ID).sum(dim=1)
    short = int(lengths[(lengths - len(candidates[0].source)).abs().argmin()])
    for length in dict.fromkeys((short, int(lengths.max()))):
        count = NUM_SCORED // 2 - (length == short)  # the example is one of the short ones
        same_length = pairs[lengths == length][:count]
        steps = (same_length.tgt_out != PAD_ID).sum(dim=1).tolist()
        num_shown = 1 if length == short else 2
        candidates += [
            _Candidate(tuple(source), tuple(target[:most]), most, is_shown=index < num_shown)
            for index, (source, target, most) in enumerate(
                zip(same_length.src[:, :length].tolist(), same_length.tgt_out.tolist(), steps, strict=True)
            )
        ]
    return candidates


def _as_pairs(candidates: Sequence[_Candidate]) -> Batch:
    """Return inputs with their reference answers, padded."""
    sources, targets = [each.source for each in candidates], [(BOS_ID, *each.answer) for each in candidates]
    return Batch(*(pad_rows(rows, max(map(len, rows))) for rows in (sources, targets)))


def _affordable(candidates: list[_Candidate], model: Seq2Seq) -> list[_Candidate]:
    """Return the first inputs with maps that fit into ``MAX_CELLS``."""
    affordable, cells = [], 0
    for each in candidates:
        cells += _num_cells(model.heads, len(each.source), min(each.steps, model.max_seq_len))
        if cells > MAX_CELLS:
            break
        affordable.append(each)
    return affordable


def _num_cells(heads: Sequence[Head], source: int, steps: int) -> int:
    """Return the number of weights that these heads have for ``source`` tokens and ``steps`` steps."""
    blocks = [head.block for head in heads]
    keys = steps if "cross" in blocks else source + steps  # a decoder-only model attends to the source as well
    sizes = {"encoder": source * source, "decoder": steps * keys, "cross": steps * source}
    return sum(sizes[block] for block in blocks)


def _groups(candidates: Sequence[_Candidate], shown: list[_Candidate], model: Seq2Seq) -> list[SnapshotGroup]:
    """Group inputs by length."""
    groups = []
    for length in dict.fromkeys(len(each.source) for each in candidates):
        same = [each for each in candidates if len(each.source) == length]
        src = torch.tensor([each.source for each in same], device=model.device)
        steps = min(max(each.steps for each in same), model.max_seq_len)
        indices = tuple((row, shown.index(each)) for row, each in enumerate(same) if each in shown)
        groups.append(SnapshotGroup(src, steps, indices))
    return groups


def _snapshot_input(task: Task, candidate: _Candidate) -> SnapshotInput:
    symbols = candidate.symbols(task)
    return SnapshotInput(tuple(symbols), tuple(task.answer(symbols)), _gold_cells(task, symbols))


def _gold_cells(task: Task, symbols: Sequence[str]) -> tuple[tuple[int, int], ...]:
    sources = task.gold_alignment(symbols)
    return tuple(gold_cells(sources, steps=len(sources)))
