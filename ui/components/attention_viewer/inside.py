"""What the viewer opens: the parts of a model, and the arithmetic of one cell, for the decode that the browser shows.

A pass over the tokens of the decode computes everything again; see ``ui.shown_decode``.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from core.config import Preset
from core.interpret.cell import CellArithmetic, StreamStep, cell_arithmetic
from core.interpret.parts import Kind, Part, model_parts, part_vectors
from core.interpret.trained import Trained
from core.models import outline_model
from core.models.seq2seq import Block, Head
from core.server.access import VisitorRuns
from core.tasks import build_task
from ui.components.component import RunRequest
from ui.json_numbers import json_number, json_numbers
from ui.shown_decode import DecodeRequest

SHOWN_VALUES = 4  # keys whose values are sent one by one; the others are summed up
SHOWN_ANSWERS = 5  # tokens of the answer with the highest logits

MAX_ROWS = 48  # tokens of a part that are shown
MAX_WIDTH = 256  # numbers of a vector that are shown
_TEXTS: dict[Kind, str] = {
    "embedding": "Every token has a row of learned numbers in a table. The model reads this row, times the square root "
    "of its width, and nothing else of the token: tokens with similar rows are similar to the model.",
    "positions": "Attention alone cannot tell the order of its keys. This vector is added to the embedding; it depends "
    "on the position only.",
    "norm": "Each vector is shifted and scaled to mean 0 and variance 1, then multiplied by a learned weight and "
    "shifted by a learned bias.",
    "add": "What the sublayer computed is added to the residual stream, so a layer changes its input rather than "
    "replacing it.",
    "feed-forward": "Each token by itself: a wider vector of activations, then back to the width of the model. "
    "Attention moves information between tokens; this works on what has arrived.",
    "recurrent": "The state after each token, computed from the token and the state before it.",
    "output": "The last state of each step, times one row of weights for each token of the vocabulary, gives the "
    "logits. The softmax turns them into probabilities.",
}


class WeightsRequest(DecodeRequest):
    """A decode by a run's present weights, or by those of a training step, see ``core.runs.weights_by_step``."""

    training_step: int | None = Field(default=None, ge=0, le=1_000_000)


class CellRequest(WeightsRequest):
    """One cell of an attention map; layer and head are counted from 1, row and column from 0."""

    block: Block
    layer: int = Field(ge=1, le=1_000)
    head: int = Field(ge=1, le=1_000)
    row: int = Field(ge=0)
    column: int = Field(ge=0)


class PartRequest(WeightsRequest):
    """One part of the model that is not attention."""

    part: str = Field(max_length=100)


