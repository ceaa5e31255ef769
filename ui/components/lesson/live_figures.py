"""The live figures of the lessons on attention: the model of a lesson's run, on the reader's input, as plain data."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from pydantic import Field

from core.generation.reading import typed_tokens
from core.interpret.ablation import exact_match_with
from core.interpret.inspection import Inspection, inspect
from core.interpret.interventions import NO_INTERVENTIONS, Interventions
from core.models import Seq2Seq
from core.models.decoder_only import DecoderOnly
from core.models.transformer import Transformer
from core.runs.run import Run
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from core.tasks import Task, fixed_pairs
from core.tasks.alignment import gold_cells
from core.teaching.attention_lessons import load_attention_lesson
from core.teaching.attention_lessons.attention_scores import attention_scores
from core.teaching.attention_lessons.removed_parts import (
    MAX_PADDING,
    check_causality,
    decode_padded,
    inspect_without_positions,
)
from core.teaching.attention_lessons.token_vectors import token_vectors
from core.teaching.attention_lessons.whole_text import text_attention
from ui.components.attention_viewer import replay_value
from ui.components.component import Request, ServerFunction, validated
from ui.current_decode import CurrentDecode
from ui.decode_record import ribbon_record

SEQUENCES = 500  # held-out inputs; two tenths of a second for the shipped model on one core
MAX_TOKENS = 12  # of an input, so that every figure stays readable
_MEASURING = threading.Lock()
_measured: WeakKeyDictionary[Seq2Seq, dict[str, float]] = WeakKeyDictionary()


class FigureRequest(Request):
    """A request for a figure of a lesson."""

    lesson: str = Field(max_length=100)
    input: str = Field(max_length=2_000)


class OrdersRequest(FigureRequest):
    """A request to decode the input and another one, with and without positional encodings; "" for its rotation."""

    other: str = Field(default="", max_length=2_000)


class MaskRequest(FigureRequest):
    """A request to read the answer with or without the causal mask."""

    masked: bool


class PaddingRequest(MaskRequest):
    """A request to decode with PAD after the input."""

    num_pad: int = Field(ge=0, le=MAX_PADDING)


class AblationRequest(FigureRequest):
    """A request to decode without a head (``cross.2.1``) or a layer (``cross.2``)."""

    ablate: str = Field(max_length=40)


def figure_functions(runs: VisitorRuns) -> dict[str, ServerFunction]:
    """Return the server functions of the figures, by name."""
    functions: dict[str, tuple[type, type[Seq2Seq], Callable]] = {
        "vectors": (FigureRequest, Transformer, vectors),
        "scores": (FigureRequest, Transformer, scores),
        "decode": (FigureRequest, Seq2Seq, decode),
        "text": (FigureRequest, DecoderOnly, text),
        "orders": (OrdersRequest, Transformer, orders),
        "causality": (MaskRequest, Transformer, causality),
        "padding": (PaddingRequest, Transformer, padding),
        "ablation": (AblationRequest, Seq2Seq, ablation),
    }
    named = {
        name: validated(request, partial(_figure, runs, model, function))
        for name, (request, model, function) in functions.items()
    }
    return {
        **named,
        "reading": validated(FigureRequest, partial(reading, runs)),
        "snapshots": validated(LessonRequest, partial(snapshots, runs)),
    }


class LessonRequest(Request):
    """A request about one lesson."""

    name: str = Field(max_length=100)


def snapshots(runs: VisitorRuns, request: LessonRequest) -> dict[str, Any]:
    """Return the training replay of a lesson's run; see ``replay_value``."""
    return replay_value(runs[load_attention_lesson(request.name).run].replay.snapshots())


def reading(runs: VisitorRuns, request: FigureRequest) -> dict[str, Any]:
    """Return a decode as the record of a ribbon, and the probability of each token."""
    run: Run = runs[load_attention_lesson(request.lesson).run_of("reading")]
    loaded = run.trained()
    runs.limits.check_text("input", request.input)
    with runs.inference_priority.inference():
        found = inspect(loaded.model, loaded.task, request.input)
    record = ribbon_record(CurrentDecode(run=run.name, title=run.title, step=loaded.step, inspection=found))
    if record is None:
        raise InputError("the input or its answer is too long to draw lines between their words")
    return {"record": record, "probabilities": [round(step.probability, 4) for step in found.steps]}


def _figure(runs: VisitorRuns, needed: type[Seq2Seq], function: Callable, request: FigureRequest) -> dict[str, Any]:
    """Load the run of the lesson and call a figure's function with its model and task."""
    loaded = runs[load_attention_lesson(request.lesson).run].trained()
    if not isinstance(loaded.model, needed):
        raise InputError(f"lesson={request.lesson} has no such figure: its run's model is of another kind")
    texts = {"input": request.input} | ({"other": request.other} if isinstance(request, OrdersRequest) else {})
    for field, text in texts.items():
        runs.limits.check_text(field, text)
        if len(typed_tokens(loaded.task, text) if text else ()) > MAX_TOKENS:
            raise InputError(
                f"{field} has more than {MAX_TOKENS} tokens; the figures of a lesson show at most that many"
            )
    with runs.inference_priority.inference():
        return function(loaded.model, loaded.task, request)


