"""More runs than a list shows: the menu, Compare and Start from say how many, and a search finds them."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import NOTHING_SIDEWAYS, PHONE
from tests.serving import SHIPPED

LEFT_OUT = re.compile(r"^Not listed: \d+ more runs?\. Search finds runs by name, task, preset or status\.$")


def test_a_search_finds_what_a_list_leaves_out(
    page: Page, seeds: list[str], address: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("core.server.run_list.MAX_LISTED", 1)
    page.goto(f"{address}?tab=compare&compare={','.join(seeds)}")
    picker = page.locator("#run-picker")
    expect(picker.locator(".unlisted")).to_have_text(LEFT_OUT)
    expect(picker.get_by_label(seeds[0])).to_be_checked()  # a chosen run is always listed
    expect(picker.get_by_label(SHIPPED)).to_have_count(0)
    picker.locator(".search").fill("shipped")
    expect(picker.get_by_label(SHIPPED)).to_be_visible()
    expect(picker.get_by_label(seeds[1])).to_be_checked()
    expect(picker.locator(".task", has_text=SHIPPED)).to_contain_text("Only runs of the same task can be compared")
    picker.locator(".search").fill("no such run")
    expect(picker.get_by_label(SHIPPED)).to_have_count(0)

    bar = page.locator("#run-bar")
    bar.locator(".run").click()
    expect(bar.locator(".unlisted")).to_have_text(LEFT_OUT)
    expect(bar.locator(".item")).to_have_count(1)
    bar.locator(".search").fill("no such run")
    expect(bar.locator(".none")).to_have_text("No run matches.")
    bar.locator(".search").fill(seeds[0])
    expect(bar.locator(".item .name")).to_have_text(seeds[0])
    expect(bar.locator(".unlisted")).to_be_hidden()
    page.keyboard.press("Escape")

    page.get_by_role("tab", name="Train").click()
    start = page.locator("#setting-fields")
    expect(start.locator(".start-unlisted")).to_have_text(LEFT_OUT)
    start.locator(".start-search").fill(seeds[0])
    expect(start.locator(f".start-run option[value='{seeds[0]}']")).to_have_count(1)
    expect(start.locator(".start-unlisted")).to_be_hidden()
    page.set_viewport_size(PHONE)
    assert page.evaluate(NOTHING_SIDEWAYS)
