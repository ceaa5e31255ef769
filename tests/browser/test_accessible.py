"""The page for those who see it otherwise than most, or use no mouse: by axe-core, and by the keyboard alone."""

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.browser.chromium import CHROMIUM, DESKTOP, PHONE, open_tab

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]
# Each rule of axe-core, for what may be wrong at all: nothing of the page is left out. A theme changes colours only.
CHECK = """async (rules) => (await axe.run(document, {resultTypes: ["violations"], ...rules})).violations
  .filter((found) => ["serious", "critical"].includes(found.impact))
  .flatMap((found) => found.nodes.map((node) => `${found.id}: ${node.target} ${node.failureSummary}`))"""
UNFOLD = """() => {
  document.querySelectorAll("button.label-wrap:not(.open)").forEach((button) => button.click());
  document.querySelectorAll("#doctor details, #own-pairs details").forEach((details) => (details.open = true));
}"""


COLOURS_ONLY = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


def violations(page: Page, look: str) -> list[str]:
    """What axe-core finds serious or critical in what can be seen now."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(CHECK, COLOURS_ONLY if "dark" in look else {})


def show_train(page: Page) -> None:
    """The settings, pairs of one's own with rows left out, and what the doctor found."""
    expect(page.get_by_role("radio", name="tiny")).to_be_enabled()
    page.evaluate(UNFOLD)
    page.locator("#own-pasted textarea").fill("".join(f"{number} => x\n" for number in range(20)) + "no arrow\n")
    page.get_by_role("button", name="Look at the data").click()
    expect(page.locator(".histogram").first).to_be_visible()
    expect(page.locator("#doctor .verdict")).to_have_text("Nothing found: all lights are green.")


def show_decode(page: Page) -> None:
    """A beam's tree."""
    page.get_by_role("radio", name="beam").check()
    expect(page.locator("#beam-tree svg")).to_be_visible()
    page.evaluate(UNFOLD)


def show_attention(page: Page) -> None:
    """A head large, and as a table; the answer without another one."""
    page.locator("#viewer").get_by_title("layer 2, head 2").click()
    page.locator("#viewer").get_by_role("button", name="Table").click()
    page.locator("#heads").get_by_role("button", name="without cross.1.2:").click()
    expect(page.locator("#attention-edited .row").nth(1)).to_contain_text("without cross.1.2")
    page.evaluate(UNFOLD)


def show_report(page: Page) -> None:
    """What can be had of it."""
    page.evaluate(UNFOLD)


def show_comparison(page: Page) -> None:
    """Two runs, compared."""
    page.locator("#run-picker label", has_text="2 seeds").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#run-comparison .heading")).to_contain_text("2,000 held-out inputs")
    page.evaluate(UNFOLD)


def show_lesson(page: Page) -> None:
    """A pair of runs, curves and attention, after what was expected of it was written down."""
    page.locator("#lesson .list button").first.click()
    page.get_by_label("what I predict").fill("It copies the future.")
    page.get_by_role("button", name="Show what happens").click()
    expect(page.locator("#lesson .doctors .verdict").last).to_contain_text("Diagnosis: ")
    page.evaluate(UNFOLD)


SHOWN = {
    "Train": show_train,
    "Decode": show_decode,
    "Attention": show_attention,
    "Report": show_report,
    "Compare": show_comparison,
    "Lessons": show_lesson,
}


def in_every_look(page: Page) -> Iterator[str]:
    """Show the page in light and dark, wide and narrow."""
    for width, size in (("desktop", DESKTOP), ("phone", PHONE)):
        page.set_viewport_size(size)
        for theme in ("light", "dark"):
            page.wait_for_timeout(300)
            yield f"{width}, {theme}"
            page.get_by_role("button", name="Light / dark").click()


def test_nothing_that_can_be_shown_has_a_serious_violation(page: Page, seeds: list[str]):
    page.add_style_tag(content="* { transition: none !important; }")  # colours half-way are nobody's
    for name, show in SHOWN.items():
        open_tab(page, name)
        show(page)
        for look in in_every_look(page):
            assert violations(page, look) == [], f"{name}, {look}"
    page.locator("#run-bar label", has_text=seeds[0]).click()
    page.get_by_role("button", name="Delete run").click()
    for look in in_every_look(page):
        assert violations(page, look) == [], f"the question before a run is deleted, {look}"


