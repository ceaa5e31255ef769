"""The health of a model at a training step: measures of heads and layers on fixed inputs, under teacher forcing.

Every measure is a mean over the same rows at every step: source positions, or decoding steps of the reference answers.
A measure therefore changes only with the weights, not with the model's own answers.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict

from core.config.counting import percent
from core.evaluation.outputs import with_eos
from core.evaluation.passes import evaluation_mode
from core.generation import GenerationResult
from core.interpret.fourier import fourier_power, number_embeddings
from core.interpret.health_measures import (
    attention_distance,
    attention_reach,
    entropy,
    fixed_key_mass,
    head_diversity,
    output_shares,
    root_mean_square,
    total_variation,
)
from core.interpret.induction import InductionScores, RepeatedTokens
from core.interpret.map_rows import MapRows, generated_steps, map_rows
from core.interpret.measures import normalized_entropy
from core.models import AttentionMaps, Seq2Seq
from core.models.attention import MultiHeadAttention
from core.models.hooks import hooks
from core.models.layers import EncoderLayer, Layer
from core.models.seq2seq import BLOCKS, Block, DecoderOutput, Memory
from core.tasks import Batch, Task, fixed_pairs
from core.text.vocab import EOS_ID, PAD_ID

NUM_PAIRS = 32  # fixed pairs, if their maps fit into ``MAX_WEIGHTS``
MAX_WEIGHTS = 250_000  # attention weights kept for comparison with the next snapshot, 4 bytes each
DEAD = 0.02  # a head is dead if its share of its layer's output is smaller
COLLAPSED = 0.98  # a head is collapsed if more of its attention is on one key of each input, whatever the query
UNIFORM = 0.95  # a head is uniform if its entropy share is larger

Mark = Literal["", "dead", "collapsed", "uniform"]
Figure = float | None
HeadMarks = dict[Block, tuple[tuple[Mark, ...], ...]]  # by layer and head
HeadFigures = tuple[tuple[Figure, ...], ...]  # by layer and head
MARKS: dict[Mark, str] = {
    "dead": f"its output is less than {percent(DEAD, 0)} of its attention layer's",
    "collapsed": f"more than {percent(COLLAPSED, 0)} of its attention is on one key of each input, whatever the query",
    "uniform": f"its entropy is more than {percent(UNIFORM, 0)} of that of uniform attention",
}


class HeadHealth(BaseModel):
    """Measures of the heads and layers of a model on fixed inputs.

    Measures of heads are [layer][head] by block, "encoder", "decoder" and "cross"; means over rows with at least two
    visible keys. None stands for a value that does not exist or is not finite.

    Attributes:
        entropy: mean entropy of a head's rows, nats.
        entropy_share: the same divided, row by row, by the log of the number of visible keys, 0-1.
        distance: mean distance between query and key weighted by attention, tokens. Positions are counted from BOS on
            both sides; a decoding step has the position of the token that it read. A decoder-only model's target
            continues its source's positions.
        reach: largest distance of a key with a weight of at least 0.1, tokens.
        fixed_key_mass: attention on the key that gets most attention in an input, whatever the query, 0-1.
        output_share: root mean square of a head's output after W_o, divided by that of its attention layer's output
            without bias; {} for additive attention, which has no output projection.
        change: mean total-variation distance of a head's rows to those of the previous snapshot, 0 unchanged to 1
            disjoint; {} at the first snapshot, or if the maps are too large to keep.
        diversity: by block and layer, the mean total-variation distance of all pairs of heads, 0 alike to 1 disjoint.
        layer_rms: by layer ("encoder.1", "decoder.1" …), root mean square of the residual stream after it; for a
            recurrent layer, of its last states.
        logit_rms: root mean square of the logits of the reference answers; None in records of earlier versions.
        fourier_power: of the embeddings of numbers modulo a prime, the share of each frequency from 1 on; see
            ``core.interpret.fourier``. () for tasks without such numbers.
        induction, previous_token: of a decoder-only model, see ``core.interpret.induction``; {} for others, and in
            records of earlier versions.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    entropy: dict[Block, HeadFigures]
    entropy_share: dict[Block, HeadFigures]
    distance: dict[Block, HeadFigures]
    reach: dict[Block, HeadFigures]
    fixed_key_mass: dict[Block, HeadFigures]
    output_share: dict[Block, HeadFigures]
    change: dict[Block, HeadFigures]
    diversity: dict[Block, tuple[Figure, ...]]
    layer_rms: dict[str, Figure]
    logit_rms: Figure = None
    fourier_power: tuple[Figure, ...] = ()
    induction: dict[Block, HeadFigures] = {}
    previous_token: dict[Block, HeadFigures] = {}


