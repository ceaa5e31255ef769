"""Head ablation in a real browser: both outputs, head importance, and a link to the view."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from core.config import Preset
from core.interpret.ablation import AblatedHead, grid_cells
from core.runs import RunFolder
from core.server import Runs
from tests.browser.chromium import NOTHING_SIDEWAYS, PHONE, box_of, choose_run, head_button, open_tab, press_quickly
from ui.components import head_importance

LAPTOP = {"width": 1366, "height": 768}
TABLET = {"width": 820, "height": 1180}
IN_LINES = "(tiles) => tiles.every((tile) => tile.offsetTop === tile.parentElement.firstChild.offsetTop)"


def test_the_answer_without_a_head_is_in_view_beside_the_pressed_head(page: Page):
    page.set_viewport_size(LAPTOP)
    open_tab(page, "Look inside")
    head, without = head_button(page, "cross.1.2"), page.locator("#attention-edited .row").nth(1)
    expect(page.locator("#viewer canvas.map")).to_be_visible()  # nothing above the heads grows any more
    expect(page.locator("#attention-of")).to_contain_text("4 8 2 9 →")
    head.click()
    expect(without).to_contain_text("without cross.1.2 (zero)")
    expect(without).to_contain_text("✗ wrong")
    marked = page.locator("#viewer .head-grid").get_by_title("layer 1, head 2").locator(".head-label")
    expect(marked).to_have_text("✕ head 2")
    expect(page.locator("#viewer .head-grid .head-label.ablated")).to_have_count(1)
    expect(head).to_be_in_viewport(ratio=0.95)
    expect(without).to_be_in_viewport(ratio=0.95)
    grid, comparison = (box_of(page.locator(css)) for css in ("#heads", "#attention-edited"))
    assert comparison["x"] >= grid["x"] + grid["width"]
    page.set_viewport_size(TABLET)
    assert page.locator("#attention-edited .tile").evaluate_all(IN_LINES)


@pytest.mark.parametrize("heads", [4, 6, 8])
def test_every_head_of_a_layer_is_in_view_at_any_width(page: Page, runs: Runs, tiny: Preset, heads: int):
    preset = tiny.with_changes({"model.d_model": 8 * heads, "model.num_heads": heads})
    folder = RunFolder.create(runs.root, preset, name=f"with-{heads}-heads", status="stopped")
    choose_run(page, folder.name)
    open_tab(page, "Look inside")
    expect(page.locator("#heads .cell")).to_have_count(3 * (heads + 1))
    box = page.locator("#heads .importance-box")
    for width in range(360, 1400, 40):
        page.set_viewport_size({"width": width, "height": 768})
        assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth"), width
    shutil.rmtree(folder.path)


def test_each_of_several_heads_that_are_pressed_quickly_is_ablated(page: Page):
    open_tab(page, "Look inside")
    expect(page.locator("#attention-of")).to_contain_text("4 8 2 9 →")
    names = "encoder.1.1", "cross.1.2", "cross.2.1"
    press_quickly(page, *(head_button(page, name) for name in names[:2]))
    head_button(page, names[2]).focus()
    for _ in range(4):  # a key that is held presses once
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    for name in names:
        expect(head_button(page, name)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#attention-edited .row").nth(1)).to_contain_text(f"without {', '.join(names)} (zero)")


@pytest.mark.slow
@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_a_head_is_ablated_measured_shared_and_restored(page: Page, reload: Callable, monkeypatch: pytest.MonkeyPatch):
    open_tab(page, "Look inside")
    expect(page.locator("#heads .cell")).to_have_count(30)
    expect(page.locator("#viewer canvas.map")).to_be_visible()
    expect(head_button(page, "cross.1.2")).to_have_attribute("aria-pressed", "false")
    head_button(page, "cross.1.2").press("Enter")
    expect(head_button(page, "cross.1.2")).to_have_attribute("aria-pressed", "true", timeout=10_000)
    expect(head_button(page, "cross.1.2")).to_be_focused()
    rows = page.locator("#attention-edited .row")
    expect(rows.nth(0)).to_contain_text("all heads as trained", timeout=10_000)
    expect(rows.nth(0)).to_contain_text("✓ correct")
    expect(rows.nth(1)).to_contain_text("without cross.1.2 (zero)")
    expect(rows.nth(1)).to_contain_text("✗ wrong")
    expect(rows.nth(1).locator(".differs").first).to_contain_text("differs")
    assert page.evaluate(NOTHING_SIDEWAYS)

    page.get_by_role("button", name="Measure all heads").click()
    expect(page.locator("#heads .baseline")).to_contain_text("With all heads: exact match 100 % on 500", timeout=30_000)
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled(timeout=60_000)
    name = re.compile(
        r"without cross-attention, layer 1, head 2: exact match [34]\d\.\d %, [56]\d\.\d points less than with"
    )
    expect(head_button(page, "cross.1.2")).to_have_attribute("aria-label", name)

    expect(page).to_have_url(re.compile("ablate=cross.1.2"))
    reload(page.url)  # a copied link is opened in a new page
    expect(rows.nth(1)).to_contain_text("without cross.1.2 (zero)", timeout=20_000)
    expect(head_button(page, "cross.1.2")).to_have_attribute("aria-label", name)
    expect(head_button(page, "cross.1.2")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("tab", name="Decode").click()
    expect(page.locator("#decode-edited .row").nth(1)).to_contain_text("without cross.1.2 (zero)")
    page.locator("#decode-edited").get_by_role("button", name="Restore all heads").click()
    expect(page.locator("#answer .verdict")).to_have_text("✓ correct", timeout=10_000)
    expect(page).to_have_url(re.compile("^((?!ablate=).)*$"))

    open_tab(page, "Look inside")
    check_that_measuring_is_cancelled_between_heads(page, monkeypatch)


def test_the_most_important_heads_are_those_without_which_exact_match_is_lowest(
    page: Page, monkeypatch: pytest.MonkeyPatch
):
    """Each case: exact match with all heads and without some; without any other it is as with all heads."""
    said = page.locator("#heads .importance")
    open_tab(page, "Look inside")
    for intact, without, text in (
        (0.0, {}, "No single head is needed: without any one of them, exact match is not lower."),
        (0.5, {"cross.1.1": 0.6}, "No single head is needed: without any one of them, exact match is not lower."),
        (
            0.5,
            {"cross.1.2": 0.4, "cross.1": 0.1},
            "The most important head is cross-attention, layer 1, head 2: without it, exact match is 40 %, "
            "10 points less than with all heads.",
        ),
        (
            0.5,
            {"cross.1.2": 0.2, "cross.2.1": 0.2001, "encoder.1.1": 0.4},
            "2 heads are the most important: without any one of them, exact match is 20 %, 30 points less than with "
            "all heads.",
        ),
    ):
        monkeypatch.setattr(head_importance, "cached_grid", partial(made_up_grid, intact, without))
        page.get_by_role("button", name="Measure all heads").click()
        expect(said).to_have_text(text)
    head_button(page, "cross.1.2").click()
    expect(said).to_have_text(
        "Without cross-attention, layer 1, head 2: exact match 20 %, 30 points less than with all heads. "
        "It is one of the 2 most important heads."
    )
    head_button(page, "cross.1.2").click()
    head_button(page, "cross.1").click()
    expect(said).to_have_text(
        "Without cross-attention, layer 1, all heads: exact match 50 %, the same as with all heads. " + text
    )


def made_up_grid(intact: float, without: dict[str, float], path, model, *given, **settings) -> Iterator[AblatedHead]:
    for block, layer, head in grid_cells(model.heads):
        share = without.get(f"{block}.{layer}.{head}" if head else f"{block}.{layer}", intact)
        yield AblatedHead(block=block, layer=layer, head=head, exact_match=share, intact=intact)


def check_that_measuring_is_cancelled_between_heads(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel the measurement of all heads; the head in progress is the last."""
    measured = []

    def slowly(path, model, task, pairs, **settings) -> Iterator[AblatedHead]:
        for block, layer, head in grid_cells(model.heads):
            time.sleep(0.3)
            measured.append((block, layer, head))
            yield AblatedHead(block=block, layer=layer, head=head, exact_match=0.5, intact=1.0)

    monkeypatch.setattr(head_importance, "cached_grid", slowly)
    page.get_by_role("radio", name="its mean").check()
    expect(page).to_have_url(re.compile("ablate_with=mean"), timeout=10_000)
    page.get_by_role("button", name="Measure all heads").click()
    expect(page.locator("#heads .count")).to_contain_text(re.compile("[1-9] of 30 measured"), timeout=10_000)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#heads-message")).to_contain_text("Cancelled")
    expect(page.get_by_role("button", name="Measure all heads")).to_be_enabled()
    expect(page.locator("#heads .progress")).to_be_hidden()
    time.sleep(0.4)  # a cell that had started ends
    ended = len(measured)
    time.sleep(0.7)
    assert len(measured) == ended < 30
