"""Milestone 4: encoder and decoder layers: residual connections, norms, masks and what cross-attention reads."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core.config.counting import percent
from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones import formulas
from core.teaching.milestones.heads import check_gradients
from core.teaching.milestones.layer_calls import (
    BATCH,
    SOURCES,
    TARGETS,
    LayerCall,
    Parts,
    count_norms,
    is_constant,
    is_normalized,
)
from core.teaching.milestones.mask_encodings import MaskConvention

LARGE = 1000.0  # factor of the input, under which a sublayer behind a norm still adds numbers near 1
READS_RAW = 0.02  # of the input: what a sublayer adds at least that reads it without a norm
UNCHANGED = 1e-5
PAD_AT = 3  # the position that a mask hides


class LayerChecks:
    """The checks of an encoder or a decoder layer, in order; each returns a finding.

    Args:
        what: the class.
        parts: builders of attention and feed-forward network, for layers that are passed them.
        is_decoder: whether it has cross-attention.

    Attributes:
        conventions: what was found out about it, in words.
        mask: the masks of its self-attention; None until found.
    """

    def __init__(self, what: Callable[..., Any], parts: Parts, *, is_decoder: bool) -> None:
        self.call = LayerCall.of(what, parts, is_decoder=is_decoder)
        self.is_decoder, self.sublayers = is_decoder, 2 + is_decoder
        self.conventions: list[str] = []
        self.mask: MaskConvention | None = None
        self.lacks_residual = self.reads_itself = False
        if not isinstance(self.call.module, nn.Module):
            raise NotCheckableError("it is no nn.Module.")

    def all(self) -> list[tuple[str, Callable[[], Finding]]]:
        """Return the checks by name."""
        shared = [
            ("evaluation mode", self.repeats),
            ("residual connections", self.has_residuals),
            ("norms", self.has_norms),
        ]
        own = (
            [
                ("cross-attention", self.reads_the_source),
                ("causal mask", self.is_causal),
                ("padding of the source", self.hides_source_padding),
            ]
            if self.is_decoder
            else [("padding", self.hides_padding)]
        )
        return [*shared, *own, ("gradients", self.passes_gradients)]

    def repeats(self) -> Finding:
        """The layer returns states of its input's shape, the same in two calls."""
        tensors = self.call.tensors()
        change = formulas.difference(self.call(tensors), self.call(tensors))
        if math.isinf(change):
            return Finding("evaluation mode", "red", "The output has NaN or infinite numbers.")
        if change:
            sentence = f"Two calls in evaluation mode differ by up to {change:.2g}: dropout acts; use nn.Dropout."
            return Finding("evaluation mode", "red", sentence, change)
        return Finding("evaluation mode", "green", "Two calls in evaluation mode agree: dropout is off.", change)

    def has_residuals(self) -> Finding:
        """With sublayers that return zeros, the states still reach the output."""
        name, silent = "residual connections", self.call.silenced()
        self.lacks_residual = is_constant(self.call, silent)
        if self.lacks_residual:
            only_attention = self.call.silenced(only_attention=True)
            which = "attention" if is_constant(self.call, only_attention) else "the feed-forward network"
            sentence = (
                "With sublayers that return zeros, the output no longer depends on the input: the residual connection "
                f"around {which} is missing; x + sublayer(x)."
            )
            return Finding(name, "red", sentence)
        return Finding(name, "green", "With sublayers that return zeros, the input still reaches the output.")

    def has_norms(self) -> Finding:
        """Each sublayer has a norm, before it or after the addition."""
        name, tensors = "norms", self.call.tensors()
        if self.lacks_residual:
            raise NotCheckableError("without residual connections norms cannot be told apart.")
        with torch.no_grad():
            output = self.call(tensors)
            large = [tensors[0] * LARGE, *tensors[1:]]
            added = (self.call(large) - large[0]).abs().mean() / large[0].abs().mean()
            silent = self.call(tensors, self.call.silenced())
        count = count_norms(self.call.module, lambda: self.call(tensors))
        is_post = is_normalized(output)
        if not is_post and is_normalized(silent) and not formulas.is_close(silent, tensors[0]):
            sentence = (
                "The residual connection adds norm(x) and not x: with sublayers that return zeros the output is "
                "normalized, and with their weights it is not; keep x before the norm."
            )
            return Finding(name, "red", sentence)
        if not is_post and added > READS_RAW:
            sentence = (
                f"The output is not normalized, and of an input {LARGE:g} times as large a sublayer adds "
                f"{percent(float(added), 0)}: it reads x without a norm; norm(x + sublayer(x)), or "
                "x + sublayer(norm(x))."
            )
            return Finding(name, "red", sentence, float(added))
        if 0 < count < self.sublayers:
            sentence = (
                f"{count} norm{'s are' if count > 1 else ' is'} computed for {self.sublayers} sublayers: each of them "
                "needs its own, after the addition or before the sublayer."
            )
            return Finding(name, "red", sentence, count)
        where = "after each addition" if is_post else "before each sublayer"
        self.conventions.append("post-norm: norm(x + sublayer(x))" if is_post else "pre-norm: x + sublayer(norm(x))")
        return Finding(name, "green", f"A norm comes {where}.")

    def hides_padding(self) -> Finding:
        """A position that the mask hides changes no other position."""
        name = "padding"
        if not self.call.self_mask:
            return not_checked(name, "its forward has no parameter whose name contains mask, so it reads PAD.")
        may = torch.ones(BATCH, TARGETS, TARGETS, dtype=torch.bool)
        may[..., PAD_AT] = False
        others = torch.arange(TARGETS) != PAD_AT

        def fits(masks: dict[str, torch.Tensor]) -> bool:
            hidden, seen = self.call.changes(0, PAD_AT, **masks), self.call.changes(0, 0, **masks)
            return bool((hidden[others] <= UNCHANGED).all() and (seen[1:] > UNCHANGED).any())

        try:
            self.mask = self.call.find_mask(self.call.self_mask, may, fits)
        except LookupError:
            change = self.call.changes(0, PAD_AT)[others].max().item()
            silent = self.call.changes(0, PAD_AT, self.call.silenced(only_attention=True))[others].max().item()
            cause = (
                "positions are mixed outside of attention, as by a norm over the wrong axis"
                if silent > UNCHANGED
                else "PAD is read: the mask is not passed on to the attention"
            )
            sentence = (
                f"Whatever its convention, a mask that hides position {PAD_AT} does not: another vector there changes "
                f"other positions by up to {change:.2g}; {cause}."
            )
            return Finding(name, "red", sentence, change)
        self.conventions.append(f"mask: {self.mask}")
        return Finding(name, "green", f"A hidden position changes no other one ({self.mask}).")

    def is_causal(self) -> Finding:
        """With a causal mask, a later token changes no earlier output."""
        name = "causal mask"
        if self.reads_itself:
            raise NotCheckableError("cross-attention reads the target, through which later tokens come back.")
        last = TARGETS - 1
        leak = self.call.changes(0, last)[:last].max().item()
        if not self.call.self_mask:
            if leak > UNCHANGED:
                sentence = (
                    f"The last token changes earlier outputs by up to {leak:.2g}, and forward takes no mask of the "
                    "target: the causal mask is missing."
                )
                return Finding(name, "red", sentence, leak)
            return Finding(name, "green", "A later token changes no earlier output; the layer masks by itself.")
        may = torch.ones(BATCH, TARGETS, TARGETS, dtype=torch.bool).tril()

        def fits(masks: dict[str, torch.Tensor]) -> bool:
            later, earlier = self.call.changes(0, last, **masks), self.call.changes(0, 0, **masks)
            return bool((later[:last] <= UNCHANGED).all() and (earlier[1:] > UNCHANGED).all())

        try:
            self.mask = self.call.find_mask(self.call.self_mask, may, fits)
        except LookupError:
            sentence = (
                f"With a causal mask as {self.call.self_mask}, in whichever convention, the last token still changes "
                f"earlier outputs, by up to {leak:.2g}: the mask is not passed on to the self-attention."
            )
            return Finding(name, "red", sentence, leak)
        self.conventions.append(f"{self.call.self_mask}: {self.mask}")
        return Finding(name, "green", f"With a causal mask a later token changes no earlier output ({self.mask}).")

    def reads_the_source(self) -> Finding:
        """Keys and values of cross-attention come from the encoder's output."""
        name, before, after = "cross-attention", self.call.tensors(), self.call.tensors()
        after[1] = torch.flip(after[1], dims=(-1,))
        with torch.no_grad():
            change = formulas.difference(self.call(before), self.call(after))
        self.reads_itself = change <= UNCHANGED
        if self.reads_itself:
            sentence = (
                f"Another {self.call.inputs[1]} changes nothing: cross-attention reads the states of the decoder; "
                f"its keys and values must come from {self.call.inputs[1]}."
            )
            return Finding(name, "red", sentence, change)
        return Finding(name, "green", f"{TARGETS} states attend to {SOURCES} vectors of {self.call.inputs[1]}.", change)

    def hides_source_padding(self) -> Finding:
        """A position of the source that the mask hides changes nothing."""
        name = "padding of the source"
        if self.reads_itself:
            raise NotCheckableError("cross-attention does not read the source.")
        if not self.call.cross_mask:
            return not_checked(name, "its forward has no mask of the source, so it reads the source's PAD.")
        may = torch.ones(BATCH, TARGETS, SOURCES, dtype=torch.bool)
        may[..., PAD_AT] = False

        def fits(masks: dict[str, torch.Tensor]) -> bool:
            hidden, seen = self.call.changes(1, PAD_AT, **masks), self.call.changes(1, 0, **masks)
            return bool((hidden <= UNCHANGED).all() and (seen > UNCHANGED).any())

        try:
            found = self.call.find_mask(self.call.cross_mask, may, fits)
        except LookupError:
            change = self.call.changes(1, PAD_AT).max().item()
            sentence = (
                f"A mask as {self.call.cross_mask}, in whichever convention, does not hide a position of the source: "
                f"it changes the output by up to {change:.2g}; PAD is read. Pass the mask on to cross-attention."
            )
            return Finding(name, "red", sentence, change)
        self.conventions.append(f"{self.call.cross_mask}: {found}")
        return Finding(name, "green", f"A hidden position of the source changes nothing ({found}).")

    def passes_gradients(self) -> Finding:
        """Every matrix of weights gets a gradient."""
        return check_gradients(self.call.module, lambda: self.call(self.call.tensors()))
