"""Pictures for export and print: data in, matplotlib figure out."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# One sequential map for attention everywhere, 0 to 1: its lightness falls evenly, so it survives grey print and
# every colour vision. The page draws in the same colours.
ATTENTION_STOPS = ["#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"]
TRAIN_COLOUR, VALIDATION_COLOUR = "#2563eb", "#ea580c"
ATTENTION_COLOURS = LinearSegmentedColormap.from_list("attention", ATTENTION_STOPS)
_CELL_INCHES = 0.45
_DPI, _MOST_PIXELS = 150, 2_000  # a side: else the largest map would take gigabytes to draw
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
    size = 2.2 + _CELL_INCHES * width, 1.6 + _CELL_INCHES * height
    figure = Figure(figsize=size, dpi=min(_DPI, _MOST_PIXELS / max(size)), layout="constrained")
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


def loss_figure(points: Mapping[str, Sequence], evaluations: Mapping[str, Sequence]) -> Figure:
    """Draw a run's loss over its steps.

    Args:
        points: ``step`` and training ``loss``, nats per token.
        evaluations: ``step`` and ``validation_loss``, nats per token.
    """
    figure, axes = _small_chart("loss, nats per token")
    axes.plot(points["step"], points["loss"], color=TRAIN_COLOUR, linewidth=0.8, alpha=0.7, label="training")
    steps, losses = evaluations["step"], evaluations["validation_loss"]
    axes.plot(steps, losses, color=VALIDATION_COLOUR, marker=".", label="validation")
    axes.set(yscale="log", xlabel="step")
    axes.legend(fontsize=8)
    return figure


def accuracy_figure(evaluations: Mapping[str, Sequence]) -> Figure:
    """Draw a run's validation accuracy over its steps: ``step``, ``token_accuracy`` and ``exact_match``, 0-1."""
    figure, axes = _small_chart("validation accuracy, share")
    steps = evaluations["step"]
    axes.plot(steps, evaluations["token_accuracy"], "--", color=TRAIN_COLOUR, label="token accuracy, teacher-forced")
    axes.plot(steps, evaluations["exact_match"], color=VALIDATION_COLOUR, label="exact match, free-running")
    axes.set(ylim=(-0.02, 1.02), xlabel="step")
    axes.legend(fontsize=8)
    return figure


def lengths_figure(
    lengths: Sequence[int], exact: Sequence[float], tokens: Sequence[float], *, trained: tuple[int, int], unit: str
) -> Figure:
    """Draw shares (0-1) by the length of the input: of exact answers, and of the answers' tokens that are right.

    Args:
        trained: the shortest and the longest length trained on, which are shaded.
        unit: what a length counts.
    """
    figure, axes = _small_chart("by length, free-running, share")
    axes.axvspan(trained[0] - 0.5, trained[1] + 0.5, color="#000000", alpha=0.08, linewidth=0, label="trained on")
    axes.plot(lengths, tokens, "--", marker=".", color=TRAIN_COLOUR, label="tokens right")
    axes.plot(lengths, exact, marker="o", markersize=4, color=VALIDATION_COLOUR, label="exact match")
    axes.set(ylim=(-0.02, 1.02), xlabel=unit)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=8)
    return figure


def _small_chart(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5, 3.4), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    return figure, axes


def as_png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _outline(row: int, column: int) -> Rectangle:
    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=VALIDATION_COLOUR, linewidth=1.5)


def _write_values(axes: Axes, weights: np.ndarray) -> None:
    for (row, column), weight in np.ndenumerate(weights):
        colour = "white" if weight > 0.5 else "black"
        axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=7, color=colour)
