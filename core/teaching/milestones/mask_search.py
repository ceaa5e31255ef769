"""Find out which masks a function takes, or what it does wrong with all of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from core.teaching.doctor.finding import Finding
from core.teaching.milestones import formulas
from core.teaching.milestones.formulas import Formula
from core.teaching.milestones.mask_encodings import MaskConvention, MaskShape, conventions

NAME = "mask"
MISTAKEN = ("after", "as zero", "transposed", "ignored")  # what ignores a mask does so in every convention: last


@dataclass(frozen=True)
class MaskSearch:
    """How a function is called with a mask, and what it should then return.

    Attributes:
        call: returns the output for a mask.
        expected: returns what a formula gives for (B, Tq, Tk) bool, True = may attend.
        base: the formula that the function computes without a mask.
        axes: names of the axes before the last of an output.
    """

    call: Callable[[torch.Tensor], torch.Tensor]
    expected: Callable[[Formula, torch.Tensor], torch.Tensor]
    base: Formula
    axes: tuple[str, ...]

    def run(self, may: torch.Tensor, shapes: tuple[MaskShape, ...]) -> MaskConvention | Finding:
        """Return the first convention that works, or a finding about what is wrong.

        Args:
            may: (B, Tq, Tk) bool, True = may attend.
            shapes: that masks may have.

        Raises:
            Exception: what the function raised first, if it takes no mask of any convention.
        """
        outputs: list[tuple[MaskConvention, torch.Tensor]] = []
        first: Exception | None = None
        for convention in conventions(shapes):
            try:
                output = self.call(convention.of(may)).detach()
            except Exception as error:  # noqa: BLE001 - most conventions do not fit the reader's code
                first = first or error
                continue
            if formulas.is_close(output, self._of(self.base, convention, may)):
                return convention
            outputs.append((convention, output))
        if not outputs and first is not None:
            raise first
        return self._mistake(may, outputs)

    def _of(self, formula: Formula, convention: MaskConvention, may: torch.Tensor) -> torch.Tensor:
        return self.expected(formula, convention.shape.seen(may)).detach()

    def _mistake(self, may: torch.Tensor, outputs: list[tuple[MaskConvention, torch.Tensor]]) -> Finding:
        for masking in MISTAKEN:
            if masking == "transposed" and may.shape[-2] != may.shape[-1]:
                continue
            (cause,) = (each.cause for each in formulas.MISTAKES if each.change == {"masking": masking})
            wrong = replace(self.base, masking=masking)  # type: ignore[arg-type] # one of Masking
            for convention, output in outputs:
                if formulas.is_close(output, self._of(wrong, convention, may)):
                    off = formulas.difference(output, self._of(self.base, convention, may))
                    which = "With a mask" if masking == "ignored" else f"With a mask ({convention})"
                    return Finding(NAME, "red", f"{which} the output is off by up to {off:.2g}: {cause}.", off)
        finite = [each for each in outputs if each[1].isfinite().all()]
        if not finite:
            sentence = "With a mask the output is NaN: 0 · ∞ or ∞ − ∞ arises; use masked_fill on the scores."
            return Finding(NAME, "red", sentence)
        convention, output = min(
            finite, key=lambda each: formulas.difference(each[1], self._of(self.base, each[0], may))
        )
        where = formulas.compared(output, self._of(self.base, convention, may), self.axes)
        sentence = f"No convention of masks gives the right output; {convention} comes closest, off by {where}."
        return Finding(NAME, "red", sentence)
