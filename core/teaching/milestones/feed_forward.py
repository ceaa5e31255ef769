"""Milestone 3: the position-wise feed-forward network."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones import formulas
from core.teaching.milestones.arguments import Sizes, build, building_parameters, draw, kinds_by_name, output_of
from core.teaching.milestones.heads import check_gradients
from core.teaching.milestones.products import Products

BATCH, LENGTH = 2, 5
SIZES = Sizes()
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ReLU": F.relu,
    "GELU": F.gelu,
    "GELU (tanh)": partial(F.gelu, approximate="tanh"),
    "SiLU": F.silu,
}


class FeedForwardChecks:
    """The checks of a feed-forward network, in order; each returns a finding.

    Attributes:
        conventions: what was found out, in words.
    """

    def __init__(self, what: Callable[..., Any]) -> None:
        self.module: Any = build(what, SIZES, ("d_ff", "d_model"))
        self.is_told_width = "d_ff" in kinds_by_name(building_parameters(what), ("d_ff", "d_model")).values()
        self.conventions: list[str] = []
        self.x = draw(BATCH, LENGTH, SIZES.d_model)

    def all(self) -> list[tuple[str, Callable[[], Finding]]]:
        """Return the checks by name."""
        return [
            ("evaluation mode", self.repeats),
            ("each position alone", self.keeps_positions_apart),
            ("two layers and an activation", self.equals_the_formula),
            ("gradients", lambda: check_gradients(self.module, lambda: self.output(self.x))),
        ]

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output (B, T, D)."""
        return output_of(self.module(x), tuple(x.shape), f"x {tuple(x.shape)}")

    def repeats(self) -> Finding:
        """Two calls in evaluation mode agree."""
        change = formulas.difference(self.output(self.x), self.output(self.x))
        if change == 0:
            return Finding("evaluation mode", "green", "Two calls in evaluation mode agree: dropout is off.", change)
        sentence = f"Two calls in evaluation mode differ by up to {change:.2g}: dropout acts; use nn.Dropout."
        return Finding("evaluation mode", "red", sentence, change)

    def keeps_positions_apart(self) -> Finding:
        """Another vector at one position changes the output there alone."""
        name, other = "each position alone", self.x.clone()
        other[0, 2] = draw(SIZES.d_model, seed=5)
        change = (self.output(other) - self.output(self.x)).detach().abs().amax(dim=-1)
        elsewhere = change.clone()
        elsewhere[0, 2] = 0
        largest = elsewhere.max().item()
        if largest > formulas.TOLERANCE:
            batch, position = (elsewhere > formulas.TOLERANCE).nonzero()[0].tolist()
            sentence = (
                f"Another vector at position 2 changes the output at batch {batch}, position {position} by "
                f"{largest:.2g}: positions are mixed; a norm or a product runs over another axis than the last."
            )
            return Finding(name, "red", sentence, largest)
        return Finding(name, "green", "Another vector at one position changes the output there and nowhere else.")

    def equals_the_formula(self) -> Finding:
        """The network is W₂ activation(W₁ x + b₁) + b₂, of the inner width that was asked for."""
        name = "two layers and an activation"
        with Products(BATCH) as products, torch.no_grad():
            output = self.output(self.x)
        if len(products.calls) != 2 or not products.calls[0].reads(self.x):
            return not_checked(name, f"{len(products.calls)} products with weights were seen, and the formula has two.")
        first, second = products.calls
        inner, read = first.result, second.activations
        if self.is_told_width and inner.shape[-1] != SIZES.d_ff:
            sentence = f"The inner width is {inner.shape[-1]}, though d_ff = {SIZES.d_ff} was asked for."
            return Finding(name, "red", sentence, inner.shape[-1])
        if formulas.is_close(read, inner):
            after = any(
                formulas.is_close(output, function(second.result)) and not formulas.is_close(output, second.result)
                for function in ACTIVATIONS.values()
            )
            where = (
                "the activation comes after the second layer; it belongs between the two"
                if after
                else "there is no activation, so the two layers are one linear map"
            )
            return Finding(name, "red", f"The second layer reads what the first returns: {where}.")
        found = next((each for each, function in ACTIVATIONS.items() if formulas.is_close(read, function(inner))), "")
        if found != "ReLU":
            self.conventions.append(f"activation: {found or 'none that is known'}; the paper's is ReLU")
        residual = self.x + second.result
        if any(formulas.is_close(output, each) for each in (residual, F.layer_norm(residual, residual.shape[-1:]))):
            self.conventions.append("adds its input, which a layer must not do again")
        elif not formulas.is_close(output, second.result):
            off = formulas.difference(output, second.result)
            sentence = f"The output is not that of the second layer, off by up to {off:.2g}: something follows it."
            return Finding(name, "red", sentence, off)
        return Finding(
            name, "green", f"{SIZES.d_model} → {inner.shape[-1]} → {SIZES.d_model}, {found or 'an activation'} between."
        )
