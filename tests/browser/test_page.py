"""The page in a real browser: train, decode, attention, report, presets."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import CHROMIUM, DESKTOP, NOTHING_SIDEWAYS, PHONE, open_tab

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]
STEPS_SHOWN = "() => parseInt(document.querySelector('#charts .numbers')?.textContent.replace('·', ''))"


def start_training(page: Page) -> None:
    """Train the tiny preset for a fifth of its time, which is enough for it; see its first steps."""
    open_tab(page, "Train")
    page.get_by_role("radio", name="tiny").check()
    expect(page.locator("#summary")).to_contain_text("22,637 parameters")
    page.get_by_role("button", name=re.compile("^Training")).click()
    page.get_by_label("steps", exact=True).fill("400")
    expect(page.locator("#summary")).to_contain_text("training.steps 2000 → 400")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#charts .numbers")).to_contain_text("/ 400 steps")
    page.wait_for_function(f"({STEPS_SHOWN})() > 5")


def wait_for_more_steps(page: Page) -> None:
    """See the run that is shown advance."""
    page.wait_for_function(f"({STEPS_SHOWN})() > {page.evaluate(STEPS_SHOWN)}")


def check_that_a_zoom_survives_new_points(page: Page) -> None:
    """Zoom into the first chart while the run trains, then out again."""
    canvas = page.locator("#charts canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
    page.mouse.up()
    reset = page.locator("#charts .reset")
    expect(reset).to_be_visible()
    wait_for_more_steps(page)
    expect(reset).to_be_visible()
    reset.click()
    expect(reset).to_be_hidden()


def test_training_survives_a_reload_and_the_address_restores_the_view(
    page: Page, reload: Callable, address: str, hurry: Callable
):
    start_training(page)
    page.set_viewport_size(PHONE)
    check_that_a_zoom_survives_new_points(page)
    page.set_viewport_size(DESKTOP)
    expect(page.get_by_role("button", name="Stop")).to_be_enabled()

    reload()  # during training: everything is restored
    expect(page.locator("#charts .state")).to_contain_text("training")
    expect(page.locator("#settings")).to_contain_text("preset tiny, training.steps 2000 → 400")
    other = page.context.new_page()  # a second tab shows the same run
    other.goto(address)
    expect(other.locator("#charts .state")).to_contain_text("training")
    other.close()

    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#charts .state")).to_contain_text("stopped")
    stopped_at = page.evaluate(STEPS_SHOWN)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#charts .state")).to_contain_text("training")
    hurry()
    expect(page.locator("#charts .state")).to_contain_text("finished", timeout=180_000)
    assert page.evaluate(STEPS_SHOWN) == 400 > stopped_at
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()

    open_tab(page, "Decode")
    page.get_by_label("Input").fill("1 2 3")
    page.get_by_role("button", name="Decode").click()
    expect(page.locator("#answer .output .tile")).to_have_text(list("321"))
    page.get_by_role("button", name="attention of step 1").click()
    expect(page.locator("#viewer")).to_contain_text("Cross-attention, layer 1 of 1")
    expect(page.locator("#attention-of")).to_contain_text("1 2 3 → 3 2 1")
    page.get_by_role("radio", name="encoder self-attention").check()
    expect(page.locator("#viewer")).to_contain_text("Encoder self-attention, layer 1 of 1")
    expect(page).to_have_url(re.compile("input=1\\+2\\+3.*&block=encoder"))
    reload()  # the address opens the same view again
    open_tab(page, "Attention")
    expect(page.locator("#viewer")).to_contain_text("Encoder self-attention, layer 1 of 1")
    expect(page.locator("#attention-of")).to_contain_text("1 2 3 → 3 2 1")


def test_an_answer_is_found_by_every_strategy_and_bad_input_explained(page: Page, reload: Callable):
    expect(page.locator("#answer .verdict")).to_have_text("✓ correct")
    expect(page.locator("#mini-viewer canvas:visible")).to_have_count(4)
    page.get_by_role("radio", name="beam").check()
    page.get_by_label("n_best").fill("3")
    expect(page.locator("#answer .n-best li")).to_have_count(3)
    expect(page.locator("#beam-tree svg g.winning")).to_have_count(5)
    page.get_by_text("Show as table").first.click()
    expect(page.locator("#beam-tree tbody tr").first).to_contain_text("best")
    page.get_by_role("button", name="Compare decoding strategies").click()
    expect(page.locator("#comparison .row")).to_have_count(3)
    assert page.evaluate(NOTHING_SIDEWAYS)
    expect(page).to_have_url(re.compile("strategy=beam.*n_best=3"))
    page.set_viewport_size(PHONE)
    reload()
    expect(page.locator("#answer .n-best li")).to_have_count(3)
    expect(page.locator("#mini-viewer canvas:visible")).to_have_count(4)
    page.get_by_label("n_best").fill("9")
    expect(page.locator("#decode-message")).to_contain_text("n_best=9 must not be above beam_size=4")
    page.get_by_role("radio", name="greedy").check()
    for typed, reason in (("4 x", "'x' at position 2"), ("", "empty"), ("<img src=x onerror=window.P=1>", "'<'")):
        page.get_by_label("Input").fill(typed)
        page.get_by_role("button", name="Decode").click()
        expect(page.locator("#decode-message")).to_contain_text(reason)
    assert page.evaluate("window.P === undefined")


def test_a_report_is_written_shown_and_downloaded(page: Page, reload: Callable):
    open_tab(page, "Report")
    button = page.get_by_role("button", name="Write report")
    button.click()
    expect(page.locator("#report-message")).to_contain_text("Measuring digits-reversal-shipped")
    expect(button).to_be_enabled()
    report = page.frame_locator("#report iframe")
    expect(report.locator("h1")).to_have_text("Report: digits-reversal-shipped")
    expect(report.locator("strong").first).to_contain_text("This model solves its task")
    expect(report.locator("img")).to_have_count(4)
    for name, ending in (("Save as HTML", ".html"), ("Save Markdown", ".zip")):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == f"digits-reversal-shipped-report{ending}"
    assert page.evaluate(NOTHING_SIDEWAYS)
    page.set_viewport_size(PHONE)
    reload()  # it is there without being written again
    expect(report.locator("h1")).to_have_text("Report: digits-reversal-shipped")


def test_invalid_settings_are_explained_and_valid_ones_saved_and_loaded_again(page: Page, tmp_path: Path):
    open_tab(page, "Train")
    expect(page.get_by_role("button", name="Train", exact=True)).to_be_enabled()  # once the form is open
    page.locator("#section-model button.label-wrap").click()
    field = page.get_by_label("d_model")
    field.fill("30")
    field.blur()
    expect(page.locator("#summary")).to_contain_text("d_model=30 must be divisible by model.num_heads=4")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#train-problem")).to_contain_text("d_model=30")

    page.get_by_role("radio", name="tiny").check()
    expect(page.locator("#summary")).to_contain_text("22,637 parameters")
    page.get_by_role("button", name=re.compile("^Training")).click()
    field = page.get_by_label("steps", exact=True)
    field.fill("7")
    expect(page.locator("#summary")).to_contain_text("training.warmup_steps=40 must not be above training.steps=7")
    field.fill("500")
    expect(page.locator("#summary")).to_contain_text("training.steps 2000 → 500")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save preset").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "tiny-changed.yaml"
    page.get_by_role("button", name="Reset to preset").click()
    expect(page.locator("#summary")).not_to_contain_text("changed")
    page.locator("input[type=file][accept*=yaml]").set_input_files(saved)
    expect(page.get_by_role("radio", name="tiny-changed")).to_be_checked()
    expect(page.locator("#summary")).to_contain_text("22,637 parameters")
    page.locator("input[type=file][accept*=yaml]").set_input_files(
        {"name": "bad.yaml", "mimeType": "text/yaml", "buffer": b"task: {family: digits, color: red}"}
    )
    expect(page.locator("#train-problem")).to_contain_text("task.color is not a known key")
