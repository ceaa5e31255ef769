"""Connections of a browser: more tabs than it has connections to a host, and a connection that fails for a while."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Request, expect, sync_playwright

from core.config import load_preset
from core.server.ownership import owner_of
from tests.browser.chromium import CHROMIUM, FLAGS, STEPS_SHOWN, choose_preset, new_context, open_settings, open_tab
from tests.faults.public.conftest import Public
from tests.support.run_helpers import wait_for
from ui.serving.visitors import COOKIE

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]
TABS = 8
STREAM = re.compile("/(heartbeat|queue/data)")
SECONDS = 60_000


@pytest.fixture
def context() -> Iterator[BrowserContext]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield new_context(browser)  # one visitor
        browser.close()


@pytest.mark.slow  # it draws eight pages; the test below counts the connections of one
def test_eight_tabs_decode_and_follow_a_training(public: Public, context: BrowserContext):
    context.request.get(public.address)  # sets the cookie
    token = next(cookie["value"] for cookie in context.cookies() if cookie["name"] == COOKIE)
    preset = load_preset("tiny").with_changes({"training.steps": 20_000, "training.evaluate_every": 500})
    public.runs.start(preset, name="followed", owner=owner_of(token))
    tabs = [context.new_page() for _ in range(TABS)]
    tabs[0].clock.install()
    for tab in tabs:
        tab.goto(f"{public.address}?tab=decode", timeout=SECONDS)
        expect(tab.locator("#answer .output")).to_be_visible(timeout=SECONDS)
    for tab in tabs:
        step = tab.evaluate(STEPS_SHOWN)
        tab.wait_for_function(f"(before) => ({STEPS_SHOWN})() > before", arg=step, timeout=SECONDS)
        tab.locator("#input textarea").fill("7 3 1")
        tab.locator("#decode").click()
        expect(tab.locator("#answer")).to_contain_text("7", timeout=SECONDS)
        tab.wait_for_function("() => location.search.includes('input=7+3+1')", timeout=SECONDS)

    def reports_presence(request: Request) -> bool:
        return "still_open" in (request.post_data or "")

    with tabs[0].expect_request(reports_presence, timeout=SECONDS):
        tabs[0].clock.fast_forward(31_000)
    public.runs.stop("followed")


def test_what_was_typed_survives_an_outage_in_which_gradio_reloads_the_page(public: Public, context: BrowserContext):
    page, streams = context.new_page(), set[Request]()
    page.on("request", lambda request: streams.add(request) if STREAM.search(request.url) else None)
    for ended in ("requestfinished", "requestfailed"):
        page.on(ended, lambda request: streams.discard(request))  # Playwright inspects the signature
    page.goto(f"{public.address}?tab=train", timeout=SECONDS)
    choose_preset(page, "tiny", timeout=SECONDS)
    open_settings(page, "Training")
    page.get_by_label("steps", exact=True).fill("777")
    expect(page.locator("#summary")).to_contain_text("→ 777", timeout=SECONDS)
    page.wait_for_function("() => sessionStorage['attention-lab-draft-preset']?.includes('777')", timeout=SECONDS)
    wait_for(lambda: page.evaluate("() => true") and not streams)  # no connection stays
    page.locator("#own-open").click()
    page.locator("#own-pasted textarea").fill("a b => b a\nc d => d c")
    open_tab(page, "Decode")
    page.locator("#input textarea").fill("5 5 5")
    page.evaluate("() => { document.body.isOld = true; }")
    context.set_offline(True)
    page.locator("#decode").click()
    expect(page.locator("#run-bar .message-text")).to_contain_text("No connection to the server", timeout=SECONDS)
    expect(page.get_by_text("Connection to the server was lost")).to_be_attached(
        timeout=SECONDS
    )  # of Gradio, and hidden
    context.set_offline(False)
    page.wait_for_function("() => !document.body?.isOld && document.querySelector('#input textarea')", timeout=SECONDS)
    expect(page.locator("#input textarea")).to_have_value("5 5 5", timeout=SECONDS)
    open_tab(page, "Train")
    expect(page.locator("#own-pasted textarea")).to_have_value("a b => b a\nc d => d c", timeout=SECONDS)
    expect(page.locator("#summary")).to_contain_text("→ 777", timeout=SECONDS)

    page.locator("#own-close").click()
    page.locator("#train").click()
    expect(page.locator("#run-bar .task")).not_to_be_empty(timeout=SECONDS)
    page.wait_for_function("() => !Object.keys(sessionStorage).some((name) => name.includes('draft'))", timeout=SECONDS)
