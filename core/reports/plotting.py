"""Figures for export and print: data in, matplotlib figure out."""

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

# The colors of the page in light, ui/web/colors.js and theme.css. The lightness of an attention map decreases with the
# weight, so it is readable in gray print and with any color vision.
ATTENTION_STOPS = ["#ffffff", "#e4e6fb", "#bcc0f4", "#8b8fe6", "#5f5ad0", "#4338ca", "#2a2576"]
TRAIN_COLOR, VALIDATION_COLOR = "#4338ca", "#d9480f"
GRID_COLOR, INK_COLOR = "#e2e6ef", "#525c77"
ATTENTION_COLORS = LinearSegmentedColormap.from_list("attention", ATTENTION_STOPS)
_CELL_INCHES = 0.45
_DPI, _MAX_PIXELS = 150, 2_000  # per side: without a limit, drawing the largest map would take gigabytes
_MAX_SIZE_WITH_VALUES = 16  # rows or columns: in larger maps, values in the cells would be too small to read


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
        weights: (Tq, Tk) float, 0-1; the color scale is fixed to that range.
        rows: labels of the queries, top to bottom.
        columns: labels of the keys, left to right.
        marked: (row, column) cells to outline, such as the gold alignment.
    """
    height, width = weights.shape
    size = 2.2 + _CELL_INCHES * width, 1.6 + _CELL_INCHES * height
    figure = Figure(figsize=size, dpi=min(_DPI, _MAX_PIXELS / max(size)), layout="constrained")
    axes = figure.subplots()
    image = draw_attention(axes, weights, rows=rows, columns=columns)
    axes.set_title(title, fontsize=10, parse_math=False)
    for row, column in marked:
        axes.add_patch(_outline(row, column))
    if max(height, width) <= _MAX_SIZE_WITH_VALUES:
        _draw_values(axes, weights)
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention weight")
    return figure


def draw_attention(axes: Axes, weights: np.ndarray, *, rows: Sequence[str], columns: Sequence[str]) -> AxesImage:
    """Draw an attention map into axes of the caller's figure; arguments as for ``attention_figure``.

    Returns:
        The image, for a color bar.
    """
    height, width = weights.shape
    image = axes.imshow(weights, vmin=0, vmax=1, cmap=ATTENTION_COLORS)
    # Tokens are untrusted text: a dollar sign in one must not start a formula.
    axes.set_xticks(range(width), columns, rotation=45, ha="left", parse_math=False)
    axes.set_yticks(range(height), rows, parse_math=False)
    axes.xaxis.tick_top()
    return image


def loss_figure(points: Mapping[str, Sequence], evaluations: Mapping[str, Sequence]) -> Figure:
    """Draw a run's loss by training step.

    Args:
        points: ``step`` and training ``loss``, nats per token.
        evaluations: ``step`` and ``validation_loss``, nats per token, and ``free_running_loss`` if it was measured.
    """
    figure, axes = _small_chart("loss, nats per token")
    axes.plot(points["step"], points["loss"], color=TRAIN_COLOR, linewidth=0.8, alpha=0.7, label="training")
    steps, losses = evaluations["step"], evaluations["validation_loss"]
    axes.plot(steps, losses, color=VALIDATION_COLOR, marker=".", label="validation")
    if "free_running_loss" in evaluations:
        own = [math.nan if loss is None else loss for loss in evaluations["free_running_loss"]]
        axes.plot(steps, own, "--", color=VALIDATION_COLOR, label="validation, reading its own output")
    axes.set(yscale="log", xlabel="training step")
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False)
    return figure


def accuracy_figure(evaluations: Mapping[str, Sequence]) -> Figure:
    """Draw a run's accuracy by training step: ``step``, ``token_accuracy`` and ``exact_match``, 0-1.

    There is a line for training pairs too, if ``train_exact_match`` was measured.
    """
    figure, axes = _small_chart("validation accuracy")
    steps = evaluations["step"]
    axes.plot(steps, evaluations["token_accuracy"], "--", color=TRAIN_COLOR, label="token accuracy, teacher-forced")
    axes.plot(steps, evaluations["exact_match"], color=VALIDATION_COLOR, label="exact match, free-running")
    if "train_exact_match" in evaluations:
        memorized = [math.nan if share is None else share for share in evaluations["train_exact_match"]]
        axes.plot(steps, memorized, color=TRAIN_COLOR, linewidth=1, label="exact match on training pairs")
    axes.set(ylim=(-0.02, 1.02), xlabel="training step")
    axes.legend(fontsize=8, frameon=False)
    return figure


def quality_figure(evaluations: Mapping[str, Sequence], *, bleu_name: str) -> Figure:
    """Draw a run's validation BLEU and chrF by training step: ``step``, ``bleu`` and ``chrf``, 0-100 or None."""
    figure, axes = _small_chart("translation of the validation set, greedy")
    for column, label, color in (("chrf", "chrF", TRAIN_COLOR), ("bleu", bleu_name, VALIDATION_COLOR)):
        scores = [math.nan if score is None else score for score in evaluations[column]]
        axes.plot(evaluations["step"], scores, color=color, label=label)
    axes.set(ylim=(0, None), xlabel="training step")
    axes.legend(fontsize=8, frameon=False)
    return figure


def lengths_figure(
    lengths: Sequence[int], exact: Sequence[float], tokens: Sequence[float], *, trained: tuple[int, int], unit: str
) -> Figure:
    """Draw exact match and token accuracy (0-1) by input length.

    Args:
        trained: shortest and longest length in the training data; this range is shaded.
        unit: unit of the lengths, the label of the x axis.
    """
    figure, axes = _small_chart("accuracy by length, free-running")
    axes.axvspan(trained[0] - 0.5, trained[1] + 0.5, color="#000000", alpha=0.08, linewidth=0, label="trained on")
    axes.plot(lengths, tokens, "--", marker=".", color=TRAIN_COLOR, label="token accuracy")
    axes.plot(lengths, exact, marker="o", markersize=4, color=VALIDATION_COLOR, label="exact match")
    axes.set(ylim=(-0.02, 1.02), xlabel=unit)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    axes.legend(fontsize=8, frameon=False)
    return figure


def _small_chart(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5, 3.4), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(axis="y", color=GRID_COLOR)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID_COLOR)
    axes.tick_params(colors=INK_COLOR, length=0, labelsize=8)
    return figure, axes


def as_png(figure: Figure) -> bytes:
    """Return a figure as the content of a PNG file."""
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file)  # ``savefig`` would lay the figure out twice
    return file.getvalue()


def _outline(row: int, column: int) -> Rectangle:
    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=VALIDATION_COLOR, linewidth=1.5)


def _draw_values(axes: Axes, weights: np.ndarray) -> None:
    for (row, column), weight in np.ndenumerate(weights):
        color = "white" if weight > 0.5 else "black"
        axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=7, color=color)
