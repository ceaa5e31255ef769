"""Accessibility: axe-core on every tab, a text alternative for every picture, and use by keyboard alone."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.browser.chromium import DESKTOP, PHONE, choose_run, choose_seeds, head_button, open_tab

# All rules of axe-core on the whole page.
CHECK = """async () => (await axe.run(document, {resultTypes: ["violations"], preload: false})).violations
  .filter((violation) => ["serious", "critical"].includes(violation.impact))
  .flatMap((violation) => violation.nodes.map((node) => `${violation.id}: ${node.target} ${node.failureSummary}`))"""
UNFOLD = """() => {
  document.querySelectorAll("button.label-wrap:not(.open)").forEach((button) => button.click());
  const folds = ":is(#setting-fields, #doctor, #own-preview) details";
  document.querySelectorAll(folds).forEach((fold) => (fold.open = true));
}"""


# Visible pictures without a text alternative: a label, and a table in the same component. A picture that is hidden from
# screen readers must be part of a labeled control, or stand beside a text or a labeled picture.
UNLABELED = """() => [...document.querySelectorAll("canvas, svg[role=img], img")]
  .map((picture) => picture.closest("[role=img]") ?? picture)
  .filter((picture) => picture.checkVisibility() && picture.closest(".lab-component"))
  .filter((picture) => picture.getAttribute("aria-hidden")
    ? !picture.closest("label, button, .scale, .box")
      && !picture.parentElement.innerText.trim() && !picture.parentElement.querySelector("[aria-label]")
    : !picture.getAttribute("aria-label") && !picture.alt
      || !picture.closest(".lab-component").querySelector("table, .table-button"))
  .map((picture) => picture.outerHTML.slice(0, 200))"""


# Placeholders in the color of what is typed.
AS_IF_TYPED = """() => [...document.querySelectorAll("[placeholder]:not([placeholder=''])")]
  .filter((field) => field.checkVisibility())
  .filter((field) => getComputedStyle(field, "::placeholder").color === getComputedStyle(field).color)
  .map((field) => field.placeholder)"""


def violations(page: Page) -> list[str]:
    """Serious and critical violations that axe-core finds in the visible page."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(CHECK)


NO_TRANSITIONS = "* { transition: none !important; }"  # axe must not measure colors during a transition
COLUMNS = ["step", "train loss", "validation loss", "token accuracy", "exact match", "learning rate", "gradient norm"]


def show_train(page: Page) -> None:
    """Show the settings, all charts, and the metrics as a table."""
    expect(page.locator("#preset-picker .preset")).to_have_count(3)
    page.evaluate(UNFOLD)
    for summary in ("Learning rate and gradient norm", "Metrics as a table"):
        page.locator("#bench-view").get_by_text(summary).click()
    expect(page.locator("#bench-view th:visible")).to_have_text(COLUMNS)
    expect(page.locator("#bench-view tbody tr").last.locator("td, th")).to_have_count(len(COLUMNS))
    assert "–" not in page.locator("#bench-view tbody tr").last.inner_text()


def show_own_pairs(page: Page) -> None:
    """Show uploaded pairs with skipped rows."""
    page.get_by_role("button", name="Your own pairs").click()
    expect(page.locator("#bench-view")).to_be_hidden()
    page.locator("#own-pasted textarea").fill("".join(f"{number} => x\n" for number in range(20)) + "no arrow\n")
    page.get_by_role("button", name="Check the data").click()
    expect(page.locator(".histogram").first).to_be_visible()
    page.evaluate(UNFOLD)


def show_runs(page: Page) -> None:
    """Show the menu of runs with the confirmation of a deletion."""
    page.get_by_role("button", name="Back to the charts").click()
    expect(page.locator("#bench-view .answer").first).to_be_visible()
    choose_run(page, "pair-seed-0")
    page.locator("#run-bar .run").click()
    menu = page.get_by_role("dialog", name="Runs")
    menu.get_by_role("button", name="Delete", exact=True).click()
    expect(menu.get_by_role("button", name="Cancel")).to_be_focused()


def show_decode(page: Page) -> None:
    """Show a beam search tree."""
    page.get_by_role("radio", name="beam").check()
    expect(page.locator("#beam-tree svg")).to_be_visible()
    page.evaluate(UNFOLD)


def show_attention(page: Page) -> None:
    """Show a head large and as a table, and an ablated head."""
    page.locator("#viewer").get_by_title("layer 2, head 2").click()
    page.locator("#viewer").get_by_role("button", name="Table").click()
    head_button(page, "cross.1.2").click()
    expect(page.locator("#attention-edited .row").nth(1)).to_contain_text("without cross.1.2")
    page.evaluate(UNFOLD)


def show_report(page: Page) -> None:
    """Show all sections, and the doctor's findings."""
    page.evaluate(UNFOLD)
    expect(page.locator("#doctor .verdict")).to_have_text("No bug found: all checks passed.")


def show_comparison(page: Page) -> None:
    """Compare two runs."""
    choose_seeds(page, "pair")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#run-comparison .heading")).to_contain_text("100 held-out inputs")
    page.evaluate(UNFOLD)


def show_lesson(page: Page) -> None:
    """Show a lesson with its answer."""
    lesson = page.locator("#lesson .bugs button").first
    lesson.click()
    expect(lesson).to_have_attribute("aria-current", "true")  # before that, another lesson may be open
    page.get_by_label("my prediction").fill("It copies the future.")
    page.get_by_role("button", name="Show what happens").click()
    expect(page.locator("#lesson .doctors .verdict").last).to_contain_text("Diagnosis: ")
    page.evaluate(UNFOLD)


