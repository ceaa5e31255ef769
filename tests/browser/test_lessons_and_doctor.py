"""The lessons and the doctor in a real browser."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from core.server import Runs
from core.teaching.lessons import Lesson, lesson_names, load_lesson
from tests.browser.chromium import NOTHING_SIDEWAYS, PHONE, open_lesson, open_tab
from ui.tabs import lessons

IS_DRAWN = """canvas => canvas.width > 0
    && canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"""


@pytest.mark.slow
@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_every_lesson_asks_for_a_prediction_and_then_shows_both_runs(page: Page):
    open_tab(page, "Learn")
    names = lesson_names()
    buttons = page.locator("#lesson .bugs button")
    expect(buttons).to_have_count(len(names))
    for name in names:
        open_lesson(page, name)
        expect(page.locator("#lesson .breaks")).to_contain_text(name)
        expect(page.locator("#lesson .revealed")).to_be_hidden()
        expect(page.get_by_label("my prediction")).to_have_value("")
        page.get_by_label("my prediction").fill(f"nothing, with {name}")
        page.get_by_role("button", name="Show what happens").click()
        expect(page.get_by_label("my prediction")).to_be_visible()
        expect(page.locator("#lesson .charts .line-chart canvas")).to_have_count(4)
        expect(page.locator("#lesson .doctors .verdict").first).to_contain_text("No bug found: ")
        expect(page.locator("#lesson .doctors .verdict").last).to_contain_text("Diagnosis: ")
        if name == "encoder-over-pad":  # its model has no sublayers
            expect(page.locator("#lesson .doctors .gray .state").first).to_contain_text("not checked")
        expect(page.locator("#lesson .maps canvas[role=img]").first).to_be_visible()
        for canvas in (
            page.locator("#lesson .line-chart canvas").first,
            page.locator("#lesson .maps canvas[role=img]").last,
        ):
            assert canvas.evaluate(IS_DRAWN), name
        assert page.evaluate(NOTHING_SIDEWAYS), name
    open_lesson(page, names[0])
    expect(page.get_by_label("my prediction")).to_have_value(f"nothing, with {names[0]}")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lessons whose pairs train for a few steps."""

    def shorter(name: str) -> Lesson:
        lesson = load_lesson(name)
        return replace(lesson, broken=lesson.broken.with_changes({"training.steps": 60}))

    monkeypatch.setattr(lessons, "load_lesson", shorter)


@pytest.mark.usefixtures("short")
def test_a_lesson_trains_its_pair_and_the_doctor_finds_the_bug(page: Page, runs: Runs, hurry: Callable):
    open_tab(page, "Learn")
    lesson = page.get_by_role("button", name="targets not shifted")
    lesson.click()
    expect(lesson).to_have_attribute("aria-current", "true")  # before that, another lesson may be open
    page.get_by_role("button", name="Show what happens").click()
    page.get_by_role("button", name="Train this pair").click()
    expect(page.locator("#lesson-message")).to_contain_text("targets-not-shifted-right and targets-not-shifted-broken")
    open_tab(page, "Train")
    expect(page.locator("#settings")).to_contain_text("Broken on purpose (targets-not-shifted)")
    open_tab(page, "Report")
    page.get_by_text("Doctor: check this run").click()
    expect(page.locator("#doctor .verdict")).to_have_text("Diagnosis: targets not shifted.")
    expect(page.locator("#doctor .about")).to_contain_text("targets-not-shifted-broken, after")
    hurry()
    expect(page.locator("#run-bar .status")).to_contain_text("finished", timeout=180_000)
    expect(page.locator("#doctor .about")).to_have_text(re.compile(r"after \d+ updates\.$"))
    expect(page.locator("#doctor .verdict")).to_have_text("Diagnosis: targets not shifted.")
    assert runs["targets-not-shifted-right"].preset.bug is None


@pytest.mark.slow
@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_the_shipped_run_has_no_bug_and_its_diagram_opens_its_heads(page: Page):
    open_tab(page, "Report")
    page.get_by_text("Doctor: check this run").click()
    expect(page.locator("#doctor .verdict")).to_have_text("No bug found: all checks passed.")
    page.locator("#doctor summary").click()
    expect(page.locator("#doctor .lights .green")).to_have_count(29)  # 5 of them of the recorded health
    open_tab(page, "Train")
    page.get_by_text("Model architecture").click()
    expect(page.locator("#model .about")).to_contain_text("169,933 parameters")
    assert page.evaluate(NOTHING_SIDEWAYS)
    page.locator("#model button", has_text="self-attention").nth(1).click()  # of the second encoder layer
    expect(page.get_by_role("tab", name="Look inside")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#viewer")).to_contain_text("Encoder self-attention, layer 2 of 2")
