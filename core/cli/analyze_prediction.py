"""``analyze --why INPUT``: explain one predicted token with every method of ``core.interpret.attribution``."""

import argparse
import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.config.counting import percent
from core.generation.reading import read_input
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
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.text.vocab import until_eos

LARGEST_PARTS = 12
WIDTH = 120
OPTIONS = ("step", "token", "foil", "method", "change")  # that need --why


@dataclass(frozen=True)
class Explanation:
    """What a method found: lines of text, plain data, and what it can and cannot show."""

    lines: list[str]
    data: Any
    limits: str


Explain = Callable[[Trained, Prediction, argparse.Namespace], Explanation]


def check_options(options: argparse.Namespace) -> None:
    """Raise InputError if an option is given without ``--why``."""
    for name in OPTIONS:
        if getattr(options, name) is not None and options.why is None:
            raise InputError(f"--{name}={getattr(options, name)} needs --why")


def explain(loaded: Trained, options: argparse.Namespace) -> int:
    """Print what every method finds about one prediction.

    Raises:
        InputError: the input, step or a token is not valid, or a method named by ``--method`` does not fit the model.
    """
    names = _methods_from(options.method)
    model, task = loaded.model, loaded.task
    step = 1 if options.step is None else options.step
    if step < 1:
        raise InputError(f"--step={step} must be at least 1")
    prediction = prediction_at(
        model,
        task,
        read_input(model, task, options.why).symbols,
        step=step - 1,
        target=options.token,
        foil=options.foil,
        first_step=1,
    )
    output = task.tgt_vocab.decode(until_eos(prediction.answer))
    print(f"run {loaded.run} ({loaded.preset.name}), best weights, from step {loaded.step}")
    print(f"{' '.join(prediction.symbols)} → {task.answer_text(output)}")
    if prediction.position is None:
        context = f"after {' '.join(prediction.prefix_labels)}"
    else:  # nothing is read before it but the input
        context = f"at position {prediction.position}, {prediction.source_labels[prediction.position]}"
    print(f"step {step}, {context}: {prediction}")
    found: dict[str, Any] = {}
    for name in names:
        try:
            explanation = METHODS[name](loaded, prediction, options)
        except InputError as error:
            if options.method is not None or (name == "patching" and options.change is not None):
                raise
            print(f"\n{name}: {error}")
            continue
        print(f"\n{name}\n" + "\n".join(f"  {line}".rstrip() for line in explanation.lines))
        for limits in explanation.limits.splitlines():
            print(textwrap.fill(limits, WIDTH, initial_indent="  ", subsequent_indent="  "))
        found[name] = {"result": explanation.data, "limits": explanation.limits}
    if options.json:
        print(json.dumps(_head_of_json(loaded, prediction, output) | {"methods": found}))
    return 0


def _head_of_json(loaded: Trained, prediction: Prediction, output: list[str]) -> dict[str, Any]:
    return {
        "run": loaded.run,
        "preset": loaded.preset.name,
        "step": loaded.step,
        "input": " ".join(prediction.symbols),
        "output": " ".join(output),
        "answer_step": prediction.step + 1,
        "token": prediction.target_token,
        "foil": prediction.foil_token,
        "source": list(prediction.source_labels),
        "prefix": list(prediction.prefix_labels),
        "position": prediction.position,
    }


def _methods_from(text: str | None) -> list[str]:
    names = list(METHODS) if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in METHODS:
            raise InputError(f"--method={short_repr(name, 40)} is not one of {', '.join(METHODS)}")
    return list(dict.fromkeys(names))


def _lens(loaded: Trained, prediction: Prediction, options: argparse.Namespace) -> Explanation:
    lens = logit_lens.logit_lens(loaded.model, loaded.task, prediction)
    rows = [["after", "P", "rank", "score", "most probable"]]
    for row in lens.rows:
        top = "  ".join(f"{token} {percent(probability)}" for token, probability in row.candidates[:3])
        rows.append([row.name, f"{percent(row.probability)}", str(row.rank), f"{row.score:.2f}", top])
    data = [
        {
            "after": row.name,
            "probability": row.probability,
            "rank": row.rank,
            "score": row.score,
            "candidates": [{"token": token, "probability": each} for token, each in row.candidates],
        }
        for row in lens.rows
    ]
    return Explanation(list(_table(rows, left=(0, 4))), data, logit_lens.LIMITS)


def _decoder_lens(loaded: Trained, prediction: Prediction, options: argparse.Namespace) -> Explanation:
    answers = decoder_lens.decoder_lens(loaded.model, loaded.task, prediction)
    rows = [["encoder layer", "P", "score", "answer"]]
    for each in answers:
        text = loaded.task.answer_text(each.answer) + ("" if each.stopped else " (no EOS)")
        layer = "embedding" if not each.layer else str(each.layer)
        rows.append([layer, f"{percent(each.probability)}", f"{each.score:.2f}", text])
    data = [
        {
            "layer": each.layer,
            "output": " ".join(each.answer),
            "stopped": each.stopped,
            "matches": each.matches,
            "probability": each.probability,
            "score": each.score,
        }
        for each in answers
    ]
    return Explanation(list(_table(rows, left=(0, 3))), data, decoder_lens.LIMITS)


