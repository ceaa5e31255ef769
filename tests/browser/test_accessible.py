"""The page for those who see it otherwise than most, or use no mouse: by axe-core, and by the keyboard alone."""

from collections.abc import Callable

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.browser.chromium import CHROMIUM, DESKTOP, PHONE, open_tab

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]
TABS = ("Train", "Decode", "Attention", "Report", "Compare", "Lessons")
# Each rule of axe-core, for what may be wrong at all: nothing of the page is left out.
CHECK = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter((found) => ["serious", "critical"].includes(found.impact))
  .flatMap((found) => found.nodes.map((node) => `${found.id}: ${node.target} ${node.failureSummary}`))"""
UNFOLD = "() => document.querySelectorAll('button.label-wrap:not(.open)').forEach((button) => button.click())"


def violations(page: Page) -> list[str]:
    """What axe-core finds serious or critical in what can be seen now."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(CHECK)


@pytest.mark.parametrize("page", [DESKTOP, PHONE], ids=["desktop", "phone"], indirect=True)
def test_no_tab_has_a_serious_violation_in_light_or_dark(page: Page):
    page.add_style_tag(content="* { transition: none !important; }")  # colours half-way are nobody's
    for name in TABS:
        open_tab(page, name)
        if name == "Decode":
            page.get_by_role("radio", name="beam").check()
            expect(page.locator("#beam-tree svg")).to_be_visible()
        if name == "Attention":
            page.locator("#viewer").get_by_role("button", name="Table").click()
        page.evaluate(UNFOLD)
        page.wait_for_timeout(300)
        for theme in ("light", "dark"):
            assert violations(page) == [], f"{name}, {theme}"
            page.get_by_role("button", name="Light / dark").click()


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
    for name in TABS:
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
