"""The colors of lines and axis labels stand out from the page, in both themes."""

import re
from itertools import product

import pytest

from ui.serving.assets import UI

BACKGROUNDS = {":root": "#ffffff", ".dark": "#141a2a"}
LINES = ["--train", "--validation", *(f"--series-{number}" for number in range(1, 9))]


def color_of(name: str, theme: str) -> str:
    """The color that a theme gives a variable, in the style sheets of ``ui/web``."""
    for path in (UI / "web").glob("*.css"):
        for rules in re.findall(rf"^{re.escape(theme)} {{(.*?)}}", path.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            if found := re.search(rf"{name}: (#[0-9a-f]{{6}});", rules):
                return found[1]
    raise AssertionError(f"{name} has no color in {theme}")


def luminance(color: str) -> float:
    """The relative luminance of WCAG 2."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21."""
    high, low = sorted([luminance(one), luminance(other)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("name", "theme"), list(product(LINES, BACKGROUNDS)))
def test_lines_have_a_contrast_of_three(name: str, theme: str):
    assert contrast(color_of(name, theme), BACKGROUNDS[theme]) >= 3


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_labels_of_axes_have_a_contrast_of_four_and_a_half(theme: str):
    assert contrast(color_of("--faint", theme), BACKGROUNDS[theme]) >= 4.5


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_series_differ_in_color(theme: str):
    assert len({color_of(f"--series-{number}", theme) for number in range(1, 9)}) == 8
