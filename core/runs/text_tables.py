"""Tables of figures as text: aligned for a terminal, or as LaTeX."""

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[str]]
_LATEX = {"\\": r"\textbackslash{}", "–": "--", "\N{MINUS SIGN}": "$-$", "×": r"$\times$"} | {
    each: f"\\{each}" for each in "&%$#_{}"
}


def aligned(rows: Rows, *, left: int = 0) -> str:
    """Format rows, the first of them the header; the first ``left`` columns are aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:left], widths[:left], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def latex(rows: Rows, *, left: int = 0) -> str:
    """Format rows as a ``tabular`` for the package ``booktabs``, aligned as in ``aligned``."""
    header, *others = rows
    columns = "l" * left + "r" * (len(header) - left)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_row(header), r"\midrule"]
    return "\n".join([*lines, *map(_latex_row, others), r"\bottomrule", r"\end{tabular}"])


def digits_for(mean: float | None, sd: float | None) -> int:
    """Return the digits after the point that figures need: two of the deviation, or four in all."""
    scale = sd or abs(mean or 0.0) * 0.01
    return min(8, max(0, 1 - math.floor(math.log10(scale)))) if scale > 0 else 4


def number(value: float | None, digits: int) -> str:
    """Format a number with so many digits after the point; "–" for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(ends: tuple[float, float] | None, digits: int) -> str:
    """Format an interval as ``1.2 to 3.4``; "–" for None."""
    return "–" if ends is None else f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join("".join(_LATEX.get(each, each) for each in cell) for cell in cells) + r" \\"
