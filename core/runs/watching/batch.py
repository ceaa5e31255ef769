"""The watched pairs: their loss, teacher-forced predictions and attention by a user's own model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from core.evaluation.accuracy import Evaluation
from core.interpret.any_module.attention import BlockOrder, NoAttentionError, block_order, pair_attention
from core.interpret.any_module.calling import Forward, ModelCall, checked_ids, described, signature_of
from core.interpret.any_module.kept_states import examined
from core.interpret.any_module.tables import Vocab, token_labels, without_pad
from core.interpret.health import HeadHealth, Health, measure_weights
from core.interpret.map_rows import MapRows
from core.interpret.snapshots import MAX_CELLS, PackedMaps, Snapshot, SnapshotInput, SnapshotOutput
from core.models.seq2seq import BLOCKS, Block
from core.storage.errors import InputError

MAX_SHOWN = 4  # pairs whose maps are recorded

Maps = dict[Block, torch.Tensor]  # (L, H, Tq, Tk) float


class WatchedBatch:
    """A batch of pairs, the same at every evaluation.

    Attributes:
        src: (B, S) int64; of a language model its ids.
        tgt_in: (B, T) int64, or None for a language model.
        tgt_out: (B, T) int64, what each position must predict.
        is_real: (B, T) bool, whether a target counts.
        inputs: of the pairs whose predictions and maps are recorded.
        note: why maps are missing, as a sentence without its period; "" if none are.
    """

    def __init__(
        self,
        call: ModelCall,
        model: nn.Module | None,
        batch: Sequence[torch.Tensor],
        *,
        pad: int | None,
        src_vocab: Vocab | None,
        tgt_vocab: Vocab | None,
    ) -> None:
        self._call, self._model, self.note = call, model, ""
        self.src, self.tgt_in, self.tgt_out = _tensors(call, batch)
        self.is_real = self.tgt_out >= 0  # PyTorch's losses ignore -100
        if pad is not None:
            self.is_real = self.is_real & (self.tgt_out != pad)
        if not self.is_real.any():
            raise InputError(f"the targets of batch are PAD only (pad={pad}): there is nothing to predict")
        self._vocab = src_vocab if self.tgt_in is None and tgt_vocab is None else tgt_vocab
        self._before: Mapping[str, torch.Tensor] = {}
        self._orders: dict[int, BlockOrder | None] = {}  # by row
        self._shown = [self._pair(row, pad) for row in range(len(self.src)) if self.is_real[row].any()]
        self._to_device()
        try:
            with examined(model):
                self._shown = self._affordable(self._shown)
        except TypeError as error:
            if _can_call(call.forward, len(batch) - 1):
                raise
            raise InputError(
                f"batch is {len(batch)} tensors, the targets and what forward reads, which does not fit its arguments "
                f"({error}); it must be (src, tgt_in, tgt_out), or (ids, targets) of a language model"
            ) from error
        self.inputs = tuple(self._input(each, src_vocab) for each in self._shown)

    def evaluate(self) -> tuple[Evaluation, tuple[tuple[str, ...], ...]]:
        """Measure the batch under teacher forcing; return the evaluation, and the predicted tokens of each input.

        Raises:
            ModelOutputError: the model does not return logits for every position.
        """
        self._to_device()
        with torch.no_grad(), examined(self._model):
            logits = self._call.logits(self.src, self.tgt_in).float()
            torch.clear_autocast_cache()  # it holds weights without gradients now, which training would use
        logits = _without_softmax(logits)
        predicted = logits.argmax(dim=-1)
        is_right = (predicted == self.tgt_out)[self.is_real]
        rows = [tuple(token_labels(predicted[each.row, : each.length], self._vocab)) for each in self._shown]
        evaluation = Evaluation(
            sequences=len(self.src),
            loss=F.cross_entropy(logits[self.is_real], self.tgt_out[self.is_real]).item(),
            token_accuracy=is_right.float().mean().item(),
            exact_match=math.nan,  # of a decode, which there is none
        )
        return evaluation, tuple(rows)

    def snapshot(self, step: int, evaluation: Evaluation, predicted: Sequence[tuple[str, ...]]) -> Snapshot:
        """Record the attention of the shown pairs.

        Args:
            step: updates made.
            evaluation, predicted: of ``evaluate``, by the same weights.
        """
        self._to_device()
        with examined(self._model):
            maps = [self._maps(each) for each in self._shown]
        outputs = []
        for pair, tokens, of_pair in zip(self._shown, predicted, maps, strict=True):
            packed = {block: PackedMaps.of(weights) for block, weights in of_pair.items()}
            outputs.append(SnapshotOutput(tokens, packed, tuple(token_labels(pair.read, self._vocab))))
        heads, self._before = _head_health(maps, self._before)
        health = Health(
            perplexity=evaluation.perplexity if evaluation.perplexity < float("inf") else None,
            gradient_norm=_gradient_norms(self._model) or None,
            update_size=None,
            heads=heads,
        )
        return Snapshot(step, self.inputs, tuple(outputs), health=health)

    def _pair(self, row: int, pad: int | None) -> "_Pair":
        """Return a row of the batch without PAD, up to the last target that counts."""
        length = int(self.is_real[row].nonzero()[-1]) + 1
        if self.tgt_in is None:
            return _Pair(row, self.src[row, :length], None)
        return _Pair(row, without_pad(self.src[row], pad, also_first=True), self.tgt_in[row, :length])

    def _affordable(self, candidates: Sequence["_Pair"]) -> list["_Pair"]:
        """Return the first pairs whose maps fit into ``MAX_CELLS``; of a language model the beginnings that do."""
        counted = {block: weights.shape[0] * weights.shape[1] for block, weights in self._maps(candidates[0]).items()}
        shown: list[_Pair] = []
        cells = 0
        for pair in candidates:
            if self.tgt_in is None and counted:
                pair = pair.beginning(int((MAX_CELLS / MAX_SHOWN / sum(counted.values())) ** 0.5))
            needed = sum(count * math.prod(pair.shape(block)) for block, count in counted.items())
            if cells + needed <= MAX_CELLS and len(shown) < MAX_SHOWN:
                shown.append(pair)
                cells += needed
        if not shown:
            self._say(
                f"no watched pair has fewer than {MAX_CELLS:,} attention weights, so neither heads nor predictions are "
                "shown; watch shorter pairs"
            )
        return shown

    def _maps(self, pair: "_Pair") -> Maps:
        """Return the maps of one pair; a block whose maps cannot be drawn is left out, with a note."""
        try:
            if pair.row not in self._orders:
                self._orders[pair.row] = block_order(self._call, self._model, pair.source, pair.target)
            order = self._orders[pair.row]
            found, missing = pair_attention(self._call, self._model, pair.source, pair.target, order)
        except NoAttentionError as error:
            self._say(f"no heads: {error}")
            return {}
        self._say(missing)
        return {block: torch.stack(layers) for block, layers in found.items() if self._fits(pair, block, layers)}

    def _fits(self, pair: "_Pair", block: Block, layers: Sequence[torch.Tensor]) -> bool:
        shapes = sorted({tuple(each.shape) for each in layers})
        queries, keys = pair.shape(block)
        if len(shapes) == 1 and shapes[0][1:] == (queries, keys):
            return True
        self._say(
            f"no heads of the {block}: its layers have weights of shape {', '.join(map(str, shapes))} (heads, queries, "
            f"keys) for {queries} queries and {keys} keys"
        )
        return False

    def _say(self, note: str) -> None:
        self.note = self.note or note

    def _input(self, pair: "_Pair", src_vocab: Vocab | None) -> SnapshotInput:
        expected = tuple(token_labels(self.tgt_out[pair.row, : pair.length], self._vocab))
        source = tuple(token_labels(pair.source, src_vocab))
        return SnapshotInput(source, expected, (), () if pair.target is None else source)

    def _to_device(self) -> None:
        """Move the pairs to where the model is now."""
        device = next((each.device for each in self._model.parameters()), None) if self._model is not None else None
        if device is None or device == self.src.device:
            return
        self.src, self.tgt_out, self.is_real = (each.to(device) for each in (self.src, self.tgt_out, self.is_real))
        self.tgt_in = None if self.tgt_in is None else self.tgt_in.to(device)
        self._shown = [each.to(device) for each in self._shown]


@dataclass(frozen=True)
class _Pair:
    """One pair without PAD: its row in the batch, source (S,) int64, and decoder input (T,) int64, if it has any."""

    row: int
    source: torch.Tensor
    target: torch.Tensor | None

    @property
    def read(self) -> torch.Tensor:
        """The ids after each of which the model predicts one."""
        return self.source if self.target is None else self.target

    @property
    def length(self) -> int:
        """How many ids the model predicts."""
        return len(self.read)

    def shape(self, block: Block) -> tuple[int, int]:
        """Return the numbers of queries and keys of a block."""
        return {
            "encoder": (len(self.source), len(self.source)),
            "decoder": (self.length, self.length),
            "cross": (self.length, len(self.source)),
        }[block]

    def beginning(self, length: int) -> "_Pair":
        """Return the first ids of a language model's pair, which later ones do not change."""
        return _Pair(self.row, self.source[: max(2, length)], None)

    def to(self, device: torch.device) -> "_Pair":
        """Return the pair on a device."""
        return _Pair(self.row, self.source.to(device), None if self.target is None else self.target.to(device))


