"""Milestone 3: positional encodings compared with the paper's formula, and embeddings with their table."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core.models.positions import sinusoidal_positions
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones.arguments import PAD, Sizes, build, draw, output_of, tensor_of, tensors_in

BATCH, LENGTH, WIDTH = 2, 10, 24
TOLERANCE = 1e-3
SIZES = Sizes(d_model=WIDTH)


class PositionChecks:
    """The checks of positional encodings, in order; each returns a finding.

    Attributes:
        conventions: what was found out, in words.
    """

    def __init__(self, what: Callable[..., Any]) -> None:
        self.what = what
        self.module: Any = build(what, SIZES, ("d_model", "max_len")) if inspect.isclass(what) else None
        self.conventions: list[str] = []
        self.is_learned = isinstance(self.module, nn.Module) and any(
            each.numel() >= LENGTH * WIDTH and each.requires_grad for each in self.module.parameters()
        )

    def all(self) -> list[tuple[str, Callable[[], Finding]]]:
        """Return the checks by name."""
        return [("table of positions", self.equals_the_formula), ("addition", self.is_added)]

    def equals_the_formula(self) -> Finding:
        """Position pos and dimensions 2i, 2i + 1 have sine and cosine of pos / 10000^(2i / d_model)."""
        name, table = "table of positions", self.table()
        if self.is_learned and not _is_known(table):
            self.conventions.append("positions are learned")
            return not_checked(name, "the positions are learned, so there is no formula to compare them with.")
        expected = sinusoidal_positions(LENGTH, WIDTH)
        if _equals(table, expected):
            return Finding(name, "green", "The table is sin and cos of pos / 10000^(2i / d_model), interleaved.")
        for other, cause in _mistaken_tables():
            if _equals(table, other):
                off = (table - expected).abs().max().item()
                return Finding(name, "red", f"The table is off by up to {off:.2g}: {cause}.", off)
        if base := self._base(table):
            sentence = f"The base of the frequencies is about {base:,.0f}; the paper's is 10,000."
            return Finding(name, "red", sentence, base)
        differs = ((table - expected).abs() > TOLERANCE).nonzero()[0].tolist()
        off = (table - expected).abs().max().item()
        sentence = (
            f"The table differs from the formula by up to {off:.2g}, the first at position {differs[0]}, dimension "
            f"{differs[1]}; no known mistake explains it."
        )
        return Finding(name, "red", sentence, off)

    def is_added(self) -> Finding:
        """The module adds the table to its input, the same for every sequence of the batch."""
        name = "addition"
        if self.module is None:
            return Finding(name, "green", "The function returns the table, which the caller adds.")
        table, x = self.table(), draw(BATCH, LENGTH, WIDTH)
        result = tensor_of(self.module(x), (BATCH, LENGTH, WIDTH))
        if result is None:
            self.conventions.append("returns the table alone; the caller adds it")
            return Finding(name, "green", "The module returns the table, which the caller adds.")
        for factor, text in ((1.0, "x"), (math.sqrt(WIDTH), "x · √d_model")):
            if _equals(result, factor * x + table):
                self.conventions.append(f"returns {text} + table")
                return Finding(name, "green", f"The module returns {text} + table.")
        if _equals(result, table.expand_as(result)):
            self.conventions.append("returns the table alone; the caller adds it")
            return Finding(name, "green", "The module returns the table, which the caller adds.")
        turned = self.module(x.transpose(0, 1))
        if isinstance(turned, torch.Tensor) and _equals(turned.transpose(0, 1), x + table):
            self.conventions.append("takes (T, B, d_model), time first")
            return Finding(name, "green", "The module returns x + table for x (T, B, d_model), time first.")
        return Finding(name, "red", "The result is not x + table: for another x, something other than x changes in it.")

    def table(self) -> torch.Tensor:
        """Return the encodings of the first positions, (T, D) float, however the part returns them."""
        if self.module is None:
            result = build(self.what, Sizes(d_model=WIDTH, max_len=LENGTH), ("d_model", "max_len"))
            found = [each.squeeze() for each in tensors_in(result)]
            table = next((each for each in found if each.shape == (LENGTH, WIDTH)), None)
            if table is None:
                table = output_of(result, (LENGTH, WIDTH), f"the length {LENGTH} and d_model {WIDTH}")
            return table.detach().float()
        zeros = torch.zeros(BATCH, LENGTH, WIDTH)
        result = self.module(zeros)
        found = [each.detach().float() for each in tensors_in(result)]
        for each in found:
            if each.shape == (BATCH, LENGTH, WIDTH):
                if (
                    LENGTH > BATCH
                    and not _equals(each[0], each[1])
                    and _equals(each[0], each[0, :1].expand_as(each[0]))
                ):
                    return self.module(zeros.transpose(0, 1))[:, 0].detach().float()  # time is first
                return each[0]
            if each.squeeze(0).shape == (LENGTH, WIDTH):
                return each.squeeze(0)
        return output_of(result, tuple(zeros.shape), f"x {tuple(zeros.shape)}")

    def _base(self, table: torch.Tensor) -> float:
        """Return the base of the frequencies if the table is the formula with another one, else 0."""
        angle = math.asin(min(1.0, max(-1.0, table[1, 2].item())))
        if angle <= 0:
            return 0.0
        base = angle ** (-WIDTH / 2)
        return base if base < 1e12 and _equals(table, _table(base=base)) else 0.0


def check_embedding(what: Callable[..., Any]) -> Finding:
    """An embedding returns rows of its table, times √d_model."""
    name = "embedding"
    module = build(what, SIZES, ("vocab_size", "d_model", "max_len"))
    ids = torch.tensor([[1, 3, 5], [4, 4, PAD]])
    result = output_of(module(ids), (*ids.shape, WIDTH), f"ids {tuple(ids.shape)}")
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    table = next((each for each in parameters if each.shape == (SIZES.vocab_size, WIDTH)), None)
    if table is None:
        return not_checked(name, f"it has no table of shape {(SIZES.vocab_size, WIDTH)} among its parameters.")
    rows = table[ids]
    factor = (result * rows).sum().item() / rows.square().sum().item()
    if not _equals(result, factor * rows):
        difference = result - math.sqrt(WIDTH) * rows
        if _equals(difference[0, :2], difference[1, :2]):  # the same for both sequences
            return Finding(name, "green", f"Rows of the table times √d_model = {math.sqrt(WIDTH):.3g}, plus positions.")
        return Finding(name, "red", "The result is not rows of the table times a number.")
    if abs(factor - math.sqrt(WIDTH)) < TOLERANCE:
        return Finding(name, "green", f"Rows of the table are multiplied by √d_model = {factor:.3g}.", factor)
    cause = {
        1.0: "they are not scaled",
        WIDTH: "they are multiplied by d_model",
        1 / math.sqrt(WIDTH): "they are divided by √d_model",
    }
    text = next((text for number, text in cause.items() if abs(factor - number) < TOLERANCE), "")
    sentence = f"Rows of the table are multiplied by {factor:.3g}" + (f": {text}" if text else "")
    return Finding(name, "red", f"{sentence}; the paper multiplies by √d_model = {math.sqrt(WIDTH):.3g}.", factor)


def _mistaken_tables() -> list[tuple[torch.Tensor, str]]:
    """Return tables of positions with the common mistakes, and the causes."""
    right = sinusoidal_positions(LENGTH + 1, WIDTH)
    return [
        (right[1:], "positions are counted from 1; the first position is 0"),
        (
            sinusoidal_positions(LENGTH, WIDTH, in_halves=True),
            "all sines come before all cosines; the paper interleaves them, pe[:, 0::2] = sin, pe[:, 1::2] = cos "
            "(a permutation of dimensions: a model learns with it, but weights and formulas of others do not fit)",
        ),
        (
            right[:-1].unflatten(1, (-1, 2)).flip(-1).flatten(1),
            "sine and cosine are swapped: even dimensions are sines, odd ones cosines",
        ),
        (_table(step=2), "the exponent is 4i / d_model; an index that already counts 0, 2, 4, … is doubled again"),
        (_table(step=0.5), "the exponent is i / d_model; it is 2i / d_model, with i the number of the pair"),
        (_table(each=True), "sine and cosine of a pair have different frequencies; both have that of 2i"),
        (_table(sign=-1), "the frequencies grow with the dimension; the exponent lacks its minus sign"),
        (_table(constant=True), "positions are not multiplied by a frequency: every pair of dimensions is the same"),
    ]


def _table(
    *, base: float = 10_000.0, step: float = 1.0, each: bool = False, sign: int = 1, constant: bool = False
) -> torch.Tensor:
    """Return a table of sines and cosines by a changed formula, (T, D) float32."""
    dimension = torch.arange(WIDTH, dtype=torch.float64)
    exponent = (dimension if each else dimension // 2 * 2) * step / WIDTH
    frequency = torch.ones_like(exponent) if constant else base ** (-sign * exponent)
    angle = torch.arange(LENGTH, dtype=torch.float64)[:, None] * frequency
    return torch.where(dimension % 2 == 0, angle.sin(), angle.cos()).float()


def _is_known(table: torch.Tensor) -> bool:
    return _equals(table, sinusoidal_positions(LENGTH, WIDTH)) or any(
        _equals(table, each) for each, _ in _mistaken_tables()
    )


def _equals(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and bool(((first - second).abs() <= TOLERANCE).all())
