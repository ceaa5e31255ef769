"""Why this answer: what one predicted token rests on, by the methods of ``core.interpret.attribution``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

import gradio as gr
import torch
from pydantic import Field

from core.config.sections import TransformerConfig
from core.interpret.attribution import (
    activation_patching,
    decoder_lens,
    direct_logit_attribution,
    input_gradients,
    logit_lens,
    occlusion,
    value_zeroing,
)
from core.interpret.attribution.corrupted_input import corrupt
from core.interpret.attribution.prediction import Prediction, prediction_at
from core.interpret.trained import Trained
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from core.tasks import Task
from core.text.subwords import WORD_START
from core.text.vocab import EOS
from ui.components.component import component, validated
from ui.current_decode import CurrentDecode
from ui.json_numbers import json_number, json_numbers
from ui.shown_decode import DecodeRequest, Token

MAX_EXPLAINED = 96  # tokens of the input or of the answer: each method computes one run a token, or more
LARGEST_PARTS = 12  # shown one by one; the others are summed up
MAX_REPLACEMENTS = 100  # tokens to choose from for a changed input
LONGEST_ENDING = 3  # characters of pieces that are hardly a word
NUM_CANDIDATES = 100  # tokens to choose from as the one to compare with; others are typed

Method = Literal["parts", "lens", "tokens", "patching"]


class WhyRequest(DecodeRequest):
    """One step of an answer, and how to explain it.

    Attributes:
        step: the decoding step, from 0.
        foil: the token to compare with, "why 9, not 2?"; None explains the produced token alone.
        position, replacement: of patching, the token of the input to replace, from 0, and by what; None chooses both.
    """

    method: Method
    step: int = Field(ge=0)
    foil: Token | None = None
    position: int | None = Field(default=None, ge=0)
    replacement: Token | None = None


def why_answer(runs: VisitorRuns) -> gr.HTML:
    """Build the component. Value: ``why_value``."""
    return component("why_answer", elem_id="why", server_functions={"why": validated(WhyRequest, partial(why, runs))})


def why_value(decode: CurrentDecode | None) -> dict[str, Any] | None:
    """Return a decode as the component's value; None without one."""
    if decode is None:
        return None
    spec = decode.interventions
    return {
        "run": decode.run,
        "subwords": decode.inspection.has_subwords,
        "step": decode.step,
        "source": decode.inspection.source_labels,
        "tokens": [step.produced for step in decode.inspection.steps],
        "interventions": {
            "ablate": list(spec.ablate),
            "patterns": list(spec.patterns),
            "ablate_with": spec.ablate_with,
        },
    }


def why(runs: VisitorRuns, request: WhyRequest) -> dict[str, Any]:
    """Return what a method finds about one prediction, as plain data, with the question that it answers."""
    longest = max(len(request.source), request.step)
    if longest > MAX_EXPLAINED:
        raise InputError(
            f"{longest} tokens are more than {MAX_EXPLAINED}, which this page explains; use `core analyze --why`"
        )
    with runs.inference_priority.inference():
        loaded = runs[request.run].trained()
        request.ids(loaded)  # checks the tokens
        answer = [token for token in request.tokens if token != EOS]
        with request.interventions().applied_to(loaded).changed():
            prediction = prediction_at(
                loaded.model,
                loaded.task,
                request.source[1:-1],
                step=request.step,
                foil=_token(loaded, request.foil),
                answer=answer,
                first_step=1,
            )
            candidates = _candidates(loaded, prediction)
            found = _METHODS[request.method](loaded, prediction, request)
    return {
        "question": _question(loaded, prediction),
        "target": prediction.target_token,
        "source": prediction.source_labels,
        "prefix": prediction.prefix_labels,
        "foil": prediction.foil_token,
        "candidates": candidates,
        "lists_all": len(candidates) + 1 >= len(loaded.task.tgt_vocab),
        **found,
    }


def _question(loaded: Trained, prediction: Prediction) -> str:
    name, foil = loaded.task.token_name, prediction.foil_token
    names = replace(
        prediction, target_token=name(prediction.target_token), foil_token=None if foil is None else name(foil)
    )
    return str(names)


def _token(loaded: Trained, typed: str | None) -> str | None:
    """Return a typed token, or the piece that begins a word, if the tokens are subwords and only that one exists."""
    tokens = loaded.task.tgt_vocab.tokens
    is_piece = typed is not None and loaded.task.subwords is not None and WORD_START + typed in tokens
    return f"{WORD_START}{typed}" if is_piece and typed not in tokens else typed


@torch.no_grad()
def _candidates(loaded: Trained, prediction: Prediction) -> list[str]:
    """Return the most likely tokens at the step, other than the target."""
    logits = loaded.model(prediction.src, prediction.tgt_in)[0, -1]
    best = logits.argsort(descending=True)[: NUM_CANDIDATES + 1].tolist()
    return [loaded.task.tgt_vocab.tokens[each] for each in best if each != prediction.target][:NUM_CANDIDATES]


def _parts(loaded: Trained, prediction: Prediction, request: WhyRequest) -> dict[str, Any]:
    found = direct_logit_attribution.direct_logit_attribution(loaded.model, prediction)
    shown, others = found.ranked[:LARGEST_PARTS], found.ranked[LARGEST_PARTS:]
    parts: list[dict[str, Any]] = [
        {"name": part.name, "logit": json_number(part.logit), "head": _head_value(part)} for part in shown
    ]
    if others:
        rest = sum(part.logit for part in others)
        parts.append({"name": f"the other {len(others)}", "logit": json_number(rest), "head": None})
    return {
        "parts": parts,
        "sum": json_number(found.logit),
        "num_frozen": found.num_frozen,
        "limits": [direct_logit_attribution.LIMITS],
    }


