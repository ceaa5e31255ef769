"""Greedy outputs for a set of pairs, with the attention over the source recorded at every step of the first of them."""

from dataclasses import dataclass

import pandas as pd
import torch

from core.evaluation.outputs import Outputs, decode_unpadded, with_eos
from core.evaluation.passes import evaluation_mode
from core.generation import GenerationResult, generate
from core.interpret.head_scores import HeadScore
from core.interpret.map_rows import recordable_chunks
from core.interpret.step_table import step_table
from core.models import Seq2Seq
from core.tasks import Batch, Task

MAX_SEQUENCES_RECORDED = 1_000  # sequences whose attention is recorded: enough for a mean
MAX_STEPS_RECORDED = 4_000_000  # rows of the step table, over all heads


@dataclass(frozen=True)
class RecordedOutputs:
    """What a model decodes from pairs, and where its heads attended while decoding.

    Attributes:
        outputs: of all pairs.
        steps: ``step_table`` of the first pairs; ``sequence`` is the pair's index. Empty if the model has no attention
            over the source.
    """

    outputs: Outputs
    steps: pd.DataFrame


@torch.no_grad()
def decode_recorded(model: Seq2Seq, task: Task, pairs: Batch, *, only_recorded: bool = False) -> RecordedOutputs:
    """Decode pairs greedily, each once and without padding. The model's training mode is left unchanged.

    Args:
        model: decodes in evaluation mode.
        task: the task of the pairs.
        pairs: the attention is recorded for the first ``MAX_SEQUENCES_RECORDED`` of them, and for fewer if the table
            of their steps would have more than ``MAX_STEPS_RECORDED`` rows.
        only_recorded: whether to decode only these.
    """
    with evaluation_mode(model):
        recorded = pairs[: _num_recorded(model, pairs)]
        scored = Batch(recorded.src, with_eos(recorded.tgt))
        parts: list[tuple[torch.Tensor, GenerationResult | Outputs]] = []
        steps = []
        for indices, chunk in recordable_chunks(model, scored) if len(recorded) else ():
            result = generate(model, chunk.src, max_steps=model.max_seq_len, need_weights=True)
            table = step_table(task, chunk, result)
            parts.append((indices, result))
            steps.append(table.assign(sequence=indices.cpu().numpy()[table.sequence]))
    if only_recorded:
        pairs = recorded
    else:
        others = torch.arange(len(recorded), len(pairs), device=pairs.device)
        parts.append((others, decode_unpadded(model, pairs[others])))
    return RecordedOutputs(
        Outputs.from_parts(pairs, parts), pd.concat(steps, ignore_index=True) if steps else pd.DataFrame()
    )


def score_recorded_heads(steps: pd.DataFrame) -> list[HeadScore]:
    """Return the alignment scores of every head in a ``step_table``; [] for an empty one."""
    if steps.empty:
        return []
    aligned = steps[steps.gold_column >= 0]
    weights = aligned.aer_weight
    errors = {
        "aer": (1 - aligned.argmax_accuracy) * weights,
        "uniform_aer": (1 - aligned.uniform_accuracy) * weights,
    }
    by_head = aligned.assign(**errors).groupby(["layer", "head"])
    means = by_head[["attention_mass", "argmax_accuracy", "uniform_mass"]].mean()
    rates = by_head[[*errors]].sum().div(by_head.aer_weight.sum(), axis=0)
    return [
        HeadScore(layer, head, *map(float, (*mean, *rate)))
        for (layer, head), mean, rate in zip(means.index, means.to_numpy(), rates.to_numpy(), strict=True)
    ]


def _num_recorded(model: Seq2Seq, pairs: Batch) -> int:
    """Return how many of the pairs are recorded; 0 if the model has no attention over the source."""
    source = pairs.src[:1]
    maps = generate(model, source, max_steps=1, need_weights=True).maps
    weights = None if maps is None else maps.over_source(source.shape[1])  # (L, 1, H, 1, S)
    if weights is None:
        return 0
    rows_per_sequence = weights.shape[0] * weights.shape[2] * model.max_seq_len
    return min(len(pairs), MAX_SEQUENCES_RECORDED, MAX_STEPS_RECORDED // rows_per_sequence + 1)