class Health(BaseModel):
    """The health of a model after some updates.

    Attributes:
        perplexity: exp of the teacher-forced validation loss.
        gradient_norm: by part, of the last update, before clipping; see ``core.training.update_norms``. None before
            the first update.
        update_size: by part, norm of the change of the weights divided by the norm of the weights, likewise.
        heads: see ``HeadHealth``.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    perplexity: Figure
    gradient_norm: dict[str, Figure] | None
    update_size: dict[str, Figure] | None
    heads: HeadHealth


def head_marks(heads: HeadHealth) -> HeadMarks:
    """Return the mark of each head by block, layer and head: "dead", "collapsed", "uniform", or "" for none.

    A head has the first mark that applies. ``MARKS`` explains them.
    """
    return {
        block: tuple(
            tuple(_mark(heads, block, layer, head) for head in range(len(of_layer)))
            for layer, of_layer in enumerate(layers)
        )
        for block, layers in heads.entropy_share.items()
    }


def _mark(heads: HeadHealth, block: Block, layer: int, head: int) -> Mark:
    share = heads.output_share[block][layer][head] if block in heads.output_share else None
    fixed, spread = heads.fixed_key_mass[block][layer][head], heads.entropy_share[block][layer][head]
    if share is not None and share < DEAD:
        return "dead"
    if fixed is not None and fixed > COLLAPSED:
        return "collapsed"
    return "uniform" if spread is not None and spread > UNIFORM else ""


def measure_weights(
    weights: Mapping[Block, torch.Tensor], rows: Mapping[Block, MapRows], before: Mapping[str, torch.Tensor]
) -> HeadHealth:
    """Return the measures that need attention weights only; the others are empty.

    Args:
        weights: (L, H, N, K) float by block, of the rows of ``rows``, whose own weights are not used.
        before: those of the snapshot before; {} for none.
    """
    figures: dict[str, dict[Block, HeadFigures]] = {name: {} for name in (*_MEASURES, "change")}
    diversity: dict[Block, tuple[Figure, ...]] = {}
    for block, of_block in weights.items():
        for name, measure in _MEASURES.items():
            figures[name][block] = _as_figures(measure(of_block, rows[block]))
        diversity[block] = _as_figures(head_diversity(of_block)[None])[0]
        last = before.get(block)
        if last is not None and last.shape == of_block.shape:
            figures["change"][block] = _as_figures(total_variation(last.to(of_block.device), of_block))
    return HeadHealth(**figures, output_share={}, diversity=diversity, layer_rms={}, logit_rms=None, fourier_power=())


class HealthTaker:
    """Measures the heads and layers of a model on fixed pairs of a task.

    Args:
        task: source of the pairs.
        model: its size decides how many pairs are used.
        pairs: the scored inputs of the attention snapshots with their references; inputs without a reference are left
            out. If there are none, as for an open-ended task, validation pairs are measured.
    """

    def __init__(self, task: Task, model: Seq2Seq, pairs: Batch | None) -> None:
        pairs = None if pairs is None else _with_references(pairs)
        pairs = pairs if pairs is not None and len(pairs) else fixed_pairs(task, NUM_PAIRS, split="validation")
        answers = with_eos(pairs.tgt_out)
        pairs = Batch(pairs.src, torch.cat([pairs.tgt[:, :1], answers], dim=1)).trimmed()
        fitting = (pairs.lengths() <= torch.tensor([model.max_seq_len, model.max_seq_len + 1])).all(dim=1)
        pairs = pairs[fitting.nonzero()[:, 0]].trimmed() if fitting.any() else pairs[:0]
        self._repeated = RepeatedTokens.like(pairs, task, model)
        self.task, self.pairs = task, _shortest(pairs, model).to(model.device)
        self._num_weights = _num_weights(self.pairs, model)
        self._rows = self._valid_rows(task, model) if len(pairs) else {}

    @torch.no_grad()
    def measure(
        self, model: Seq2Seq, before: Mapping[str, torch.Tensor]
    ) -> tuple[HeadHealth | None, dict[str, torch.Tensor]]:
        """Measure a model; its mode and all random generators are unchanged.

        Args:
            before: the rows that the last call returned, {} for none.

        Returns:
            The measures, None if no pair fits the model; and the rows of attention to pass to the next call, (L, H, N,
            K) float by block, {} if they exceed ``MAX_WEIGHTS``.
        """
        if not len(self.pairs):
            return None, {}
        with evaluation_mode(model):
            recorded = _record(model, self.pairs)
        weights, shares = dict[Block, torch.Tensor](), dict[Block, HeadFigures]()
        for block, rows in self._rows.items():
            patterns = torch.stack([_joined(each) for each in recorded.patterns[block]])  # (L, B, H, Q, K)
            weights[block] = patterns.transpose(1, 2)[:, :, rows.sequence, rows.index].float()
            if recorded.projections[block]:
                z = torch.stack([_joined(each) for each in recorded.z[block]])  # (L, B, H, Q, W)
                z = z.transpose(2, 3)[:, rows.sequence, rows.index].float()
                w_o = torch.stack([each.detach() for each in recorded.projections[block]])
                shares[block] = _as_figures(output_shares(z, w_o))
        layer_rms = {name: _finite(root_mean_square(states).item()) for name, states in recorded.states.items()}
        measured = measure_weights(weights, self._rows, before)
        logit_rms = _finite(root_mean_square(recorded.logits).item())
        measured = measured.model_copy(update={"output_share": shares, "layer_rms": layer_rms, "logit_rms": logit_rms})
        if (numbers := number_embeddings(model, self.task)) is not None:
            power = tuple(_finite(share) for share in fourier_power(numbers).tolist())
            measured = measured.model_copy(update={"fourier_power": power})
        if self._repeated is not None:
            measured = measured.model_copy(update=_induction(self._repeated.scores(model)))
        kept = {str(block): each for block, each in weights.items() if self._num_weights <= MAX_WEIGHTS}
        return measured, kept

    def _valid_rows(self, task: Task, model: Seq2Seq) -> dict[Block, MapRows]:
        """Return, by block, which rows of the maps are measured, with visibility and offsets of their keys."""
        count, source, target = len(self.pairs), self.pairs.src.shape[1], self.pairs.tgt_in.shape[1]
        blocks = [block for block in BLOCKS if any(of == block for of, _ in model.attention)]
        keys = _num_keys(model, source, target)
        empty = {
            block: torch.zeros(1, count, 1, source if block == "encoder" else target, keys[block]) for block in blocks
        }
        maps = AttentionMaps(empty.get("encoder"), empty.get("decoder"), empty.get("cross"))
        pairs, none = self.pairs.to("cpu"), torch.empty(0)
        maps = maps.with_masks(model, pairs.src)
        reference = GenerationResult(pairs.tgt_out, none, none, maps, none)
        rows = {block: map_rows(block, task, pairs, reference) for block in blocks}
        return {block: _on(each, model.device) for block, each in rows.items() if each is not None and len(each.index)}


def _with_references(pairs: Batch) -> Batch:
    """Leave out pairs with an empty answer, because the task has no reference for their input."""
    has_answer = ((pairs.tgt_out != PAD_ID) & (pairs.tgt_out != EOS_ID)).any(dim=1)
    return pairs[has_answer.nonzero()[:, 0]]


def _num_weights(pairs: Batch, model: Seq2Seq) -> int:
    """Return the number of attention weights in all maps of some pairs, PAD counted."""
    source, target = pairs.src.shape[1], pairs.tgt_in.shape[1]
    keys = _num_keys(model, source, target)
    rows = (source if head.block == "encoder" else target for head in model.heads)
    return len(pairs) * sum(count * keys[head.block] for count, head in zip(rows, model.heads, strict=True))


def _shortest(pairs: Batch, model: Seq2Seq) -> Batch:
    """Return the pairs, or the shortest of them (at least one) with no more than ``MAX_WEIGHTS`` weights."""
    if _num_weights(pairs, model) <= MAX_WEIGHTS:
        return pairs
    order = pairs.lengths().sum(dim=1).argsort(stable=True)
    count = 1
    while _num_weights(pairs[order[: count + 1]].trimmed(), model) <= MAX_WEIGHTS:
        count += 1
    return pairs[order[:count]].trimmed()


def _num_keys(model: Seq2Seq, source: int, target: int) -> dict[Block, int]:
    """Return the number of keys of a row by block; a decoder-only model attends to the source as well."""
    has_cross = any(block == "cross" for block, _ in model.attention)
    return {"encoder": source, "decoder": target if has_cross else source + target, "cross": source}


# ---- recording


class _Recorded:
    """The recordings of the hook points in one teacher-forced pass.

    Attributes:
        patterns, z: by block and layer, the tensors of each call, joined along the queries.
        projections: by block, the weight of W_o of each layer; [] for additive attention.
        states: by layer, the residual stream of the positions that are not PAD, (N, D), or the last states (B, D).
        logits: (N, V) of the reference answers.
    """

    def __init__(self) -> None:
        self.patterns: dict[Block, list[list[torch.Tensor]]] = {block: [] for block in BLOCKS}
        self.z: dict[Block, list[list[torch.Tensor]]] = {block: [] for block in BLOCKS}
        self.projections: dict[Block, list[torch.Tensor]] = {block: [] for block in BLOCKS}
        self.states: dict[str, torch.Tensor] = {}
        self.logits = torch.empty(0)


def _record(model: Seq2Seq, pairs: Batch) -> _Recorded:
    """Run pairs through a model in evaluation mode under teacher forcing."""
    recorded, by_name = _Recorded(), dict[str, Callable[[torch.Tensor], None]]()
    for (block, _), module in model.attention.items():
        for point, calls in (("hook_pattern", recorded.patterns), ("hook_z", recorded.z)):
            calls[block].append([])
            by_name[getattr(module, point).name] = calls[block][-1].append
        if isinstance(module, MultiHeadAttention):
            recorded.projections[block].append(module.w_o.weight)
    streams: dict[str, torch.Tensor] = {}
    for name, layer in _residual_layers(model).items():
        by_name[layer.hook_resid_post.name] = partial(streams.__setitem__, name)
    with hooks(by_name):
        memory = model.encode(pairs.src)
        for of_source in (*recorded.patterns["decoder"], *recorded.z["decoder"]):
            of_source.clear()  # a decoder-only model has also read the source, which is in no map
        output = model.decode(pairs.tgt_in, memory)
    sides = {"encoder": pairs.src != PAD_ID, "decoder": generated_steps(pairs.tgt_out)}
    recorded.states = {name: states[sides[name.split(".")[0]]].float() for name, states in streams.items()}
    recorded.states |= _recurrent_states(memory, output)
    recorded.logits = output.logits[sides["decoder"]].float()
    return recorded


def _residual_layers(model: Seq2Seq) -> dict[str, Layer]:
    """Return the layers of a model that have a residual stream, by name: "encoder.1", "decoder.1" and so on."""
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    sides: dict[str, list[Layer]] = {"encoder": [], "decoder": []}
    for layer in layers:
        sides["encoder" if isinstance(layer, EncoderLayer) else "decoder"].append(layer)
    return {f"{side}.{number}": layer for side, of in sides.items() for number, layer in enumerate(of, start=1)}


def _recurrent_states(memory: Memory, output: DecoderOutput) -> dict[str, torch.Tensor]:
    """Return the last states (B, D) of recurrent layers; {} for a model without any."""
    if memory.final is None:
        return {}
    sides: dict[str, torch.Tensor] = {"encoder": memory.final, "decoder": output.cache.hidden}
    return {f"{side}.{n}": states.float() for side, of in sides.items() for n, states in enumerate(of, start=1)}


def _joined(calls: list[torch.Tensor]) -> torch.Tensor:
    """Join the calls of a module along the queries; a recurrent decoder makes one for each token."""
    return calls[0] if len(calls) == 1 else torch.cat(calls, dim=2)


# ---- figures

_MEASURES: dict[str, Callable[[torch.Tensor, MapRows], torch.Tensor]] = {
    "entropy": lambda weights, rows: entropy(weights),
    "entropy_share": lambda weights, rows: normalized_entropy(weights, rows.visible).mean(dim=-1),
    "distance": lambda weights, rows: attention_distance(weights, rows.offsets),
    "reach": lambda weights, rows: attention_reach(weights, rows.offsets),
    "fixed_key_mass": lambda weights, rows: fixed_key_mass(weights, rows.sequence),
}


def _as_figures(values: torch.Tensor) -> HeadFigures:
    """Return values (L, H) as [layer][head]."""
    return tuple(tuple(_finite(value) for value in of_layer) for of_layer in values.tolist())


def _induction(scores: InductionScores) -> dict[str, dict[Block, HeadFigures]]:
    return {
        "induction": {"decoder": _as_figures(scores.induction)},
        "previous_token": {"decoder": _as_figures(scores.previous_token)},
    }


def _finite(value: float) -> Figure:
    """Round to 7 significant digits, about those of float32; None if it is not finite."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _on(rows: MapRows, device: torch.device) -> MapRows:
    """Return rows without weights on a device; alignments are not needed."""
    fields = ("weights", "visible", "keys", "offsets", "sequence", "index")
    return MapRows(**{name: getattr(rows, name).to(device) for name in fields})
