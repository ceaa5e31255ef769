"""The charts in a real browser: crosshair, zoom, keyboard and theme."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.chromium import TWO_FRAMES, box_of

DRAWN = "(canvas) => canvas.toDataURL()"


@pytest.fixture
def page(empty_page: Page, address: str) -> Page:
    """The page with its lessons open."""
    empty_page.goto(f"{address}?tab=lessons")
    return empty_page


@pytest.fixture
def figures(page: Page) -> Locator:
    """The four charts of a lesson, which have one x axis, training steps."""
    lesson = page.get_by_role("button", name="targets not shifted")
    lesson.click()
    expect(lesson).to_have_attribute("aria-current", "true")  # before that, another lesson may be open
    page.get_by_role("button", name="Show what happens").click()
    figures = page.locator("#lesson figure")
    expect(figures).to_have_count(4)
    figures.first.scroll_into_view_if_needed()
    return figures


@pytest.mark.slow
def test_a_lesson_pressed_again_stays_as_it_is(page: Page, figures: Locator):
    first = figures.first.element_handle()
    page.get_by_role("button", name="targets not shifted").click()
    expect(page.locator("#lesson .title").last).to_be_focused()
    assert first.evaluate("(figure) => figure.isConnected")


def drag(page: Page, plot: Locator, start: int, end: int) -> None:
    """Drag over a chart, from and to pixels right of its left edge."""
    box = box_of(plot)
    page.mouse.move(box["x"] + start, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + end) / 2, box["y"] + 60)
    page.mouse.move(box["x"] + end, box["y"] + 60)
    page.mouse.up()


def test_pointing_at_a_chart_reads_the_values_of_all_charts_of_its_group(page: Page, figures: Locator):
    plot = figures.first.locator(".chart-plot")
    plot.hover(position={"x": 250, "y": 60})
    for number in range(4):
        expect(figures.nth(number).locator(".readout")).to_have_text(re.compile(r"^step \d+: A .+ · B .+"))
    page.mouse.move(0, 0)
    expect(figures.first.locator(".readout")).to_have_text("")


@pytest.mark.slow
def test_dragging_zooms_the_group_and_a_double_click_shows_all_again(page: Page, figures: Locator):
    plots, resets = figures.locator(".chart-plot"), figures.get_by_role("button", name="reset zoom")
    whole = [canvas.evaluate(DRAWN) for canvas in figures.locator("canvas").all()]
    expect(resets).to_have_count(0)
    drag(page, plots.first, 200, 300)
    expect(resets).to_have_count(4)
    zoomed = [canvas.evaluate(DRAWN) for canvas in figures.locator("canvas").all()]
    assert all(before != after for before, after in zip(whole, zoomed, strict=True))
    drag(page, plots.first, 200, 203)  # a press, not a drag
    expect(resets).to_have_count(4)
    plots.first.dblclick()
    expect(resets).to_have_count(0)
    drag(page, plots.first, 200, 300)
    resets.nth(2).click()
    expect(resets).to_have_count(0)
    page.mouse.move(0, 0)
    page.wait_for_function(TWO_FRAMES)
    assert [canvas.evaluate(DRAWN) for canvas in figures.locator("canvas").all()] == whole


def test_keys_move_the_crosshair_zoom_and_are_read_out(page: Page, figures: Locator):
    plot, readout = figures.first.locator(".chart-plot"), figures.first.locator(".readout")
    spoken, reset = figures.first.get_by_role("status"), figures.first.get_by_role("button", name="reset zoom")
    expect(plot).to_have_attribute("aria-label", re.compile("^Training loss"))
    plot.press("ArrowRight")
    expect(readout).to_contain_text("step 5:")
    expect(spoken).to_have_text(re.compile("^step 5, A  right .+, B  broken .+"))
    plot.press("ArrowRight")
    expect(readout).to_contain_text("step 10:")
    plot.press("Shift+ArrowRight")
    expect(readout).to_contain_text("step 110:")
    plot.press("ArrowLeft")
    expect(readout).to_contain_text("step 105:")
    plot.press("+")
    expect(reset).to_be_visible()
    plot.press("Escape")
    expect(reset).to_be_hidden()
    plot.press("+")
    plot.press("-")
    expect(reset).to_be_hidden()
    plot.evaluate("(plot) => plot.blur()")
    expect(readout).to_have_text("")


@pytest.mark.slow
def test_lines_take_the_colors_of_the_theme(page: Page, figures: Locator):
    has_color = """(canvas, [red, green, blue]) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        for (let at = 0; at < data.length; at += 4) {
            if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) return true;
        }
        return false;
    }"""
    light, dark = [0x43, 0x38, 0xCA], [0x9B, 0x9C, 0xFF]  # --series-1
    canvas = figures.first.locator("canvas")
    expect(canvas).to_be_visible()
    assert canvas.evaluate(has_color, light)
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(TWO_FRAMES)
    assert canvas.evaluate(has_color, dark)
    assert not canvas.evaluate(has_color, light)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # at once: paper has no next frame
    assert canvas.evaluate(has_color, light)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("body.dark")).to_be_attached()


@pytest.mark.slow
def test_a_log_scale_can_be_switched_off(page: Page, figures: Locator):
    canvas = figures.first.locator("canvas")
    logarithmic = canvas.evaluate(DRAWN)
    figures.first.get_by_role("checkbox", name="log scale").uncheck()
    page.wait_for_function(TWO_FRAMES)
    expect(canvas).to_have_count(1)
    assert canvas.evaluate(DRAWN) != logarithmic
