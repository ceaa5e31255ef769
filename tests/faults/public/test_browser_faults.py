"""Training in a real browser survives a reload, other tabs, a closed tab and a stopped server."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from core.runs import RunFolder
from tests.browser.chromium import CHROMIUM, FLAGS, STEPS_SHOWN, choose_preset, new_context, open_settings, open_tab
from tests.faults.public.test_operations import Server, start

__all__ = ["start"]
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]
SECONDS = 60_000
MESSAGE = "#run-bar .message:not([hidden]) .message-text"
MESSAGE_MATCHES = f"(pattern) => new RegExp(pattern).test(document.querySelector('{MESSAGE}')?.textContent ?? '')"


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


def steps(page: Page) -> int:
    """Return the step shown in the bar."""
    return page.evaluate(STEPS_SHOWN)


def wait_past(page: Page, past: int) -> int:
    """Wait until training passes a step; return the step shown."""
    expect(page.locator("#run-bar .stop:enabled")).to_be_visible(timeout=SECONDS)
    page.wait_for_function(f"(past) => ({STEPS_SHOWN})() > past", arg=past, timeout=SECONDS)
    return steps(page)


def test_training_survives_reloads_closed_tabs_and_a_stopped_server(start, browser: Browser):
    server: Server = start("--public")
    context = new_context(browser)
    page = context.new_page()
    page.goto(f"{server.address}?tab=train")
    choose_preset(page, "tiny", timeout=SECONDS)
    open_settings(page, "Training")
    page.get_by_label("steps", exact=True).fill("20000")
    expect(page.locator("#summary")).to_contain_text("→ 20000", timeout=SECONDS)
    page.locator("#train").click()
    asked, stop = page.locator("#train-anyway"), page.locator("#run-bar .stop:enabled")
    expect(asked.or_(stop).first).to_be_visible(timeout=SECONDS)
    if asked.is_visible():  # where the time is measured by then, and long
        asked.click()
    step = wait_past(page, 5)

    page.reload()
    step = wait_past(page, step)
    second = context.new_page()
    second.goto(server.address)
    step = wait_past(second, step)
    page.close()
    second.close()
    third = context.new_page()
    third.goto(server.address)
    step = wait_past(third, step)

    run = next(folder.name for folder in server.root.iterdir() if "shipped" not in folder.name and folder.is_dir())
    server.process.terminate()
    pattern = "because the server shut down; press Resume|No connection to the server, retrying"
    third.wait_for_function(MESSAGE_MATCHES, arg=pattern, timeout=SECONDS, polling=50)
    assert server.ended(60) == 0
    saved = RunFolder(server.root, run)
    assert saved.read_info().status == "stopped"
    assert saved.read_info().step >= step
    expect(third.locator(MESSAGE)).to_contain_text("No connection to the server, retrying", timeout=SECONDS)

    again: Server = start("--public")
    third.goto(f"{again.address}?run={run}&tab=train")
    expect(third.locator("#run-bar .status")).to_have_text("stopped", timeout=SECONDS)
    assert steps(third) == saved.read_info().step
    expect(third.locator(MESSAGE)).to_have_text(
        "Stopped and saved because the server shut down; press Resume to continue"
    )
    third.get_by_role("button", name="Resume").click()
    wait_past(third, saved.read_info().step)
    open_tab(third, "Decode")
    expect(third.locator("#answer .output")).to_be_visible(timeout=SECONDS)
