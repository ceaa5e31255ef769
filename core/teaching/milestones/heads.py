"""Milestone 2: multi-head attention, recomputed from its own projections with one head at a time."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones import formulas
from core.teaching.milestones.arguments import (
    Sizes,
    build,
    building_parameters,
    draw,
    kind_of,
    tensor_of,
)
from core.teaching.milestones.attention import causes
from core.teaching.milestones.formulas import RIGHT, Formula, Mistake
from core.teaching.milestones.head_calls import BATCH, HEADS, KEYS, KINDS, QUERIES, WIDTH, MultiHead, Vectors
from core.teaching.milestones.mask_encodings import (
    FOUR,
    KEYS_ONLY,
    THREE,
    TWO,
    MaskConvention,
    drawn_mask,
    per_head,
)
from core.teaching.milestones.mask_search import MaskSearch

AXES = ("batch", "position")
FIELDS = ("scale", "weights", "values", "split", "merge")
SHAPES = (FOUR, THREE, TWO, per_head(HEADS), *KEYS_ONLY)


class HeadChecks:
    """The checks of an implementation of multi-head attention, in order; each returns a finding.

    Attributes:
        conventions: what was found out about it, in words.
        mask: the masks that it takes; None until found.
    """

    def __init__(self, what: Callable[..., Any]) -> None:
        self.what, self.heads = what, MultiHead(what)
        self.conventions: list[str] = []
        self.mask: MaskConvention | None = None
        self.formula: Formula | None = None
        self.vectors: Vectors | None = None
        self.own_mask: torch.Tensor | None = None  # (B, Tq, Tk) bool of a module that is causal by itself
        self.is_repeatable = True

    def all(self) -> list[tuple[str, Callable[[], Finding]]]:
        """Return the checks by name."""
        return [
            ("evaluation mode", self.repeats),
            ("formula of the heads", self.equals_the_formula),
            ("output projection", self.projects),
            ("returned weights", self.returns_weights),
            ("inputs", self.reads_its_inputs),
            ("mask", self.applies_the_mask),
            ("width of a head", self.refuses_other_widths),
            ("gradients", self.passes_gradients),
        ]

    def repeats(self) -> Finding:
        """Two calls in evaluation mode agree."""
        name, change = "evaluation mode", formulas.difference(self.heads.output(), self.heads.output())
        self.conventions.append(f"called with {', '.join(self.heads.inputs)}, each (B, T, d_model)")
        self.is_repeatable = change == 0 or math.isinf(change)
        if self.is_repeatable:
            return Finding(name, "green", "Two calls in evaluation mode agree: dropout is off.", change)
        sentence = (
            f"Two calls in evaluation mode differ by up to {change:.2g}: dropout acts; use nn.Dropout, which eval() "
            "turns off, or F.dropout(…, training=self.training)."
        )
        return Finding(name, "red", sentence, change)

    def equals_the_formula(self) -> Finding:
        """The joined heads are those of the formula, from the module's own projections."""
        name = "formula of the heads"
        if not self.is_repeatable:
            raise NotCheckableError("two calls with the same input differ.")
        wrapped = self.heads.of_torch()
        joined, _ = self.heads.joined()
        if wrapped is not None:
            return self._equals_torch(wrapped)
        others = [torch.cat([each[:1], each[1:].flip(-1)]) for each in self.heads.tensors()]
        if not formulas.is_close(self.heads.output(tensors=others)[0], self.heads.output()[0]):
            sentence = (
                "A row of the batch depends on the others: the first axis is not taken for the batch. If it takes "
                "(T, B, d_model), pass x.transpose(0, 1) inside; otherwise see the axes of transpose and view."
            )
            return Finding(name, "red", sentence)
        candidates = list(self.heads.projected())
        if not candidates:
            return not_checked(name, "no products of its inputs with weights of the width d_model were seen.")
        mistakes = self._recognize(joined, candidates)
        expected = self._joined(RIGHT, candidates[0] if self.vectors is None else self.vectors)
        off = formulas.difference(joined, expected)
        if mistakes is None:
            return self._unknown(joined, expected, candidates[0])
        if mistakes:
            where = formulas.compared(joined, expected, AXES)
            return Finding(name, "red", f"The joined heads are off by {where}: {causes(mistakes)}.", off)
        sentence = f"Each of {HEADS} heads is softmax(QKᵀ/√d_k)V of its own {WIDTH // HEADS} dimensions."
        return Finding(name, "green", sentence, off)

    def _recognize(self, joined: torch.Tensor, candidates: list[Vectors]) -> tuple[Mistake, ...] | None:
        """Find the formula with the fewest mistakes that gives the joined heads; None if no known one does.

        A module of self-attention without a mask may hide later tokens by itself.
        """
        causal = torch.ones(BATCH, self.heads.queries, self.heads.keys, dtype=torch.bool).tril()
        best: tuple[Mistake, ...] | None = None
        for own_mask in (None, causal) if len(self.heads.inputs) == 1 else (None,):
            self.own_mask = own_mask
            for vectors in candidates:
                found = formulas.recognized(joined, partial(self._joined, vectors=vectors), FIELDS)
                if found is not None and (best is None or len(found[1]) < len(best)):
                    (self.formula, best), self.vectors = found, vectors
            if best is not None:
                break
        if best is None:
            self.own_mask = None
        elif self.own_mask is not None:
            self.conventions.append("hides later tokens by itself")
        return best

    def _unknown(self, joined: torch.Tensor, expected: torch.Tensor, vectors: Vectors) -> Finding:
        """Return a finding about heads that no known mistake explains."""
        name, off = "formula of the heads", formulas.difference(joined, expected)
        if self._takes_every_other(joined, vectors):
            self.conventions.append("a head takes every H-th dimension of queries, keys and values")
            return Finding(name, "green", "The heads are those of the formula, from dimensions H apart.", off)
        where = formulas.compared(joined, expected, AXES)
        differs = (joined - expected).abs().amax(dim=(0, 1)) > formulas.TOLERANCE
        head = int(differs.nonzero()[0]) // (WIDTH // HEADS)
        sentence = f"The joined heads differ from the formula, {where}, head {head}; no known mistake explains it."
        return Finding(name, "red", sentence, off)

    def _equals_torch(self, wrapped: nn.MultiheadAttention) -> Finding:
        """A module around PyTorch's: the output is that of the formula with the wrapped weights."""
        name, tensors = "formula of the heads", self.heads.tensors()
        query, key, value = (*tensors, *[tensors[-1]] * 2)[:3]
        weights = wrapped.in_proj_weight.chunk(3)
        biases = (None,) * 3 if wrapped.in_proj_bias is None else wrapped.in_proj_bias.chunk(3)
        vectors = [F.linear(*each) for each in zip((query, key, value), weights, biases, strict=True)]
        self.vectors, self.formula = (vectors[0], vectors[1], vectors[2]), RIGHT
        expected = wrapped.out_proj(self._joined(RIGHT, self.vectors))
        output = self.heads.output()
        self.conventions.append("wraps nn.MultiheadAttention")
        if formulas.is_close(output, expected):
            return Finding(name, "green", "The output is that of nn.MultiheadAttention and of the formula.")
        self.formula = None
        where = formulas.compared(output, expected, AXES)
        cause = "" if wrapped.batch_first else ": batch_first is False, so the batch is taken for the sequence"
        return Finding(name, "red", f"The output is off by {where}{cause}.")

    def _takes_every_other(self, joined: torch.Tensor, vectors: Vectors) -> bool:
        order = torch.arange(WIDTH).view(-1, HEADS).T.flatten()
        query, key, value = (each[..., order] for each in vectors)
        found = self._joined(RIGHT, (query, key, value))
        return formulas.is_close(joined, found) or formulas.is_close(joined[..., order], found)

    def _joined(self, formula: Formula, vectors: Vectors, may: torch.Tensor | None = None) -> torch.Tensor:
        """Return the joined heads (B, Tq, D) by a formula."""
        heads, _ = self._attended(formula, vectors, may)
        return heads.reshape(BATCH, -1, WIDTH) if formula.merge == "viewed" else heads.transpose(1, 2).flatten(2)

    def _attended(
        self, formula: Formula, vectors: Vectors, may: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs (B, H, Tq, K) and weights (B, H, Tq, Tk) of all heads by a formula."""
        query, key, value = (_split(each, viewed=formula.split == "viewed") for each in vectors)
        if self.own_mask is not None:
            may = self.own_mask if may is None else may & self.own_mask
        return formula.attend(query, key, value, None if may is None else may[:, None], num_heads=HEADS)

    def projects(self) -> Finding:
        """The joined heads go through the output projection."""
        name = "output projection"
        if self.heads.of_torch() is not None:
            return Finding(name, "green", "The output projection is that of nn.MultiheadAttention.")
        if self.heads.joined()[1]:
            return Finding(name, "green", "The joined heads go through an output projection.")
        if self.formula is None:
            raise NotCheckableError("the heads are not recognized.")
        sentence = (
            "The output is the joined heads themselves: the output projection is missing; "
            "return self.w_o(joined), with w_o = nn.Linear(d_model, d_model)."
        )
        return Finding(name, "red", sentence)

    def returns_weights(self) -> Finding:
        """The returned weights, if any, are those of the heads."""
        name = "returned weights"
        shape = (BATCH, self.heads.queries, self.heads.keys)
        result = self.heads.call(self.heads.tensors())
        of_heads = tensor_of(result, (BATCH, HEADS, *shape[1:]))
        weights = tensor_of(result, shape) if of_heads is None else of_heads
        if weights is None:
            return Finding(name, "green", "Only the output is returned, so there are no weights that could be others.")
        if self.formula is None or self.vectors is None:
            raise NotCheckableError("the heads are not recognized.")
        _, expected = self._attended(self.formula, self.vectors)
        expected = expected if of_heads is not None else expected.mean(dim=1)
        if formulas.is_close(weights, expected):
            what = "of each head" if of_heads is not None else "averaged over the heads"
            return Finding(name, "green", f"The returned weights are those {what}, {tuple(weights.shape)}.")
        axes = ("batch", "head", "query") if of_heads is not None else ("batch", "query")
        where = formulas.compared(weights, expected, axes)
        return Finding(name, "red", f"The returned weights are not those that average the values: off by {where}.")

    def reads_its_inputs(self) -> Finding:
        """Queries, keys and values are each projected from their own input."""
        name, heads = "inputs", self.heads
        if heads.problem:
            sentence = (
                f"{QUERIES} queries and {KEYS} keys are refused ({heads.problem[:120]}); "
                "cross-attention has different numbers of them."
            )
            return Finding(name, "amber", sentence)
        before = heads.output()
        for index, parameter in enumerate(heads.inputs):
            tensors = heads.tensors()
            tensors[index] = draw(*tensors[index].shape, seed=9)
            if formulas.is_close(heads.output(tensors=tensors), before):
                sentence = (
                    f"Another {parameter} changes nothing: it is not projected; see what each projection is given."
                )
                return Finding(name, "red", sentence)
        if len(heads.inputs) == 1:
            self.conventions.append("self-attention only: a decoder's cross-attention needs keys from another input")
        return Finding(name, "green", f"The output depends on {', '.join(heads.inputs)}.")

    def applies_the_mask(self) -> Finding:
        """A mask, in whichever convention, gives the weights of hidden keys to the others, in every head."""
        name, heads = "mask", self.heads
        if not heads.masks:
            return not_checked(name, "its forward has no parameter whose name contains mask.")
        if self.formula is None or self.vectors is None:
            raise NotCheckableError("the heads are not recognized.")
        vectors, wrapped = self.vectors, heads.of_torch()

        def expected(formula: Formula, may: torch.Tensor) -> torch.Tensor:
            joined = self._joined(formula, vectors, may)
            return joined if wrapped is None else wrapped.out_proj(joined)

        search = MaskSearch(
            lambda mask: heads.output(mask) if wrapped is not None else heads.joined(mask)[0],
            expected,
            self.formula,
            AXES,
        )
        found = search.run(drawn_mask(BATCH, heads.queries, heads.keys), SHAPES)
        if isinstance(found, Finding):
            return found
        self.mask = found
        self.conventions.append(f"mask: {found}")
        return Finding(name, "green", f"Hidden keys get no weight in any head ({found}).")

    def refuses_other_widths(self) -> Finding:
        """A width that the number of heads does not divide is refused."""
        name = "width of a head"
        kinds = {kind_of(each, KINDS) for each in building_parameters(self.what)}
        if not {"d_model", "num_heads"} <= kinds:
            return not_checked(name, "it is not built from d_model and num_heads.")
        if "d_k" in kinds:
            return not_checked(name, "it is passed the width of a head, so d_model need not be a multiple of it.")
        sizes = Sizes(d_model=WIDTH + 1)
        try:
            build(self.what, sizes, KINDS)
        except Exception as error:  # noqa: BLE001 - whatever refuses it
            return Finding(name, "green", f"d_model {WIDTH + 1} with {HEADS} heads is refused: {type(error).__name__}.")
        sentence = (
            f"d_model {WIDTH + 1} with {HEADS} heads is accepted, though heads of width {(WIDTH + 1) // HEADS} leave "
            "out a dimension; raise a ValueError if d_model % num_heads is not 0."
        )
        return Finding(name, "red", sentence)

    def passes_gradients(self) -> Finding:
        """Every matrix of weights gets a gradient."""
        return check_gradients(self.heads.module, self.heads.output)


def check_gradients(module: Any, output: Callable[[], torch.Tensor]) -> Finding:
    """Every matrix of weights gets a gradient from the output; the bias of keys gets none but rounding."""
    name = "gradients"
    if not isinstance(module, nn.Module) or not any(each.requires_grad for each in module.parameters()):
        return not_checked(name, "it has no parameters that are registered.")
    module.zero_grad()
    result = output()
    if not result.requires_grad:
        return Finding(name, "red", "No gradient reaches the parameters: .detach(), .data or no_grad cuts it off.")
    (result * draw(*result.shape, seed=3)).sum().backward()
    lost = [
        each
        for each, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.ndim > 1 and (parameter.grad is None or not parameter.grad.any())
    ]
    module.zero_grad()
    if lost:
        sentence = f"No gradient reaches {', '.join(lost[:3])}: not used in forward, or cut off by .detach() or .data."
        return Finding(name, "red", sentence, len(lost))
    return Finding(name, "green", "Every matrix of weights gets a gradient.")


def _split(x: torch.Tensor, *, viewed: bool) -> torch.Tensor:
    """Return the heads (B, H, T, K) of vectors (B, T, D)."""
    if viewed:
        return x.reshape(x.shape[0], HEADS, x.shape[1], -1)
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