def _parts(loaded: Trained, prediction: Prediction, options: argparse.Namespace) -> Explanation:
    found = direct_logit_attribution.direct_logit_attribution(loaded.model, prediction)
    rows = [[part.name, f"{part.logit:+.2f}"] for part in found.ranked[:LARGEST_PARTS]]
    rest = found.ranked[LARGEST_PARTS:]
    if rest:
        rows.append([f"{len(rest)} others", f"{sum(part.logit for part in rest):+.2f}"])
    what = "logit" if prediction.foil is None else "logit difference"
    norms = "the final norm" if found.num_frozen == 1 else f"{found.num_frozen} norms"
    lines = [*_table(rows), f"sum: {found.logit:.2f}, the {what}; with the scale of {norms} frozen"]
    data = {
        "logit": found.logit,
        "num_frozen": found.num_frozen,
        "parts": [{"name": part.name, "kind": part.kind, "logit": part.logit} for part in found.parts],
    }
    return Explanation(lines, data, direct_logit_attribution.LIMITS)


def _tokens(loaded: Trained, prediction: Prediction, options: argparse.Namespace) -> Explanation:
    model = loaded.model
    found = {
        "saliency": input_gradients.saliency(model, prediction),
        "gradient × input": input_gradients.gradient_times_input(model, prediction),
        "integrated gradients": input_gradients.integrated_gradients(model, prediction),
        "occlusion": occlusion.occlusion(model, prediction),
    }
    rows = [["", "token", *found]]
    for side in ("source", "prefix"):
        columns = [getattr(each, side).tolist() for each in found.values()]
        for label, *values in zip(getattr(prediction, f"{side}_labels"), *columns, strict=True):
            rows.append([side, label, *(f"{value:.2f}" for value in values)])
    limits = {
        "saliency": input_gradients.SALIENCY_LIMITS,
        "gradient × input": input_gradients.GRADIENT_LIMITS,
        "integrated gradients": input_gradients.INTEGRATED_LIMITS,
        "occlusion": occlusion.LIMITS,
    }
    data = {
        name: {side: _rounded(getattr(each, side)) for side in ("source", "prefix")} | {"limits": limits[name]}
        for name, each in found.items()
    }
    joined = "\n".join(f"{name[0].upper()}{name[1:]}: {limits[name][0].lower()}{limits[name][1:]}" for name in limits)
    return Explanation(list(_table(rows, left=(0, 1))), data, joined)


def _value_zeroing(loaded: Trained, prediction: Prediction, options: argparse.Namespace) -> Explanation:
    found = value_zeroing.value_zeroing(loaded.model, prediction)
    source, prefix = prediction.source_labels, prediction.prefix_labels
    own = prefix if found.cross is not None else (*source, *prefix)  # a decoder-only model attends to both
    encoder = None if prediction.position is None else found.encoder  # that of others predicts nothing itself
    lines = ["1 - cosine of the output at the predicting position without a token's values"]
    for block, values, columns in (
        ("encoder", encoder, source),
        ("decoder", found.decoder, own),
        ("cross", found.cross, source),
    ):
        if values is not None:
            layers = [f"{block}.{layer}" for layer in range(1, len(values) + 1)]
            lines += ["", *_heat_map(layers, columns, values[:, prediction.row])]
    blocks = {"encoder": found.encoder, "decoder": found.decoder, "cross": found.cross}
    data = {block: None if values is None else _rounded(values) for block, values in blocks.items()}
    return Explanation(lines, data, value_zeroing.LIMITS)


def _patching(loaded: Trained, prediction: Prediction, options: argparse.Namespace) -> Explanation:
    model, task, corrupted = loaded.model, loaded.task, None
    if options.change is not None:
        position, equals, token = options.change.partition("=")
        if not equals or not position.strip().isdecimal():
            raise InputError(f"--change={short_repr(options.change, 40)} must be K=T, position and token, such as 4=7")
        corrupted = corrupt(model, task, prediction, position=int(position) - 1, replacement=token.strip())
    found = activation_patching.activation_patching(model, task, prediction, corrupted=corrupted)
    lines = [
        f"changed input: {' '.join(found.corrupted)}; {found.prediction}",
        f"logit difference {found.clean_difference:.2f}, on the changed input {found.corrupted_difference:.2f}; "
        "restored: 0 none of it, 1 all",
    ]
    grids = []
    for grid in found.grids:
        of = f", {grid.positions} positions" if grid.positions else ", all positions"
        lines += ["", f"{grid.name} of {grid.block}{of}"]
        columns = grid.columns if grid.positions else [f"head {number}" for number in grid.columns]
        lines += _heat_map([*grid.rows], columns, grid.restored)
        grids.append(
            {
                "name": grid.name,
                "block": grid.block,
                "positions": grid.positions,
                "rows": list(grid.rows),
                "columns": list(grid.columns),
                "restored": _rounded(grid.restored),
                "whole": _rounded(grid.whole),
            }
        )
    data = {
        "changed_input": " ".join(found.corrupted),
        "foil": found.prediction.foil_token,
        "clean_difference": found.clean_difference,
        "corrupted_difference": found.corrupted_difference,
        "grids": grids,
    }
    return Explanation(lines, data, activation_patching.LIMITS)


METHODS: dict[str, Explain] = {
    "parts": _parts,
    "lens": _lens,
    "decoder-lens": _decoder_lens,
    "tokens": _tokens,
    "value-zeroing": _value_zeroing,
    "patching": _patching,
}


def _table(rows: Sequence[Sequence[str]], *, left: tuple[int, ...] = (0,)) -> Iterator[str]:
    """Format rows with aligned columns, those in ``left`` to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _heat_map(rows: Sequence[str], columns: Sequence[str], values: torch.Tensor) -> Iterator[str]:
    """Format (R, C) numbers with labels."""
    cells = [[f"{value:.2f}".replace("-0.00", "0.00") for value in row] for row in values.tolist()]
    return _table([["", *columns], *([label, *row] for label, row in zip(rows, cells, strict=True))])


def _rounded(values: torch.Tensor) -> Any:
    """Return nested lists of numbers with six decimals."""
    return torch.round(values.double(), decimals=6).tolist()