def _tensors(call: ModelCall, batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return source, decoder input and targets, batch first, after checking their shapes."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        given = f"{len(batch)} tensors" if isinstance(batch, tuple | list) else described(batch)
        raise InputError(f"batch is {given}; it must be (src, tgt_in, tgt_out), or (ids, targets) of a language model")
    names = ("src", "tgt_in", "tgt_out") if len(batch) == 3 else ("ids", "targets")
    tensors = [call.turned(checked_ids(name, each)).detach().long() for name, each in zip(names, batch, strict=True)]
    if len({len(each) for each in tensors}) > 1:
        counts = ", ".join(f"{name} has {len(each)}" for name, each in zip(names, tensors, strict=True))
        raise InputError(f"{counts} rows: all must have one per pair")
    read, targets = tensors[-2:]
    if read.shape != targets.shape:
        raise InputError(
            f"{names[-2]} is {tuple(read.shape)} and {names[-1]} is {tuple(targets.shape)}; they must have one shape: "
            f"{names[-1]} has what the model predicts after each id of {names[-2]}"
        )
    return (tensors[0], tensors[1], tensors[2]) if len(tensors) == 3 else (tensors[0], None, tensors[1])


def _can_call(forward: Forward, count: int) -> bool:
    """Whether a model can be called with so many arguments, as far as its signature says."""
    signature = signature_of(forward)
    try:
        return signature is None or bool(signature.bind(*range(count)))
    except TypeError:
        return False


def _without_softmax(logits: torch.Tensor) -> torch.Tensor:
    """Return logits; of a model that returns probabilities their logarithms, which are logits of the same."""
    sums = logits.sum(dim=-1)
    is_normalized = bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    return logits.clamp(min=1e-30).log() if is_normalized else logits


def _head_health(
    maps: Sequence[Maps], before: Mapping[str, torch.Tensor]
) -> tuple[HeadHealth, dict[str, torch.Tensor]]:
    """Measure the heads on the rows of all pairs; return the rows too, for the next snapshot."""
    weights, rows = dict[Block, torch.Tensor](), dict[Block, MapRows]()
    for block in BLOCKS:
        of_block = [(at, each[block]) for at, each in enumerate(maps) if block in each]
        if of_block and len(of_block) == len(maps):
            weights[block], rows[block] = _rows(block, of_block)
    filled = {block: each for block, each in weights.items() if each.shape[2]}
    return measure_weights(filled, rows, before), {str(block): each for block, each in filled.items()}


def _rows(block: Block, maps: Sequence[tuple[int, torch.Tensor]]) -> tuple[torch.Tensor, MapRows]:
    """Return the rows of the maps of several pairs that have more than one key, (L, H, N, K), with what they see."""
    num_keys = max(each.shape[-1] for _, each in maps)
    weights, visible, offsets, sequence, index = [], [], [], [], []
    for at, each in maps:
        queries, keys = (torch.arange(size, device=each.device) for size in each.shape[2:])
        distance = keys - queries[:, None]
        sees = torch.ones_like(distance, dtype=torch.bool)
        if block == "decoder":
            sees = (distance <= 0) | (each > 0).any(dim=1).any(dim=0)
        valid = sees.sum(dim=-1) > 1
        missing = num_keys - each.shape[-1]
        weights.append(F.pad(each.nan_to_num(), (0, missing))[:, :, valid])
        visible.append(F.pad(sees, (0, missing))[valid])
        offsets.append(F.pad(distance, (0, missing))[valid])
        sequence.append(torch.full_like(queries[valid], at))
        index.append(queries[valid])
    joined = [torch.cat(parts) for parts in (visible, offsets, sequence, index)]
    sees, distance, of, numbers = joined
    empty = weights[0].new_empty(0)
    return torch.cat(weights, dim=2), MapRows(empty, sees, torch.zeros_like(distance), distance, of, numbers)


def _gradient_norms(model: nn.Module | None) -> dict[str, float | None]:
    """Return the norm of the gradients of each child module that has any, None if it is not finite."""
    norms: dict[str, float | None] = {}
    for name, child in model.named_children() if model is not None else ():
        gradients = [each.grad for each in child.parameters() if each.grad is not None]
        if gradients:
            norm = float(nn.utils.get_total_norm(gradients))
            norms[name] = norm if norm < float("inf") else None
    return norms
