"""A translation in a real browser: sentences as text, maps by piece and by word, and a link that keeps the choice."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from core.runs import RunFolder
from core.server import Runs
from tests.browser.chromium import NOTHING_SIDEWAYS, PHONE, open_tab
from tests.support.trainings import train_run
from tests.support.translation_run import SENTENCE, small_translation

RUN = "translated"


@pytest.fixture(scope="module")
def link(runs: Runs, address: str) -> str:
    """A link to a short run that translates a sentence."""
    preset = small_translation()
    folder = RunFolder.create(runs.root, preset, name=RUN)
    train_run(folder)
    return f"{address}?run={RUN}&input={SENTENCE.replace(' ', '+').replace('Ctrl+', 'Ctrl%2B')}"


def test_maps_by_piece_and_by_word(empty_page: Page, link: str, reload: Callable):
    page = empty_page
    page.goto(link + "&tab=attention")
    viewer = page.locator("#viewer")
    expect(viewer.locator(".heading")).to_contain_text(SENTENCE + " → ")
    viewer.get_by_role("radio", name="encoder self-attention").check()
    size = re.compile(r"(\d+) rows by (\d+) columns")
    name = viewer.locator("canvas.map")
    expect(name).to_have_attribute("aria-label", size)
    pieces = int(size.search(name.get_attribute("aria-label") or "")[1])
    assert pieces > 9
    before = name.evaluate("(canvas) => canvas.toDataURL()")

    viewer.get_by_role("radio", name="words").check()
    expect(name).to_have_attribute("aria-label", re.compile("by word: 9 rows by 9 columns"))
    expect(page).to_have_url(re.compile("[?&]by=words"))
    assert name.evaluate("(canvas) => canvas.toDataURL()") != before
    expect(viewer.locator(".caption")).to_contain_text("the pieces of a word are added")
    viewer.get_by_role("button", name="Table").click()
    heads = viewer.locator(".table-box thead th")
    assert heads.all_inner_texts() == ["token", "<BOS>", "Press", "Ctrl", "+", "F5", "in", "LibreOffice", ".", "<EOS>"]
    rows = [
        [float(cell) for cell in row.locator("td").all_inner_texts()]
        for row in viewer.locator(".table-box tbody tr").all()
    ]
    assert all(abs(sum(row) - 1) < 0.01 for row in rows)

    name.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        name.press(key)
    expect(viewer.locator(".story-say")).not_to_be_empty()
    expect(page).to_have_url(re.compile("[?&]row="))
    reload()
    expect(viewer.locator("canvas.map")).to_have_attribute("aria-label", re.compile("by word: 9 rows"))
    viewer.get_by_role("radio", name="pieces").check()
    expect(name).to_have_attribute("aria-label", re.compile(f": {pieces} rows by {pieces} columns"))
    expect(page).not_to_have_url(re.compile("[?&]by="))


def test_sentences_are_text_on_the_bench_and_on_decode(empty_page: Page, link: str):
    page = empty_page
    page.goto(link + "&tab=train")
    answers = page.locator("#bench-view .answer")
    expect(answers.first).to_contain_text("Opens a dialog where you can select a color.")
    expect(answers.nth(1)).to_contain_text("reference: ")
    open_tab(page, "Decode")
    expect(page.locator("#answer .output .sentence, #answer .output .muted").first).to_be_visible()
    assert "▁" not in page.locator("body").inner_text()


@pytest.mark.slow
def test_other_tasks_have_no_choice_of_words(page: Page):
    open_tab(page, "Look inside")
    expect(page.locator("#viewer canvas.map")).to_be_visible()
    expect(page.locator("#viewer .units")).to_be_hidden()


@pytest.mark.slow
def test_a_map_of_a_sentence_fits_a_phone(empty_page: Page, link: str):
    empty_page.set_viewport_size(PHONE)
    empty_page.goto(link + "&tab=attention&by=words")
    expect(empty_page.locator("#viewer canvas.map")).to_be_visible()
    assert empty_page.evaluate(NOTHING_SIDEWAYS)