# A picture that can be seen says what it shows, and its component has its numbers as a table; one that is hidden from
# those who hear the page is a part of a control with a name, or of the picture beside it.
UNSPOKEN = """() => [...document.querySelectorAll("canvas, svg[role=img], img")]
  .filter((picture) => picture.checkVisibility() && picture.closest(".lab-component"))
  .filter((picture) => picture.getAttribute("aria-hidden")
    ? !picture.closest("label, button, .scale, .box")
    : !picture.getAttribute("aria-label") && !picture.alt
      || !picture.closest(".lab-component").querySelector("table, .table-button"))
  .map((picture) => picture.outerHTML.slice(0, 200))"""


def test_every_picture_has_its_twin_in_text(page: Page):
    for name in SHOWN:
        open_tab(page, name)
        if name == "Decode":
            page.get_by_role("radio", name="beam").check()
            expect(page.locator("#beam-tree svg")).to_be_visible()
        page.wait_for_timeout(300)
        assert page.evaluate(UNSPOKEN) == [], name
    open_tab(page, "Train")
    page.locator("#charts").get_by_text("numbers as a table").click()
    columns = [
        "step",
        "train loss",
        "validation loss",
        "token accuracy",
        "exact match",
        "learning rate",
        "gradient norm",
    ]
    expect(page.locator("#charts th")).to_have_text(columns)
    expect(page.locator("#charts tbody tr").last.locator("td")).to_have_count(len(columns))
    assert "–" not in page.locator("#charts tbody tr").last.inner_text()


def pressed(page: Page, key: str, until: Callable[[], bool], most: int = 60) -> None:
    """Press a key until something is so, such as Tab until something has the focus."""
    for _ in range(most):
        if until():
            return
        page.keyboard.press(key)
    pytest.fail(f"{most} × {key} did not get there")


def focused(page: Page, css: str) -> Callable[[], bool]:
    """Tell whether what has the focus is, or is in, an element."""
    return lambda: page.evaluate("(css) => document.activeElement?.closest(css) != null", css)


def test_a_trained_run_is_asked_by_the_keyboard_alone(page: Page):
    pressed(page, "Tab", focused(page, "button[role=tab][data-tab-id=train]"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("radio", name="tiny")).to_be_enabled()
    pressed(page, "Tab", focused(page, "#preset"))
    page.keyboard.press("Tab")  # a group of radio buttons is one stop, and the arrow keys lead through it
    assert not focused(page, "#preset")()
    page.keyboard.press("Shift+Tab")
    pressed(page, "ArrowRight", focused(page, "input[value=tiny]"))
    expect(page.get_by_role("radio", name="tiny")).to_be_checked()
    expect(page.locator("#summary")).to_contain_text("22,637 parameters")
    pressed(page, "Tab", focused(page, "#train"))
    page.keyboard.press("Enter")
    expect(page.locator("#charts .numbers")).to_contain_text("/ 2000 steps")
    expect(page.locator("#stop")).to_be_enabled()
    pressed(page, "Tab", focused(page, "#stop"))
    page.keyboard.press("Space")
    expect(page.locator("#charts .state")).to_contain_text("stopped")
    page.keyboard.press("Home")
    pressed(page, "Shift+Tab", focused(page, "button[role=tab][data-tab-id=decode]"))
    page.keyboard.press("Enter")
    pressed(page, "Tab", focused(page, "#input"))
    page.keyboard.press("Control+a")
    page.keyboard.type("1 2 3")
    page.keyboard.press("Enter")
    expect(page.locator("#decode-message")).to_contain_text("answered by")
    pressed(page, "Tab", focused(page, "#answer button"))
    page.keyboard.press("Enter")
    expect(page.locator("#attention-of")).to_contain_text("1 2 3 →")
