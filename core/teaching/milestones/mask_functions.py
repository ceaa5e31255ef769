"""Milestone 1: the functions that make masks, alone and together with the attention of the same file."""

from collections.abc import Callable
from typing import Any

import torch

from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones.arguments import PAD, kind_of, parameters_of, tensors_in
from core.teaching.milestones.attention import AttentionChecks, sees_all_without_keys
from core.teaching.milestones.mask_encodings import MaskConvention

LENGTH = 5
IDS = torch.tensor([[1, 7, 8, 9, 2], [1, 7, 2, PAD, PAD]])


def check_causal_mask(make: Callable[..., Any], attention: AttentionChecks | None) -> Finding:
    """A causal mask hides what comes after, and nothing else; it means what the attention of the file reads.

    Args:
        make: the function; it gets the length, or a target of ids if it asks for one.
        attention: of the same file, None if it has none.
    """
    name = "causal mask"
    mask = made = _made(make, LENGTH)
    if mask is None or made is None or tuple(mask.shape[-2:]) != (LENGTH, LENGTH) or mask.numel() != LENGTH * LENGTH:
        shape = "no tensor" if mask is None else f"the shape {tuple(mask.shape)}"
        sentence = f"For a length of {LENGTH} it returns {shape}; a causal mask has a row and a column for each token."
        return Finding(name, "red", sentence)
    mask = mask.reshape(LENGTH, LENGTH)
    lower = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    shapes = {
        "right": lower,
        "hides each token from itself; its first row then hides everything: take diagonal=1 for what is hidden, "
        "or tril() for what may be attended to": lower.tril(-1),
        "lets each token see the next one, which is the one to predict: the diagonal is off by one": lower
        | (torch.ones_like(lower).tril(1)),
        "hides the past and shows the future: it is transposed": lower.T,
        "hides the past and the token itself: it is transposed and off by one": lower.T.triu(1),
        "hides nothing": torch.ones_like(lower),
    }
    seen = None if attention is None else attention.visible(made, LENGTH)
    if seen is not None and attention is not None:
        what = next((text for text, may in shapes.items() if torch.equal(seen[0], sees_all_without_keys(may))), "")
        if what == "right":
            return Finding(name, "green", "With it the attention of the file sees each token and what came before.")
        if torch.equal(seen[0], sees_all_without_keys(~lower)):
            return Finding(name, "red", _inverted("the future and hides the past", attention))
        sentence = f"As the attention of the file reads it ({attention.mask}), the mask {what or 'is not triangular'}."
        return Finding(name, "red", sentence)
    readings = _readings(mask)
    for marks, may in readings.items():
        if torch.equal(may, lower):
            meaning = {"may": "True or 1 = may attend", "hidden": "True or 1 = hidden", "score": "added to the scores"}
            return Finding(name, "green", f"A token sees itself and what came before ({meaning[marks]}).")
    known = [text for text, other in shapes.items() for may in readings.values() if torch.equal(may, other)]
    return Finding(name, "red", f"The mask {known[0] if known else 'is not triangular'}.")


def check_padding_mask(make: Callable[..., Any], attention: AttentionChecks | None) -> Finding:
    """A padding mask hides PAD as a key, and nothing else; it means what the attention of the file reads."""
    name = "padding mask"
    mask = _made(make, IDS)
    if mask is None or mask.shape[0] != len(IDS) or mask.shape[-1] != LENGTH:
        shape = "no tensor" if mask is None else f"the shape {tuple(mask.shape)}"
        sentence = f"For ids of shape {tuple(IDS.shape)} it returns {shape}; its last axis must be that of the keys."
        return Finding(name, "red", sentence)
    is_token = IDS != PAD
    rows = mask.reshape(len(IDS), -1, LENGTH)[:, 0]  # of the first query
    readings = _readings(rows)
    seen = None if attention is None else attention.visible(mask, LENGTH)
    if seen is not None and attention is not None:
        if torch.equal(seen[:, 0], is_token):
            return Finding(name, "green", f"With it the attention of the file hides PAD; shape {tuple(mask.shape)}.")
        if torch.equal(seen[:, 0], sees_all_without_keys(~is_token)):
            return Finding(name, "red", _inverted("PAD and hides all other tokens", attention))
    elif attention is not None and attention.mask is not None and attention.mask.encoding.marks in readings:
        if torch.equal(readings[attention.mask.encoding.marks], is_token):
            return Finding(name, "green", f"PAD is hidden and no other token is, in the shape {tuple(mask.shape)}.")
        if any(torch.equal(each, is_token) for each in readings.values()):
            return Finding(name, "red", _inverted("PAD and hides all other tokens", attention))
    elif any(torch.equal(each, is_token) for each in readings.values()):
        return Finding(name, "green", f"PAD is told from other tokens, in the shape {tuple(mask.shape)}.")
    hidden = [row.tolist() for row in mask.reshape(len(IDS), -1, LENGTH)[:, 0]]
    return Finding(name, "red", f"For the ids {IDS.tolist()}, PAD {PAD}, the mask is {hidden}: it does not mark PAD.")


def _inverted(sees: str, attention: AttentionChecks) -> str:
    reads = "" if attention.mask is None else attention.mask.encoding.name
    return (
        f"The polarity is inverted: the attention of the file reads masks as {reads}, so with this mask it sees "
        f"{sees}. Let both mean the same."
    )


def _made(make: Callable[..., Any], given: int | torch.Tensor) -> torch.Tensor | None:
    """Call a function that makes a mask with a length or with ids, whichever its first argument is."""
    arguments: dict[str, Any] = {}
    for index, (name, parameter) in enumerate(parameters_of(make).items()):
        if index == 0:
            is_ids = isinstance(given, int) and name.lower() in ("tgt", "trg", "target", "seq", "x", "ids", "tgt_in")
            arguments[name] = torch.ones(1, given, dtype=torch.long) if is_ids and isinstance(given, int) else given
        elif name == "device":
            arguments[name] = torch.device("cpu")
        elif kind_of(name, ["pad"]):
            arguments[name] = PAD
        elif parameter.default is parameter.empty and isinstance(given, int):
            arguments[name] = given
    result = make(**arguments)
    if result is None:
        raise NotCheckableError("it returns None; its body may not be written yet.")
    return next(iter(tensors_in(result)), None)


def _readings(mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what a mask may mean: bool, True = may attend, by what its numbers would mark."""
    if mask.dtype == torch.bool:
        return {"may": mask, "hidden": ~mask}
    if bool(((mask == 0) | (mask == 1)).all()):
        return {"may": mask == 1, "hidden": mask == 0}
    return {"score": mask > -1e3}


def check_consistency(name: str, first: MaskConvention | None, second: MaskConvention | None) -> Finding:
    """Return whether two parts of one file read masks alike."""
    if first is None or second is None:
        return not_checked(name, "the convention of one of the two is not known.")
    if first.encoding.marks == second.encoding.marks:
        return Finding(name, "green", f"Both read masks alike: {first.encoding.name}.")
    sentence = (
        f"The attention reads masks as {first.encoding.name}, multi-head attention as {second.encoding.name}: one mask "
        "cannot serve both, and no error says so."
    )
    return Finding(name, "amber", sentence)
