"""The output of a decode, revealed step by step, in a real browser."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.chromium import box_of, open_tab
from tests.serving import SHIPPED

DRAWN = "(canvas) => canvas.toDataURL()"
WHOLE_PLAYBACK = 4000  # milliseconds: five steps, and some
START_AND_PRESS = """(viewer) => {
    const press = (selector, at = 0) => viewer.querySelectorAll(selector)[at].click();
    press(".playback-button");
    press("[title='layer 1, head 3'] input");
    press(".blocks input", 1);
    press(".blocks input", 2);
    press(".blocks input", 0);
    press(".gold");
    press(".table-button");
    const count = (selector) => viewer.querySelectorAll(selector).length;
    return [count(".tile.not-revealed"), count(".table-box tbody tr")];
}"""
# Whether the large map's last row is on the screen.
ENDS_IN_VIEW = "() => document.querySelector('#viewer canvas.map').getBoundingClientRect().bottom < innerHeight"
START_AND_LEAVE = """(viewer) => {
    viewer.querySelector(".playback-button").click();
    document.querySelector("#tabs [role=tab][data-tab-id=decode]").click();
}"""

PAUSE_AT_TWO = """(viewer) => new Promise((done) => {
    const button = viewer.querySelector(".playback-button");
    const observer = new MutationObserver(() => {
        if (viewer.querySelectorAll(".tile.not-revealed").length !== 3) return;
        observer.disconnect();
        button.click();
        done();
    });
    observer.observe(viewer, { subtree: true, childList: true, attributes: true });
    button.click();
})"""


@pytest.fixture
def viewer(empty_page: Page, address: str) -> Locator:
    """The attention viewer with an output of five tokens."""
    empty_page.goto(f"{address}?run={SHIPPED}&input=4+8+2+9&tab=attention")
    viewer = empty_page.locator("#viewer")
    expect(viewer.locator(".tile:visible")).to_have_text([*"9284", "<EOS>"])
    return viewer


def pause_at_two(viewer: Locator) -> None:
    """Start a playback and pause it when two of the five tokens are revealed, at once, before the next one is."""
    expect(viewer.get_by_role("button", name="Step by step")).to_be_visible()
    viewer.evaluate(PAUSE_AT_TWO)


def expect_paused_at_two(viewer: Locator) -> None:
    expect(viewer.locator(".tile.not-revealed")).to_have_count(3)
    expect(viewer.locator(".tile[aria-pressed=true]")).to_have_text("2")
    expect(viewer.get_by_role("button", name="Step by step")).to_be_visible()
    expect(viewer.locator(".verdict")).to_have_text("")


def expect_ended(viewer: Locator, marked: list[str]) -> None:
    expect(viewer.locator(".tile.not-revealed")).to_have_count(0)
    expect(viewer.locator(".tile[aria-pressed=true]")).to_have_text(marked)
    expect(viewer.get_by_role("button", name="Stop")).to_be_hidden()


def test_a_playback_reveals_the_rows_and_ends_by_itself(viewer: Locator):
    whole = viewer.locator("canvas.map").evaluate(DRAWN)
    pause_at_two(viewer)
    assert viewer.locator("canvas.map").evaluate(DRAWN) != whole
    viewer.get_by_role("button", name="Step by step").click()
    expect_ended(viewer, marked=[])
    expect(viewer.locator(".verdict")).to_have_text("✓ correct")


def test_the_large_map_is_near_the_top_and_a_playback_stays_in_view(empty_page: Page, address: str):
    page, viewer = empty_page, empty_page.locator("#viewer")
    page.set_viewport_size({"width": 1366, "height": 768})
    page.goto(f"{address}?run={SHIPPED}&input=0+8+9+4+9+5+9+9+7+7&tab=attention&view=replay")
    expect(viewer.locator(".player")).to_be_visible()
    expect(viewer.locator("canvas.map")).to_be_visible()
    map_now = box_of(viewer.locator("canvas.map"))
    assert map_now["y"] < 330
    viewer.get_by_role("radio", name="current decode").check()
    expect(viewer.locator(".tile:visible")).to_have_count(11)
    before = box_of(viewer.locator("canvas.map"))
    viewer.get_by_role("button", name="Step by step").click()
    expect(viewer.get_by_role("button", name="Stop")).to_be_in_viewport(ratio=1)
    assert box_of(viewer.locator("canvas.map")) == before  # Stop has its place already
    expect(viewer.locator(".tile.not-revealed")).to_have_count(0, timeout=30_000)
    expect(viewer.locator(".tile:visible").last).to_be_in_viewport(ratio=1)
    assert page.evaluate(ENDS_IN_VIEW)


def test_a_paused_playback_survives_everything_pressed_meanwhile(empty_page: Page, viewer: Locator):
    pause_at_two(viewer)
    viewer.get_by_title("layer 1, head 3").click()
    expect(viewer.locator(".title")).to_have_text("Cross-attention, layer 1 of 2, head 3")
    expect_paused_at_two(viewer)
    viewer.get_by_role("radio", name="decoder self-attention").check()
    viewer.get_by_title("layer 2, head 1").click()
    expect(viewer.locator(".title")).to_have_text("Decoder self-attention, layer 2 of 2, head 1")
    expect_paused_at_two(viewer)
    viewer.get_by_role("radio", name="encoder self-attention").check()
    expect(viewer.locator(".playback")).to_be_hidden()  # its rows are not steps
    viewer.get_by_role("radio", name="cross-attention").check()
    expect_paused_at_two(viewer)
    viewer.get_by_role("checkbox", name="show the gold alignment").uncheck()
    viewer.get_by_role("button", name="Table").click()
    expect(viewer.locator("table").get_by_role("row")).to_have_count(3)  # a header and the revealed steps
    expect_paused_at_two(viewer)
    open_tab(empty_page, "Decode")
    open_tab(empty_page, "Look inside")
    expect_paused_at_two(viewer)
    viewer.get_by_role("button", name="Step by step").click()
    expect(viewer.locator(".verdict")).to_have_text("✓ correct")
    expect(viewer.locator("table").get_by_role("row")).to_have_count(6)


@pytest.mark.slow
def test_a_running_playback_goes_on_whatever_is_pressed(viewer: Locator):
    assert viewer.evaluate(START_AND_PRESS) == [4, 1]  # in one go, so that no second step is due
    expect(viewer.get_by_role("button", name="Pause")).to_be_visible()
    expect(viewer.locator(".tile.not-revealed")).to_have_count(3)
    expect(viewer.locator(".verdict")).to_have_text("✓ correct")
    expect_ended(viewer, marked=[])


@pytest.mark.slow
def test_a_running_playback_waits_while_another_tab_is_open(empty_page: Page, viewer: Locator):
    viewer.evaluate(START_AND_LEAVE)
    expect(viewer).to_be_hidden()
    empty_page.wait_for_timeout(WHOLE_PLAYBACK)
    assert viewer.locator(".tile.not-revealed").count() >= 3
    open_tab(empty_page, "Look inside")
    expect(viewer.get_by_role("button", name="Pause")).to_be_visible()
    expect(viewer.locator(".verdict")).to_have_text("✓ correct")


@pytest.mark.slow
def test_a_row_stop_another_mode_and_a_new_decode_end_a_playback(empty_page: Page, viewer: Locator):
    pause_at_two(viewer)
    viewer.locator(".tile").nth(3).click()
    expect_ended(viewer, marked=["4"])

    pause_at_two(viewer)
    viewer.get_by_role("button", name="Stop").click()
    expect_ended(viewer, marked=[])
    expect(viewer.get_by_role("button", name="Step by step")).to_be_focused()

    pause_at_two(viewer)
    viewer.get_by_role("radio", name="training replay").check()
    expect(viewer.locator(".when")).to_contain_text("step")
    viewer.get_by_role("radio", name="current decode").check()
    expect_ended(viewer, marked=[])

    pause_at_two(viewer)
    empty_page.get_by_role("textbox", name="Input").fill("3 1 5")
    empty_page.get_by_role("button", name="Decode", exact=True).click()
    expect(viewer.locator("#attention-of")).to_contain_text("3 1 5 → 5 1 3")
    expect_ended(viewer, marked=[])