def show_sweep(page: Page) -> None:
    """Show the form of a sweep with a problem; test_sweep.py shows what a sweep has found."""
    expect(page.locator("#sweep .which option")).to_have_text(["new sweep"])
    expect(page.locator("#sweep .base")).to_contain_text("All runs share the settings of")
    page.locator("#sweep .fields").get_by_label("Seeds").fill("x")
    expect(page.locator("#sweep .plan")).to_contain_text("seeds='x' is not a number")


SHOWN = {
    "Train": show_train,
    "Decode": show_decode,
    "Look inside": show_attention,
    "Report": show_report,
    "Compare": show_comparison,
    "Sweep": show_sweep,
    "Learn": show_lesson,
}


def in_every_look(page: Page) -> Iterator[str]:
    """Show the page wide and light, then narrow and dark."""
    for look, size in (("desktop, light", DESKTOP), ("phone, dark", PHONE)):
        page.set_viewport_size(size)
        page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        yield look
        page.get_by_role("button", name="Switch between light and dark").click()


def check(page: Page, what: str) -> None:
    """No serious violation, and no picture without text, in both looks."""
    page.wait_for_function(f"() => ({UNLABELED})().length === 0", timeout=15_000)
    for look in in_every_look(page):
        expect(page.locator("[aria-busy=true]:visible")).to_have_count(0)  # what is about to be replaced is faded
        assert violations(page) == [], f"{what}, {look}"
        assert page.evaluate(AS_IF_TYPED) == [], f"{what}, {look}"


AT_NIGHT = ("Decode", "Report", "Compare", "Sweep", "Learn")  # a quarter of a minute each


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in AT_NIGHT)) for name in SHOWN])
def test_no_tab_has_a_serious_violation_or_a_picture_without_text(page: Page, seeds: list[str], name: str):
    page.add_style_tag(content=NO_TRANSITIONS)
    open_tab(page, name)
    SHOWN[name](page)
    check(page, name)


@pytest.mark.slow
def test_the_own_pairs_and_the_menu_of_runs_have_no_serious_violation(page: Page, seeds: list[str]):
    page.add_style_tag(content=NO_TRANSITIONS)
    show_own_pairs(page)
    check(page, "own pairs")
    show_runs(page)
    check(page, "menu of runs")


def press_until_focused(page: Page, key: str, css: str, most: int = 60) -> None:
    """Press a key, such as Tab, until an element that the page shows, or one inside it, has the focus."""
    expect(page.locator(css).first).to_be_visible()  # keys pressed before the page has drawn it would pass it by
    for _ in range(most):
        if focused(page, css):
            return
        page.keyboard.press(key)
    pytest.fail(f"{most} × {key} did not reach {css}")


def focused(page: Page, css: str) -> bool:
    """Whether the focused element is, or is in, an element."""
    return page.evaluate("(css) => document.activeElement?.closest(css) != null", css)


@pytest.mark.usefixtures("hurry")  # the training lasts until Stop is pressed
def test_training_and_decoding_work_by_keyboard_alone(page: Page):
    expect(page.get_by_role("button", name="Train", exact=True)).to_be_enabled()
    press_until_focused(page, "Tab", "button[role=tab][data-tab-id=train]")
    press_until_focused(page, "Tab", "#preset-picker input[type=radio]")
    page.keyboard.press("Tab")  # a radio group is one tab stop; arrow keys move within it
    assert not focused(page, "#preset-picker input[type=radio]")
    page.keyboard.press("Shift+Tab")
    press_until_focused(page, "ArrowDown", "input[value=digits-reversal-rnn]")
    expect(page.locator("#summary")).to_contain_text("26,573 parameters")
    assert focused(page, "input[value=digits-reversal-rnn]")  # opening the form leaves the focus
    press_until_focused(page, "ArrowUp", "input[value=tiny]")
    expect(page.locator("#summary")).to_contain_text("22,637 parameters")
    press_until_focused(page, "Tab", "#rail-more")
    press_until_focused(page, "Tab", "#train", most=10)  # at the foot of the settings, as one sees it
    page.keyboard.press("Enter")
    expect(page.locator("#run-bar .steps")).to_contain_text("/ 400")
    expect(page.locator("#run-bar .stop")).to_be_enabled()
    press_until_focused(page, "Shift+Tab", "#run-bar .stop")
    page.keyboard.press("Space")
    expect(page.locator("#run-bar .status")).to_have_text("stopped")
    press_until_focused(page, "Tab", "#tabs [role=tab]")
    press_until_focused(page, "Tab", "button[role=tab][data-tab-id=decode]")
    page.keyboard.press("Enter")
    press_until_focused(page, "Tab", "#input", most=10)  # below the names of the tabs, as one sees it
    page.keyboard.press("Control+a")
    page.keyboard.type("1 2 3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("input=1\\+2\\+3"))
    press_until_focused(page, "Tab", "#answer .ribbon .word")
    press_until_focused(page, "Tab", "#answer .inspect")
    page.keyboard.press("Enter")
    expect(page.locator("#attention-of")).to_contain_text("1 2 3 →")


def test_the_menu_of_runs_works_by_keyboard(page: Page, seeds: list[str]):
    page.locator("#run-bar .run").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#run-bar .search")).to_be_focused()
    page.keyboard.type("pair-seed-1")
    expect(page.locator("#run-bar .item")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(page.locator("#run-bar .item")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#run-bar .run .title")).to_have_text("pair-seed-1")
    page.locator("#run-bar .run").press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Runs")).to_be_hidden()
    expect(page.locator("#run-bar .run")).to_be_focused()