def _head_value(part: direct_logit_attribution.Contribution) -> dict[str, Any] | None:
    head = part.head
    return None if head is None else {"block": head.block, "layer": head.layer, "head": head.head}


def _lens(loaded: Trained, prediction: Prediction, request: WhyRequest) -> dict[str, Any]:
    lens = logit_lens.logit_lens(loaded.model, loaded.task, prediction)
    rows = [
        {
            "name": row.name,
            "probability": json_number(row.probability),
            "rank": row.rank,
            "candidates": [{"token": token, "probability": json_number(each)} for token, each in row.candidates],
        }
        for row in lens.rows
    ]
    answers, limits = None, [logit_lens.LIMITS]
    if isinstance(loaded.preset.model, TransformerConfig):
        found = decoder_lens.decoder_lens(loaded.model, loaded.task, prediction)
        answers = [
            {"layer": each.layer, "answer": [*each.answer, *([EOS] if each.stopped else [])], "matches": each.matches}
            for each in found
        ]
        limits.append(decoder_lens.LIMITS)
    return {"rows": rows, "first": lens.first, "answers": answers, "limits": limits}


def _tokens(loaded: Trained, prediction: Prediction, request: WhyRequest) -> dict[str, Any]:
    model = loaded.model
    methods: dict[str, tuple[Callable[..., input_gradients.InputAttribution], str]] = {
        "integrated gradients": (input_gradients.integrated_gradients, input_gradients.INTEGRATED_LIMITS),
        "occlusion": (occlusion.occlusion, occlusion.LIMITS),
        "gradient × input": (input_gradients.gradient_times_input, input_gradients.GRADIENT_LIMITS),
        "saliency": (input_gradients.saliency, input_gradients.SALIENCY_LIMITS),
    }
    results = {name: method(model, prediction) for name, (method, _) in methods.items()}
    rows = [
        {"name": name, "source": json_numbers(found.source), "prefix": json_numbers(found.prefix)}
        for name, found in results.items()
    ]
    integrated = cast(input_gradients.IntegratedGradients, results["integrated gradients"])
    try:
        zeroed, zeroing = value_zeroing.value_zeroing(model, prediction), value_zeroing.LIMITS
    except InputError as error:  # a model without attention, or one of its own kind; the other methods stay
        zeroed, zeroing = value_zeroing.ValueZeroing(None, None, None), f"Not measured: {error}."
    encoder = None if prediction.position is None else zeroed.encoder  # that of others predicts nothing itself
    own = [*([] if zeroed.cross is not None else prediction.source_labels), *prediction.prefix_labels]
    layers = [
        {"name": f"{block}.{number}", "columns": columns, "values": json_numbers(values[prediction.row])}
        for block, of_block, columns in (
            ("encoder", encoder, list(prediction.source_labels)),
            ("cross", zeroed.cross, list(prediction.source_labels)),
            ("decoder", zeroed.decoder, own),
        )
        if of_block is not None
        for number, values in enumerate(of_block, start=1)
    ]
    limits = [f"{name[0].upper()}{name[1:]}: {limit[0].lower()}{limit[1:]}" for name, (_, limit) in methods.items()]
    return {
        "methods": rows,
        "gap": json_number(integrated.gap / (abs(integrated.logit - integrated.baseline_logit) or 1.0)),
        "zeroing": layers,
        "limits": [*limits, f"Value zeroing: {zeroing[0].lower()}{zeroing[1:]}"],
    }


def _replacements(task: Task) -> list[str]:
    """Return tokens of the input to choose from; of subwords, frequent ones that are whole words or begin one."""
    symbols = task.src_vocab.symbols
    if task.subwords is not None:
        symbols = tuple(each for each in symbols if each.startswith(WORD_START) and len(each) > LONGEST_ENDING)
    return list(symbols[:MAX_REPLACEMENTS])


def _patching(loaded: Trained, prediction: Prediction, request: WhyRequest) -> dict[str, Any]:
    corrupted: Sequence[str] | None = None
    if request.position is not None:
        corrupted = corrupt(
            loaded.model,
            loaded.task,
            prediction,
            position=request.position,
            replacement=request.replacement,
        )
    found = activation_patching.activation_patching(loaded.model, loaded.task, prediction, corrupted=corrupted)
    return {
        "question": _question(loaded, found.prediction),
        "corrupted": found.corrupted,
        "changed": found.changed,
        "clean_difference": json_number(found.clean_difference),
        "corrupted_difference": json_number(found.corrupted_difference),
        "symbols": _replacements(loaded.task),
        "grids": [
            {
                "name": grid.name,
                "block": grid.block,
                "positions": grid.positions,
                "rows": grid.rows,
                "columns": grid.columns,
                "restored": [json_numbers(row) for row in grid.restored],
                "is_restored": grid.is_restored.tolist(),
            }
            for grid in found.grids
        ],
        "limits": [activation_patching.LIMITS],
    }


_METHODS: dict[Method, Callable[[Trained, Prediction, WhyRequest], dict[str, Any]]] = {
    "parts": _parts,
    "lens": _lens,
    "tokens": _tokens,
    "patching": _patching,
}