def vectors(model: Transformer, task: Task, request: FigureRequest) -> dict[str, Any]:
    """Return the tokens, their ids, their embeddings, and the similarity of their vectors at each stage."""
    found = token_vectors(model, task, request.input)
    return {
        "tokens": found.tokens,
        "ids": found.ids,
        "vectors": _rounded(found.stages["embedding"], 3),
        "similarity": {stage: _rounded(found.similarity(stage)) for stage in found.stages},
    }


def scores(model: Transformer, task: Task, request: FigureRequest) -> dict[str, Any]:
    """Return the scores and weights of all heads, by block."""
    found = attention_scores(model, task, request.input)
    return {
        "source": found.source,
        "produced": found.produced,
        "read": found.read,
        "d_k": found.d_k,
        "scores": {block: _rounded(of_block) for block, of_block in found.scores.items()},
        "weights": {block: _rounded(getattr(found.maps, block)[:, 0]) for block in found.scores},
    }


def decode(model: Seq2Seq, task: Task, request: FigureRequest) -> dict[str, Any]:
    """Return a decode with the maps of all heads and their attention on the correct source token."""
    found = inspect(model, task, request.input)
    blocks = dict.fromkeys(block for block, _ in model.attention)
    mass: dict[int, list[float]] = {}
    for score in found.scores:
        mass.setdefault(score.layer, []).append(round(score.attention_mass, 4))
    return {
        **_answer(found),
        "source": found.source_labels,
        "read": [step.read for step in found.steps],
        "gold_cells": gold_cells(found.sources, steps=len(found.steps)),
        "weights": {block: _rounded(getattr(found.maps, block)[:, 0]) for block in blocks},
        "scored": "cross" if "cross" in blocks else "decoder",
        "attention_mass": list(mass.values()),
        "uniform_mass": found.scores[0].uniform_mass if found.scores else None,
    }


def text(model: DecoderOnly, task: Task, request: FigureRequest) -> dict[str, Any]:
    """Return the weights of all heads between all tokens of source and answer."""
    found = text_attention(model, task, request.input)
    return {
        "tokens": found.tokens,
        "source_length": found.source_length,
        "produced": found.produced,
        "weights": _rounded(found.weights),
    }


def orders(model: Transformer, task: Task, request: OrdersRequest) -> dict[str, Any]:
    """Return the answers to two inputs, with positional encodings and without."""
    first = inspect(model, task, request.input)
    other = request.other or " ".join([*first.symbols[1:], first.symbols[0]])
    inputs = (request.input, other)
    return {
        "with": [_answer(first), _answer(inspect(model, task, other))],
        "without": [_answer(inspect_without_positions(model, task, text)) for text in inputs],
    }


def causality(model: Transformer, task: Task, request: MaskRequest) -> dict[str, Any]:
    """Return the decoder's self-attention over a whole answer, and which steps notice another last token."""
    found = check_causality(model, task, request.input, masked=request.masked)
    return {
        "read": found.read,
        "produced": found.produced,
        "weights": _rounded(found.weights),
        "changed_to": found.changed_to,
        "changes": found.changes,
    }


def padding(model: Transformer, task: Task, request: PaddingRequest) -> dict[str, Any]:
    """Return the decode of a padded input, with or without the masks that hide PAD."""
    found = decode_padded(model, task, request.input, num_pad=request.num_pad, masked=request.masked)
    expected = inspect(model, task, request.input).expected
    return {
        "source": found.source,
        "produced": found.produced,
        "expected": expected,
        "weights": _rounded(found.weights),
        "mass_on_pad": found.mass_on_pad,
    }


def ablation(model: Seq2Seq, task: Task, request: AblationRequest) -> dict[str, Any]:
    """Return the answer without a head or a layer, and exact match on held-out inputs with it and without it."""
    without = Interventions.parse(model.heads, ablate=[request.ablate])
    return {
        "ablated": request.ablate,
        "intact": _answer(inspect(model, task, request.input)),
        "without": _answer(inspect(model, task, request.input, interventions=without)),
        "exact_match": _exact_match(model, task, NO_INTERVENTIONS),
        "exact_match_without": _exact_match(model, task, without),
        "sequences": SEQUENCES,
    }


def _exact_match(model: Seq2Seq, task: Task, interventions: Interventions) -> float:
    """Measure exact match on held-out inputs, once for each of a model's heads and layers, one at a time."""
    with _MEASURING:
        measured = _measured.setdefault(model, {})
        key = str(interventions)
        if key not in measured:
            measured[key] = exact_match_with(model, task, fixed_pairs(task, SEQUENCES, split="test"), interventions)
        return measured[key]


def _answer(found: Inspection) -> dict[str, Any]:
    """Return what a decode produced, step by step, and what was expected."""
    return {
        "input": found.symbols,
        "produced": [step.produced for step in found.steps],
        "probabilities": [round(step.probability, 4) for step in found.steps],
        "expected": found.expected,
        "correct": found.correct,
    }


def _rounded(values: torch.Tensor, digits: int = 4) -> list:
    """Return a tensor as nested lists of numbers with that many decimals."""
    return values.double().round(decimals=digits).tolist()
