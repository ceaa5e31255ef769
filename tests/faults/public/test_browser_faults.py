"""Training in a real browser survives a reload, other tabs, a closed tab and a stopped server."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from core.runs import RunFolder
from tests.browser.chromium import CHROMIUM, FLAGS, open_tab
from tests.faults.public.test_operations import Server, start

__all__ = ["start"]
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]
SECONDS = 60_000
MESSAGE_MATCHES = "(pattern) => new RegExp(pattern).test(document.querySelector('#charts .message').textContent)"


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


def steps(page: Page) -> int:
    """Return the step shown above the charts."""
    return int(re.sub(r"\D", "", page.locator("#charts .numbers").inner_text().split("/")[0]))


def wait_past(page: Page, past: int) -> int:
    """Wait until training passes a step; return the step shown."""
    expect(page.locator("#charts .state")).to_have_text("training", timeout=SECONDS)
    page.wait_for_function(
        "(past) => parseInt(document.querySelector('#charts .numbers').textContent.replace(/[^0-9/]/g, '')) > past",
        arg=past,
        timeout=SECONDS,
    )
    return steps(page)


def test_training_survives_reloads_closed_tabs_and_a_stopped_server(start, browser: Browser, row):
    server: Server = start("--public")
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.address}?tab=train")
    expect(page.get_by_role("radio", name="tiny")).to_be_enabled(timeout=SECONDS)
    page.get_by_role("radio", name="tiny").check()
    expect(page.locator("#summary")).to_contain_text("22,637 parameters", timeout=SECONDS)
    page.get_by_role("button", name=re.compile("^Training")).click()
    page.get_by_label("steps", exact=True).fill("20000")
    expect(page.locator("#summary")).to_contain_text("→ 20000", timeout=SECONDS)
    page.get_by_role("button", name="Train", exact=True).click()
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
    start_time = time.monotonic()
    pattern = "because the server shut down; press Resume|connection lost, retrying; if the server was stopped"
    third.wait_for_function(MESSAGE_MATCHES, arg=pattern, timeout=SECONDS, polling=50)
    seconds = time.monotonic() - start_time
    assert server.ended(20) == 0
    saved = RunFolder(server.root, run)
    assert saved.info().status == "stopped"
    assert saved.info().step >= step
    expect(third.locator("#run-bar .error")).to_contain_text("connection lost", timeout=SECONDS)

    again: Server = start("--public")
    third.goto(f"{again.address}?run={run}&tab=train")
    expect(third.locator("#charts .state")).to_have_text("stopped", timeout=SECONDS)
    assert steps(third) == saved.info().step
    expect(third.locator("#charts .message")).to_have_text(
        "stopped and saved because the server shut down; press Resume to continue"
    )
    third.get_by_role("button", name="Resume").click()
    wait_past(third, saved.info().step)
    open_tab(third, "Decode")
    expect(third.locator("#answer .output")).to_be_visible(timeout=SECONDS)
    result = f"nothing lost: {saved.info().step} steps saved, then resumed"
    row(
        "F1",
        "on the page: SIGTERM",
        "1 run",
        f"reported after {seconds:.1f} s; reason shown after the restart; resumed",
    )
    assert seconds <= 2
    row("browser", "reload, second tab, closed tab, SIGTERM in mid-training", "1 run", result)
