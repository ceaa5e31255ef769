"""Which Chromium drives the page, how it is started, and what every test does with it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, FloatRect, Locator, Page, Route, expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NOTHING_SIDEWAYS = "() => document.documentElement.scrollWidth <= window.innerWidth"
TWO_FRAMES = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
STEPS_SHOWN = "() => parseInt(document.querySelector('#run-bar .steps')?.textContent.replace(/[^0-9/]/g, ''))"
_PARAMETERS = {"tiny": "22,637", "digits-reversal": "169,933"}
_STEPS = {"tiny": "400 steps", "digits-reversal": "1,000 steps"}  # other presets have as many parameters
# The page offers its tour to a browser that has not seen it, which would cover what a test presses.
_TOUR_IS_DONE = "try { localStorage.setItem('attention-lab-tour', 'done') } catch { /* about:blank has no storage */ }"
# What the page finds where the visitor has blocked cookies.
COOKIES_BLOCKED = """for (const name of ["localStorage", "sessionStorage", "indexedDB"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("Access is denied", "SecurityError"); } });
}"""


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """Return a context of its own, as of another visitor, who has taken the tour."""
    context = browser.new_context(**options)
    context.add_init_script(_TOUR_IS_DONE)
    return context


def open_tab(page: Page, name: str) -> None:
    """Open a tab by its name."""
    page.get_by_role("tab", name=name).click()


def box_of(element: Locator) -> FloatRect:
    """Return where an element is, in pixels, once it is visible: what is hidden has no box."""
    expect(element).to_be_visible()
    box = element.bounding_box()
    return box


def press_tab(page: Page, name: str) -> None:
    """Press a tab where it is: Playwright's own click scrolls first, out of the padding for the sticky bar."""
    box = box_of(page.get_by_role("tab", name=name))
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@contextmanager
def requests_held(page: Page) -> Iterator[None]:
    """Hold back what the page sends to the server in the block, and send it at its end."""
    held: list[Route] = []
    is_held = True
    page.route("**/queue/join*", lambda route: held.append(route) if is_held else route.continue_())
    try:
        yield
        while not held:
            page.wait_for_timeout(10)
    finally:  # the next test has the same tab
        is_held = False
        for each in held:
            each.continue_()
        page.unroute("**/queue/join*")


def press_quickly(page: Page, *buttons: Locator) -> None:
    """Press buttons, all of them before the server has heard of the first."""
    with requests_held(page):
        for button in buttons:
            button.click()


def open_lesson(page: Page, name: str) -> None:
    """Open a lesson in the list of the tab Learn, which is folded on a phone."""
    menu = page.locator("#lesson .menu")
    if menu.is_visible() and page.locator("#lesson details:not([open])").count():
        menu.click()
    page.locator(f"#lesson .list button[value={name}]").click()
    expect(page.locator(f"#lesson .list button[value={name}]")).to_have_attribute("aria-current", "true")
    expect(page.locator("#lesson article:visible .title")).not_to_be_empty()


def head_button(page: Page, name: str) -> Locator:
    """Return the button, in the grid of head importance, of a head or a layer such as ``cross.1.2`` or ``cross.1``."""
    block, layer, *head = name.split(".")
    words = {"cross": "cross-attention", "decoder": "decoder self-attention", "encoder": "encoder self-attention"}[
        block
    ]
    which = f"head {head[0]}" if head else "all heads"
    return page.locator("#heads").get_by_role("button", name=f"without {words}, layer {layer}, {which}:")


def choose_preset(page: Page, name: str, *, timeout: float | None = None) -> None:
    """Choose a preset in the list of the first task, and wait until the form has it."""
    presets = page.locator("#preset-picker input[type=radio]")
    expect(presets.first).to_be_attached(timeout=timeout)
    radio = page.locator(f"#preset-picker input[value={name}]")
    if not radio.count():
        page.locator("#preset-picker .more").click()
    radio.locator("xpath=..").scroll_into_view_if_needed(timeout=timeout)
    radio.evaluate("(radio) => radio.click()")  # the foot of the settings may cover it
    expect(page.locator("#summary")).to_contain_text(f"{_PARAMETERS[name]} parameters", timeout=timeout)
    expect(page.locator("#section-training summary")).to_contain_text(_STEPS[name], timeout=timeout)


def open_settings(page: Page, section: str) -> None:
    """Open a section of the settings: Task, Model or Training."""
    page.locator(f"#section-{section.lower()} summary").click()


def choose_run(page: Page, title: str) -> None:
    """Make a run the current one, through the menu of runs."""
    page.locator("#run-bar .run").click()
    page.locator("#run-bar .item", has_text=title).first.click()
    expect(page.locator("#run-bar .run .title")).to_have_text(title)


def choose_seeds(page: Page, name: str) -> None:
    """Select the two seeds of a preset on the tab Compare, once it has compared the runs that it suggests."""
    expect(page.locator("#run-comparison .heading")).to_be_visible()
    picker = page.locator("#run-picker")
    while (ticked := picker.get_by_role("checkbox", checked=True)).count():
        ticked.first.uncheck()
    picker.locator("label", has_text="2 seeds").filter(has_text=name).click()
