"""Pictures for export and print: data in, matplotlib figure out."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# One sequential map for attention everywhere, 0 to 1: its lightness falls evenly, so it survives grey print and
# every colour vision. The page draws with the same stops.
ATTENTION_STOPS = ("#f7fbff", "#d0e1f2", "#94c4df", "#4a98c9", "#1764ab", "#08306b")
ATTENTION_COLOURS = LinearSegmentedColormap.from_list("attention", ATTENTION_STOPS)
_CELL_INCHES = 0.45
_WRITTEN_UP_TO = 16  # rows and columns: beyond, numbers in the cells would be too small to read


def attention_figure(
    weights: np.ndarray,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    marked: Sequence[tuple[int, int]] = (),
) -> Figure:
    """Draw one head's attention map.

    Args:
        weights: (Tq, Tk) float, 0-1; the colour scale is fixed to that range.
        rows: names of the queries, top to bottom.
        columns: names of the keys, left to right.
        marked: (row, column) cells to outline, such as the true alignment.
    """
    height, width = weights.shape
    figure = Figure(figsize=(2.2 + _CELL_INCHES * width, 1.6 + _CELL_INCHES * height), dpi=150, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights, vmin=0, vmax=1, cmap=ATTENTION_COLOURS)
    # Tokens are strangers' text: a dollar sign in one must not start a formula.
    axes.set_xticks(range(width), columns, rotation=45, ha="left", parse_math=False)
    axes.set_yticks(range(height), rows, parse_math=False)
    axes.xaxis.tick_top()
    axes.set_title(title, fontsize=10, parse_math=False)
    for row, column in marked:
        axes.add_patch(_outline(row, column))
    if max(height, width) <= _WRITTEN_UP_TO:
        _write_values(axes, weights)
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention weight")
    return figure


def _outline(row: int, column: int) -> Rectangle:
    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#ea580c", linewidth=1.5)


def _write_values(axes: Axes, weights: np.ndarray) -> None:
    for (row, column), weight in np.ndenumerate(weights):
        colour = "white" if weight > 0.5 else "black"
        axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=7, color=colour)
