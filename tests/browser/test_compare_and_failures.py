"""Comparing runs and opening wrong answers in a real browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from core.server import Runs
from tests.browser.chromium import NOTHING_SIDEWAYS, choose_run, choose_seeds, open_tab, requests_held
from tests.serving import SHIPPED

pytestmark = pytest.mark.usefixtures("seeds")


def test_selected_runs_are_compared_and_restored_from_the_address(
    page: Page, reload: Callable[[], None], runs: Runs, seeds: list[str]
):
    folder = runs["pair-seed-1"].folder
    folder.write_info(folder.read_info().model_copy(update={"seconds": 0.0}))  # as that of an imported run
    open_tab(page, "Compare")
    picker, found = page.locator("#run-picker"), page.locator("#run-comparison")
    expect(picker).to_contain_text("reverse 3–10 digits")
    expect(found.locator(".verdict")).not_to_be_empty()  # it opens on a comparison, of runs of this file or others
    choose_seeds(page, "pair")
    for name in seeds:
        picker.get_by_role("checkbox", name=re.compile(name)).uncheck()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#compare-message")).to_contain_text("select 2 to 10 runs of one task")
    picker.locator("label", has_text="2 seeds").filter(has_text="pair").click()
    expect(picker.get_by_role("checkbox", name=re.compile("pair-seed-1"))).to_be_checked()
    expect(picker.get_by_role("checkbox", name=re.compile("digits-reversal-shipped"))).to_be_disabled()
    expect(picker).to_contain_text("Only runs of the same task can be compared")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(found.locator(".heading")).to_have_text(
        "reverse 2–5 digits: 100 held-out inputs, the same for all runs", timeout=30_000
    )
    expect(found.locator(".verdict")).to_contain_text("95 % confidence interval")
    expect(found.locator(".line-chart canvas")).to_have_count(4)
    expect(found).to_contain_text("No setting differs except the seed.")
    expect(found.locator(".metrics tr.group")).to_contain_text("pair (2 seeds)")
    times = [found.locator(".metrics tr.member").nth(at).locator("td").nth(4) for at in range(2)]
    expect(times[0]).to_have_text(re.compile(r"^\d+\.\d$"))
    expect(times[1]).to_have_text("–")
    found.get_by_text("Show as table").nth(2).click()
    expect(found.locator("figure").nth(2).get_by_role("row")).to_have_count(11)  # a header and ten lengths
    with page.expect_download() as download:
        found.get_by_role("button", name="CSV").nth(2).click()
    assert download.value.suggested_filename == "exact-match-by-length.csv"
    assert page.evaluate(NOTHING_SIDEWAYS)
    expect(page).to_have_url(re.compile("compare=pair-seed-0%2Cpair-seed-1"))
    reload()
    expect(found.locator(".heading")).to_contain_text("reverse 2–5 digits", timeout=30_000)
    expect(picker.get_by_role("checkbox", name=re.compile("pair-seed-0"))).to_be_checked()


def test_a_link_compares_its_runs_even_if_the_list_comes_before_the_values(
    empty_page: Page, address: str, seeds: list[str]
):
    with requests_held(empty_page):
        empty_page.goto(f"{address}?tab=compare&compare={','.join(seeds)},{SHIPPED}")
        picker = empty_page.locator("#run-picker")
        shipped = picker.get_by_role("checkbox", name=re.compile(SHIPPED))
        expect(shipped).to_be_attached()
        expect(picker.get_by_role("checkbox", checked=True)).to_have_count(0)
    expect(shipped).to_be_checked()
    expect(empty_page).to_have_url(re.compile(f"compare={seeds[0]}(,|%2C){seeds[1]}(,|%2C){SHIPPED}"))
    shipped.uncheck()  # of another task, which no longer can be ticked
    expect(shipped).to_be_disabled()
    expect(picker.get_by_role("checkbox", checked=True)).to_have_count(3)  # two seeds and their group


@pytest.mark.slow
def test_translations_are_compared_by_bleu(translations: list[str], page: Page):
    open_tab(page, "Compare")
    picker, found = page.locator("#run-picker"), page.locator("#run-comparison")
    choose_seeds(page, "french")
    expect(picker.get_by_role("checkbox", name=re.compile(translations[1]))).to_be_checked()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(found.locator(".verdict")).to_contain_text("Paired bootstrap resampling: 1,000 resamples", timeout=120_000)
    expect(found.locator(".metrics thead")).to_contain_text("exact matchBLEUchrF")
    expect(found.locator(".metrics-note")).to_contain_text("sacreBLEU signatures: nrefs:1|")
    expect(found.locator(".charts")).to_contain_text("Exact match while training")


def test_a_wrong_answer_opens_its_attention(page: Page, seeds: list[str]):
    open_tab(page, "Decode")
    page.get_by_role("radio", name="beam").check()
    expect(page).to_have_url(re.compile("strategy=beam"))
    choose_run(page, seeds[0])
    open_tab(page, "Report")
    expect(page.frame_locator("#report iframe").locator("h1")).to_have_text(f"Report: {seeds[0]}")
    page.get_by_role("button", name="Wrong answers, one by one").click()
    page.get_by_role("button", name="Find wrong answers").click()
    failures = page.locator("#failures")
    expect(failures.locator(".summary")).to_contain_text("wrong answers to 2,000 held-out inputs", timeout=30_000)
    page.get_by_role("radio", name="by first wrong token").check()
    expect(failures.locator(".group .name").first).to_have_text("token 1")
    example = failures.locator(".example").first
    typed = example.locator(".tokens").first.inner_text()
    written = example.locator(".tokens").nth(1).inner_text()
    assert page.evaluate(NOTHING_SIDEWAYS)
    example.click()
    expect(page.get_by_role("tab", name="Look inside")).to_have_attribute("aria-selected", "true")
    answer = f"{typed} → {written}".removesuffix(" <EOS>").strip()
    expect(page.locator("#attention-of")).to_contain_text(f"{answer} · decoded by {seeds[0]}", timeout=10_000)
    expect(page).to_have_url(re.compile("input=" + typed.replace(" ", "\\+")))
    assert "beam" not in page.url  # found by greedy decoding, so opened with it
    open_tab(page, "Decode")
    expect(page.locator("#answer .verdict")).to_have_text("✗ wrong")