def parts(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Return the parts of a run's model, in the order of the computation, and its size in words."""
    run = runs[request.run]
    if run.preset.is_watched:
        return {"run": run.name, "size": run.preset.task.summary, "parts": []}
    return {"run": run.name, **_parts_of(run.preset, run.folder.pairs)}


@lru_cache(64)
def _parts_of(preset: Preset, pairs: Path) -> dict[str, Any]:
    config = preset.model
    width = getattr(config, "d_model", None)
    return {
        "size": config.summary + (f", d_model {width}" if width else ""),
        "parts": [vars(part) for part in model_parts(outline_model(config, build_task(preset.task, pairs=pairs)))],
    }


def part(runs: VisitorRuns, request: PartRequest) -> dict[str, Any]:
    """Return what a part computes as plain data: a list of numbers for each of the first tokens of its side."""
    with runs.inference_priority.inference():
        loaded = runs[request.run].trained(request.training_step)
        src, tokens = request.ids(loaded)
        interventions = request.interventions().applied_to(loaded).interventions
        found = part_vectors(loaded.model, src, tokens, request.part, interventions)
    vectors = found.vectors
    answers = _top_answers(vectors[-1][1], loaded) if found.part.kind == "output" else None
    return {
        "part": vars(found.part),
        "title": _title(found.part),
        "text": _TEXTS[found.part.kind],
        "num_rows": len(vectors[-1][1]),
        "width": vectors[-1][1].shape[1],
        "vectors": []
        if answers
        else [
            {"name": name, "rows": [json_numbers(row[:MAX_WIDTH]) for row in values[:MAX_ROWS]]}
            for name, values in vectors
        ],
        "similarity": None if found.similarity is None else _matrix(found.similarity),
        "patterns": None if found.patterns is None else [_matrix(each) for each in found.patterns],
        "answers": answers,
    }


def _title(part: Part) -> str:
    stack = "encoder" if part.side == "source" else "decoder"
    return f"{part.label}, {stack}" + (f" layer {part.layer}" if part.layer else "")


def _matrix(values: torch.Tensor) -> list[list[float | None]]:
    return [json_numbers(row) for row in values[:MAX_ROWS, :MAX_ROWS]]


def _top_answers(logits: torch.Tensor, loaded: Trained) -> list[list[dict[str, Any]]]:
    """Return the tokens with the highest logits of each row, with their probabilities."""
    probabilities = logits.softmax(dim=-1)
    return [
        [
            {"token": _name(token, loaded), "logit": json_number(row[token]), "probability": json_number(of_row[token])}
            for token in row.argsort(descending=True)[:SHOWN_ANSWERS].tolist()
        ]
        for row, of_row in zip(logits[:MAX_ROWS], probabilities, strict=False)
    ]


def cell(runs: VisitorRuns, request: CellRequest) -> dict[str, Any]:
    """Return the arithmetic of a cell as plain data."""
    head = Head(request.block, request.layer, request.head)
    with runs.inference_priority.inference():
        loaded = runs[request.run].trained(request.training_step)
        src, tokens = request.ids(loaded)
        interventions = request.interventions().applied_to(loaded).interventions
        found = cell_arithmetic(loaded.model, src, tokens, head, request.row, request.column, interventions)
    return cell_value(found, loaded)


def cell_value(cell: CellArithmetic, loaded: Trained) -> dict[str, Any]:
    """Return the arithmetic of a cell as plain data, numbers with six significant digits."""
    order = cell.weights.argsort(descending=True, stable=True).tolist()
    shown = list(dict.fromkeys([cell.column, *order]))[:SHOWN_VALUES]
    shown.sort(key=lambda column: -cell.weights[column])
    others = [column for column in range(len(order)) if column not in shown]
    return {
        "model_step": loaded.step,
        "method": cell.method,
        "query": json_numbers(cell.query),
        "key": json_numbers(cell.key),
        "location": None if cell.location is None else json_numbers(cell.location),
        "products": json_numbers(cell.products),
        "sum": json_number(cell.products.sum()),
        "divisor": json_number(cell.divisor),
        "bias": None if cell.bias is None else json_number(cell.bias[cell.column]),
        "scores": json_numbers(cell.scores),
        "visible": cell.visible.tolist(),
        "weights": json_numbers(cell.weights),
        "values": [
            {"column": column, "numbers": json_numbers(cell.weights[column] * cell.values[column])} for column in shown
        ],
        "others": json_numbers(cell.weights[others] @ cell.values[others]) if others else None,
        "num_others": len(others),
        "rotated_back": cell.rotated_back,
        "output": json_numbers(cell.output),
        "head_addition": None if cell.head_addition is None else json_numbers(cell.head_addition),
        "norm": getattr(loaded.preset.model, "norm", None),
        "attention_type": getattr(loaded.preset.model, "attention_type", None),
        "stream": [_stream_value(step) for step in cell.stream],
        "answer": _answer_value(cell, loaded),
        "replaced": cell.replaced,
    }


def _stream_value(step: StreamStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "added": json_numbers(step.added),
        "before": json_numbers(step.before),
        "after": json_numbers(step.after),
    }


def _answer_value(cell: CellArithmetic, loaded: Trained) -> dict[str, Any] | None:
    """Return the tokens with the highest logits, and the produced one, with their probabilities with and without it."""
    if cell.answer is None:
        return None
    logits, without = cell.answer.logits, cell.answer.logits_without
    best = logits.argsort(descending=True)[:SHOWN_ANSWERS].tolist()
    shown = list(dict.fromkeys([*best, cell.answer.produced]))
    probabilities, probabilities_without = logits.softmax(dim=0), without.softmax(dim=0)
    return {
        "produced": _name(cell.answer.produced, loaded),
        "tokens": [
            {
                "token": _name(token, loaded),
                "logit": json_number(logits[token]),
                "probability": json_number(probabilities[token]),
                "without": json_number(probabilities_without[token]),
            }
            for token in shown
        ],
    }


def _name(token: int, loaded: Trained) -> str:
    return loaded.task.token_name(loaded.task.tgt_vocab.tokens[token])
