"""Figures are drawn, also of tokens that look like formulas."""

import io
import json
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from core.reports.plotting import (
    ATTENTION_COLORS,
    ATTENTION_STOPS,
    TRAIN_COLOR,
    VALIDATION_COLOR,
    attention_figure,
    lengths_figure,
)
from ui.serving.assets import UI


def drawn(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def test_a_map_becomes_a_figure_with_its_labels_values_and_marks():
    weights = np.array([[0.1, 0.9, 0.0], [0.25, 0.25, 0.5]])
    figure = attention_figure(
        weights, rows=["9", "2"], columns=["<BOS>", "4", "8"], title="cross 1.2", marked=[(0, 1), (1, 2)]
    )
    assert isinstance(figure, Figure)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["<BOS>", "4", "8"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["9", "2"]
    assert axes.get_title() == "cross 1.2"
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written[(1, 0)] == "0.90"
    assert written[(0, 1)] == "0.25"
    outlines = [patch.get_xy() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert outlines == [(0.5, -0.5), (1.5, 0.5)]
    assert drawn(figure).startswith(b"\x89PNG")


def test_the_colour_scale_is_always_zero_to_one():
    figure = attention_figure(np.full((2, 2), 0.3), rows="ab", columns="cd", title="t")
    assert figure.axes[0].images[0].get_clim() == (0, 1)
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), np.full((2, 2), 0.3))


@pytest.mark.filterwarnings("ignore:Glyph")  # the font need not have it
@pytest.mark.parametrize("token", ["$", "$x_1$", "$\\frac{$", "\\", "<b>", "日", "", "%s {0}"])
def test_any_token_is_drawn_as_it_is(token):
    figure = attention_figure(np.eye(2), rows=[token, "a"], columns=["b", token], title=token)
    assert drawn(figure).startswith(b"\x89PNG")
    assert figure.axes[0].get_yticklabels()[0].get_text() == token


def test_values_are_written_only_where_there_is_room():
    small, large = np.eye(16), np.eye(17)
    figures = [attention_figure(w, rows=["r"] * len(w), columns=["c"] * len(w), title="t") for w in (small, large)]
    assert [len(figure.axes[0].texts) for figure in figures] == [256, 0]


def test_one_cell_is_a_map_too():
    assert drawn(attention_figure(np.ones((1, 1)), rows=["a"], columns=["b"], title="t"))


def test_the_colours_darken_evenly_so_that_they_survive_grey_print():
    luminance = ATTENTION_COLORS(np.linspace(0, 1, 32))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance) < 0).all()


def test_the_colors_are_those_of_the_page():
    light = re.search(r"light: (\[.*\])", (UI / "web" / "colors.js").read_text())
    assert light
    assert json.loads(light[1]) == ATTENTION_STOPS
    theme = (UI / "web" / "theme.css").read_text()
    assert f"--train: {TRAIN_COLOR}; --validation: {VALIDATION_COLOR};" in theme


def test_lengths_are_drawn_with_those_trained_on_shaded():
    figure = lengths_figure([1, 2, 3, 4], [0, 1, 1, 0.2], [0.5, 1, 1, 0.6], trained=(2, 3), unit="symbols in the input")
    (axes,) = figure.axes
    (shade,) = axes.patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == (1.5, 3.5)
    tokens, exact = axes.lines
    assert list(exact.get_ydata()) == [0, 1, 1, 0.2]
    assert list(tokens.get_xdata()) == [1, 2, 3, 4]
    assert axes.get_xlabel() == "symbols in the input"
    assert drawn(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("side", [1, 16, 17, 128])
def test_no_map_is_so_large_that_drawing_it_takes_gigabytes(side):
    names = ["t"] * side
    figure = attention_figure(np.eye(side), rows=names, columns=names, title="t")
    width, height = figure.get_size_inches() * figure.dpi
    assert width * height <= 2_000**2
    assert figure.dpi <= 150
