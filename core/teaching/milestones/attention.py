"""Milestone 1: scaled dot-product attention, compared with the formula and with its common mistakes."""

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core.config.counting import percent
from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones import formulas
from core.teaching.milestones.arguments import (
    Sizes,
    build,
    draw,
    mask_parameters,
    output_of,
    parameters_of,
    required_masks,
    tensor_of,
)
from core.teaching.milestones.formulas import RIGHT, Formula, Mistake
from core.teaching.milestones.mask_encodings import FOUR, THREE, TWO, MaskConvention, drawn_mask
from core.teaching.milestones.mask_search import MaskSearch

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 5, 7, 8
LAYOUTS = {  # axes before tokens and width
    "(B, H, T, d_k)": ((BATCH, HEADS), ("batch", "head", "query"), (FOUR, TWO)),
    "(B, T, d_k)": ((BATCH,), ("batch", "query"), (THREE, TWO)),
    "(T, d_k)": ((), ("query",), (TWO,)),
}
LOWEST = (0.0, 1.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # minus the visible scores, under which hidden ones must lie
VISIBLE_WEIGHT = 1e-6  # of hidden keys, the document's bound
LARGE = 1000.0  # scores of this size overflow exp in float32, and in float64
HIDES = re.compile(
    r"\btrue\b[^.\n]{0,40}?\b(mask|masked|hidden|hides?|prevents?|pad|padding|ignored?|blocked|future)\b"
)
SHOWS = re.compile(r"\btrue\b[^.\n]{0,40}?\b(may|attends?|keep|kept|visible|allowed|real|valid)\b")


class Attention:
    """A function or module of attention: how it is called, and what it returns.

    Attributes:
        layout: axes of the queries that it takes.
        keys: the number of keys in the checks, that of the queries if it takes no other.
        problem: the message of the exception if keys and queries differ in number, "" if it works.

    Raises:
        NotCheckableError: it needs arguments of unknown names.
    """

    def __init__(self, what: Any) -> None:
        self.function: Callable[..., Any] = what
        if inspect.isclass(what):
            self.function = build(what, Sizes(), ("d_k", "d_model", "num_heads", "temperature", "max_len"))
        self.masks = mask_parameters(self.function)
        inputs = [name for name in parameters_of(self.function) if name not in self.masks]
        if len(inputs) < 3:
            raise NotCheckableError(
                f"it takes {', '.join(inputs)}, and no queries, keys and values; call it MultiHeadAttention if it has "
                "heads."
            )
        self.layout, self.keys, self.problem = "", KEYS, ""
        self._find_layout()

    def _find_layout(self) -> None:
        """Find the axes and lengths that it takes; raise the exception of a call with three axes if there are none."""
        errors: dict[tuple[str, int], Exception] = {}
        for queries, keys in ((QUERIES, KEYS), (KEYS, KEYS)):
            for layout in LAYOUTS:
                self.layout, self.queries, self.keys = layout, queries, keys
                try:
                    self(*self.tensors())
                except Exception as error:  # noqa: BLE001 - the reader's code may raise anything
                    errors[layout, queries] = error
                else:
                    self.problem = str(next(iter(errors.values()), "")) if queries == keys else ""
                    return
        raise errors["(B, T, d_k)", KEYS]

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes before tokens and width."""
        return LAYOUTS[self.layout][0]

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes of a row of weights."""
        return LAYOUTS[self.layout][1]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of queries and output."""
        return (*self.lead, self.queries, WIDTH)

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values."""
        of_keys = (*self.lead, self.keys, WIDTH)
        return draw(*self.shape), draw(*of_keys, seed=1), draw(*of_keys, seed=2)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the output, and the weights if it returns any."""
        given = required_masks(self.function) | ({} if mask is None else {self.masks[0]: mask})
        result = self.function(query.clone(), key.clone(), value.clone(), **given)  # it may change them in place
        output = output_of(result, (*query.shape[:-1], value.shape[-1]), f"queries {tuple(query.shape)}")
        return output, tensor_of(result, (*query.shape[:-1], key.shape[-2]))

    def broadcast(self, may: torch.Tensor) -> torch.Tensor:
        """Return (B, Tq, Tk) bool with the axes of the weights."""
        return {2: may[:, None], 1: may, 0: may[0]}[len(self.lead)]


class AttentionChecks:
    """The checks of an implementation of attention, in order; each returns a finding.

    Attributes:
        conventions: what was found out about it, in words.
        mask: the masks that it takes; None until found.
    """

    def __init__(self, what: Any) -> None:
        self.attention = Attention(what)
        self.conventions: list[str] = []
        self.mask: MaskConvention | None = None
        self.formula: Formula | None = None
        self.is_repeatable = True
        self.docstring = " ".join(filter(None, (what.__doc__, getattr(getattr(what, "forward", None), "__doc__", ""))))

    def all(self) -> list[tuple[str, Callable[[], Finding]]]:
        """Return the checks by name."""
        return [
            ("evaluation mode", self.repeats),
            ("formula", self.equals_the_formula),
            ("returned weights", self.returns_weights),
            ("different lengths", self.takes_different_lengths),
            ("mask", self.applies_the_mask),
            ("mask value", self.hides_completely),
            ("large scores", self.survives_large_scores),
            ("gradients", self.passes_gradients),
            ("inputs", self.leaves_inputs),
        ]

    def repeats(self) -> Finding:
        """Two calls in evaluation mode agree."""
        name, attention = "evaluation mode", self.attention
        first, weights = attention(*attention.tensors())
        change = formulas.difference(attention(*attention.tensors())[0], first)
        self.conventions.append(
            f"takes {attention.layout}, returns {'the output' if weights is None else 'output and weights'}"
        )
        self.is_repeatable = change == 0 or math.isinf(change)
        if self.is_repeatable:
            return Finding(name, "green", "Two calls in evaluation mode agree: dropout is off.", change)
        how = (
            "use nn.Dropout, which eval() turns off"
            if isinstance(attention.function, nn.Module)
            else "pass training= to F.dropout, which is True by default"
        )
        return Finding(
            name,
            "red",
            f"Two calls in evaluation mode differ by up to {change:.2g}: dropout acts; {how}.",
            change,
        )

    def equals_the_formula(self) -> Finding:
        """The output is softmax(Q Kᵀ / √d_k) V."""
        name, attention = "formula", self.attention
        self._need_repeatable()
        tensors = attention.tensors()
        output, _ = attention(*tensors)
        found = formulas.recognized(
            output, lambda formula: formula.attend(*tensors, num_heads=HEADS)[0], ("scale", "weights", "values")
        )
        expected = RIGHT.attend(*tensors)[0]
        off = formulas.difference(output, expected)
        if found is None:
            where = formulas.compared(output, expected, attention.axes)
            sentence = f"The output differs from softmax(QKᵀ/√d_k)V, {where}; no known mistake explains it."
            return Finding(name, "red", sentence, off)
        self.formula, mistakes = found
        if mistakes:
            where = formulas.compared(output, expected, attention.axes)
            return Finding(name, "red", f"The output is off by {where}: {causes(mistakes)}.", off)
        return Finding(name, "green", "The output is softmax(QKᵀ/√d_k)V.", off)

    def returns_weights(self) -> Finding:
        """The returned weights are those that the values are averaged with."""
        name = "returned weights"
        formula = self._recognized()
        tensors = self.attention.tensors()
        _, weights = self.attention(*tensors)
        if weights is None:
            return Finding(name, "green", "Only the output is returned, so there are no weights that could be others.")
        _, expected = formula.attend(*tensors, num_heads=HEADS)
        if formulas.is_close(weights, expected):
            return Finding(name, "green", "The returned weights are those of the formula.")
        if formulas.is_close(weights, formula.scores(*tensors[:2], HEADS)):
            return Finding(name, "red", "The scores are returned as weights; return what the softmax makes of them.")
        where = formulas.compared(weights, expected, self.attention.axes)
        return Finding(name, "red", f"The returned weights are not those that average the values: off by {where}.")

    def takes_different_lengths(self) -> Finding:
        """Queries and keys may differ in number, as in cross-attention."""
        name = "different lengths"
        if self.attention.problem:
            sentence = (
                f"{QUERIES} queries and {KEYS} keys are refused ({self.attention.problem[:120]}); "
                "cross-attention has different numbers of them."
            )
            return Finding(name, "amber", sentence)
        return Finding(name, "green", f"{QUERIES} queries attend to {KEYS} keys.")

    def applies_the_mask(self) -> Finding:
        """A mask, in whichever convention, gives the weights of hidden keys to the others."""
        name, attention = "mask", self.attention
        if not attention.masks:
            return not_checked(name, "it has no parameter whose name contains mask.")
        tensors, may = attention.tensors(), drawn_mask(BATCH, attention.queries, attention.keys)
        search = MaskSearch(
            lambda mask: attention(*tensors, mask)[0],
            lambda formula, may: formula.attend(*tensors, attention.broadcast(may), num_heads=HEADS)[0],
            self._recognized(over_keys=True),
            attention.axes,
        )
        found = search.run(may, LAYOUTS[attention.layout][2])
        if isinstance(found, Finding):
            return found
        self.mask = found
        self.conventions += [f"mask: {found}", f"a query without any key gets {self._without_keys()}"]
        return self._as_documented(name)

    def _as_documented(self, name: str) -> Finding:
        """The mask means what the docstring says."""
        assert self.mask is not None  # noqa: S101 - found by the caller
        marks, text = self.mask.encoding.marks, self.docstring.lower()
        found = {"hidden": HIDES.search(text), "may": SHOWS.search(text)}
        says = [meaning for meaning, match in found.items() if match]
        is_clear = len(says) == 1 and not any(match and " not " in match[0] for match in found.values())
        if is_clear and marks in found and marks not in says:
            means = {"hidden": "hides the keys where the mask is True", "may": "attends to the keys where it is True"}
            sentence = (
                f"The mask is inverted: the code {means[marks]}, and its docstring says the opposite; "
                "write masked_fill(mask, …) if True = hidden, masked_fill(~mask, …) if True = may attend."
            )
            return Finding(name, "red", sentence)
        return Finding(name, "green", f"Hidden keys get no weight, the others sum to 1 ({self.mask}).")

    def _without_keys(self) -> str:
        """Return what a query gets whose mask hides every key, in words."""
        assert self.mask is not None  # noqa: S101 - found by the caller
        may = drawn_mask(BATCH, self.attention.queries, self.attention.keys)
        may[:, 1] = False
        query, key, value = self.attention.tensors()
        row = self.attention(query, key, value, self.mask.of(may))[0][..., 1, :]
        if not row.isfinite().all():
            return "NaN, which spreads to every weight in training: never hide all keys of a query, or fill with −10⁹"
        if formulas.size(row) == 0:
            return "zeros"
        return "an average of what is hidden: ignore its output"

    def visible(self, mask: torch.Tensor, length: int) -> torch.Tensor | None:
        """Return which keys get weight with a mask of the file, (B, T, T) bool; None if it cannot be passed.

        A query whose keys are all hidden sees all of them.
        """
        lead = self.attention.lead
        if self.mask is None or len(lead) == 0:
            return None
        zeros, values = torch.zeros(*lead, length, WIDTH), torch.eye(length, WIDTH).expand(*lead, length, WIDTH)
        try:
            output, _ = self.attention(zeros, zeros, values, mask)
        except Exception:  # noqa: BLE001 - a mask of another shape, which multi-head attention may reshape
            return None
        seen = output[..., :length] > VISIBLE_WEIGHT
        return sees_all_without_keys(seen if len(lead) == 1 else seen[:, 0])

    def hides_completely(self) -> Finding:
        """Hidden keys get less than 1e-6 of the weight, however low the visible scores are."""
        name, attention = "mask value", self.attention
        if not attention.masks:
            return not_checked(name, "it takes no mask.")
        if self.mask is None:
            return not_checked(name, "the mask is not applied as it should be.")
        if self.mask.encoding.marks == "score":
            return not_checked(name, "the mask's numbers are added to the scores, and they are the caller's.")
        may = torch.zeros(BATCH, attention.queries, attention.keys, dtype=torch.bool)
        may[..., 0] = True
        for lowest in LOWEST:
            query, key = self._scores_of(-lowest)
            eye = torch.eye(attention.keys, WIDTH).expand(*attention.lead, attention.keys, WIDTH)
            weights = attention(query, key, eye, self.mask.of(may))[0][..., : attention.keys]
            hidden = weights[..., 1:].sum(dim=-1).max().item()
            if hidden > VISIBLE_WEIGHT:
                visible = weights[..., 0].min().item()
                fill = -lowest + math.log(hidden / (attention.keys - 1) / visible) if visible > 0 else math.nan
                sentence = (
                    f"Where visible scores are {-lowest:g}, hidden keys get {percent(hidden)} of the "
                    f"weight: they are filled with about {fill:.3g}; use −10⁹ or torch.finfo(scores.dtype).min."
                )
                return Finding(name, "red", sentence, hidden)
        return Finding(name, "green", f"Hidden keys get no weight even where visible scores are {-LOWEST[-1]:g}.", 0.0)

    def _scores_of(self, score: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries and keys all of whose scores are this one."""
        attention = self.attention
        formula = self._recognized(over_keys=True)
        ones = torch.ones(1, WIDTH)
        unit = formula.scores(ones, ones.expand(attention.keys, WIDTH), HEADS)[0, 0].item()
        query = torch.ones(*attention.lead, attention.queries, WIDTH)
        return query, torch.full((*attention.lead, attention.keys, WIDTH), score / unit)

    def survives_large_scores(self) -> Finding:
        """Scores up to a thousand give finite weights."""
        name = "large scores"
        self._need_repeatable()
        query, key, value = self.attention.tensors()
        scores = RIGHT.scores(query, key)
        query = query * (LARGE / formulas.size(scores))
        output, _ = self.attention(query, key, value)
        if output.isfinite().all():
            return Finding(name, "green", f"Scores of up to ±{LARGE:g} give finite outputs.")
        fraction = 1 - output.isfinite().float().mean().item()
        sentence = (
            f"With scores of up to ±{LARGE:g}, {percent(fraction, 0)} of the output is NaN or infinite: exp overflows "
            "above 88; subtract the largest score of each row first, as torch.softmax does."
        )
        return Finding(name, "red", sentence, fraction)

    def passes_gradients(self) -> Finding:
        """Queries, keys and values get gradients."""
        name = "gradients"
        if self.formula is not None and self.formula.values == "keys":
            raise NotCheckableError("the values are not used.")
        tensors = dict(zip(("queries", "keys", "values"), self.attention.tensors(), strict=True))
        for each in tensors.values():
            each.requires_grad_()
        output, _ = self.attention(*tensors.values())
        if not output.requires_grad:
            return Finding(name, "red", "No gradient reaches the inputs: .detach(), .data or no_grad cuts it off.")
        (output * draw(*output.shape, seed=3)).sum().backward()
        lost = [each for each, tensor in tensors.items() if tensor.grad is None or not tensor.grad.any()]
        if lost:
            sentence = f"No gradient reaches the {' and the '.join(lost)}: .detach(), .data or no_grad cuts it off."
            return Finding(name, "red", sentence, len(lost))
        return Finding(name, "green", "Queries, keys and values get gradients.")

    def leaves_inputs(self) -> Finding:
        """The inputs are as they were before the call."""
        name, tensors = "inputs", self.attention.tensors()
        before = [each.clone() for each in tensors]
        with torch.no_grad():
            self.attention.function(*tensors)
        changed = [
            each
            for each, old, new in zip(("queries", "keys", "values"), before, tensors, strict=True)
            if not torch.equal(old, new)
        ]
        if changed:
            sentence = f"The call changes its {' and '.join(changed)}: an operation in place, such as q /= …, does so."
            return Finding(name, "red", sentence)
        return Finding(name, "green", "The call leaves its inputs unchanged.")

    def _need_repeatable(self) -> None:
        if not self.is_repeatable:
            raise NotCheckableError("two calls with the same input differ.")

    def _recognized(self, *, over_keys: bool = False) -> Formula:
        self._need_repeatable()
        if self.formula is None:
            raise NotCheckableError("the output without a mask is not recognized.")
        if over_keys and self.formula.weights != "keys":
            raise NotCheckableError("the weights are no softmax over the keys; repair it first.")
        return self.formula


def sees_all_without_keys(may: torch.Tensor) -> torch.Tensor:
    """Return a mask (…, Tk) bool, True = may attend, in which queries without any key have all of them."""
    return may | ~may.any(dim=-1, keepdim=True)


def causes(mistakes: tuple[Mistake, ...]) -> str:
    """Return the causes of mistakes as one clause."""
    return "; and ".join(each.cause for each in mistakes)
