"""The page in a real browser: train, decode, look inside, report, settings."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.config import load_preset
from core.runs import RunFolder
from core.server import Runs
from tests.browser.chromium import (
    DESKTOP,
    NOTHING_SIDEWAYS,
    PHONE,
    STEPS_SHOWN,
    box_of,
    choose_preset,
    choose_run,
    new_context,
    open_settings,
    open_tab,
)
from tests.serving import SHIPPED

STOP, STATUS = "#run-bar .stop:enabled", "#run-bar .status"
WHOLE = 2  # at most the step of the second pixel, where the chart shows all 600


def start_training(page: Page) -> None:
    """Train the tiny preset for longer than it needs; see its first steps."""
    choose_preset(page, "tiny")
    open_settings(page, "Training")
    page.get_by_label("steps", exact=True).fill("600")
    expect(page.locator("#summary")).to_contain_text("training.steps 400 → 600")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#run-bar .steps")).to_contain_text("/ 600")
    page.wait_for_function(f"({STEPS_SHOWN})() > 20")


def wait_for_more_steps(page: Page) -> None:
    """See the run that is shown advance."""
    page.wait_for_function(f"({STEPS_SHOWN})() > {page.evaluate(STEPS_SHOWN)}")


def step_at_the_left(page: Page) -> int:
    """Point at the left end of the loss chart; return the step that it reads there."""
    box = box_of(page.locator("#bench-view .loss-plot .u-over"))
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2 + 1)
    page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
    reading = page.locator("#bench-view .loss-panel .reading")
    expect(reading).to_contain_text("step ")
    return int(re.search(r"step ([\d,]+)", reading.inner_text())[1].replace(",", ""))


def check_that_a_zoom_survives_new_points(page: Page) -> None:
    """Zoom into the loss while the run trains, then out again."""
    plot = page.locator("#bench-view .loss-plot .chart-plot")
    plot.scroll_into_view_if_needed()
    assert step_at_the_left(page) <= WHOLE
    box = box_of(page.locator("#bench-view .loss-plot .u-over"))
    done = page.evaluate(STEPS_SHOWN)
    end = next(600 / half for half in (32, 16, 8, 4, 2, 1) if 600 / half >= max(10, 1.15 * done))  # of the axis
    page.mouse.move(box["x"] + box["width"] * 0.3 * done / end, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9 * done / end, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    zoomed = step_at_the_left(page)
    assert zoomed > WHOLE
    wait_for_more_steps(page)
    assert step_at_the_left(page) == zoomed
    plot.press("Escape")
    assert step_at_the_left(page) <= WHOLE


def test_training_survives_a_reload_and_the_address_restores_the_view(
    page: Page, reload: Callable, address: str, hurry: Callable
):
    start_training(page)
    page.set_viewport_size(PHONE)
    check_that_a_zoom_survives_new_points(page)
    page.set_viewport_size(DESKTOP)
    expect(page.locator(STOP)).to_be_visible()

    reload()  # during training: everything is restored
    expect(page.locator(STOP)).to_be_visible()
    expect(page.locator("#settings")).to_contain_text("preset tiny, training.steps 400 → 600")
    visitor = new_context(page.context.browser)  # another browser shows the same run
    other = visitor.new_page()
    other.goto(address)
    expect(other.locator(STOP)).to_be_visible()
    visitor.close()

    page.get_by_role("button", name="Stop").click()
    expect(page.locator(STATUS)).to_have_text("stopped")
    stopped_at = page.evaluate(STEPS_SHOWN)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(STOP)).to_be_visible()
    wait_for_more_steps(page)
    assert page.evaluate(STEPS_SHOWN) > stopped_at
    hurry()
    expect(page.locator(STATUS)).to_contain_text("finished, validation exact match", timeout=180_000)
    expect(page.locator("#bench-view .answers-when")).to_have_text("weights of step 600")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()  # there is nothing left to stop

    open_tab(page, "Decode")
    page.get_by_role("textbox", name="Input").fill("1 2 3")
    page.get_by_role("button", name="Decode").click()
    expect(page.locator("#answer .output .tile")).to_have_text(list("321"))
    page.get_by_role("button", name="attention of step 1").click()
    expect(page.locator("#viewer")).to_contain_text("Cross-attention, layer 1 of 1")
    expect(page.locator("#attention-of")).to_contain_text("1 2 3 → 3 2 1")
    page.get_by_role("radio", name="encoder self-attention").check()
    expect(page.locator("#viewer")).to_contain_text("Encoder self-attention, layer 1 of 1")
    expect(page).to_have_url(re.compile("tab=attention"))
    expect(page).to_have_url(re.compile("input=1\\+2\\+3.*&block=encoder"))
    reload()  # the address opens the same view again
    expect(page.get_by_role("tab", name="Look inside")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#viewer")).to_contain_text("Encoder self-attention, layer 1 of 1")
    expect(page.locator("#attention-of")).to_contain_text("1 2 3 → 3 2 1")


def test_an_answer_is_found_by_every_strategy_and_bad_input_explained(page: Page, reload: Callable):
    open_tab(page, "Decode")
    expect(page.locator("#answer .verdict")).to_have_text("✓ correct")
    expect(page.locator("#answer .ground")).to_have_text(
        re.compile("held out: training (never reads|may have read) this")
    )
    expect(page.locator("#mini-viewer canvas:visible")).to_have_count(4)
    page.get_by_role("radio", name="beam").check()
    page.get_by_label("n_best").fill("3")
    expect(page.locator("#answer .n-best li")).to_have_count(3)
    expect(page.locator("#beam-tree svg g.winning")).to_have_count(5)
    page.locator("#beam-tree").get_by_text("Show as table").click()
    expect(page.locator("#beam-tree tbody tr").first).to_contain_text("best")
    page.get_by_role("button", name="Compare decoding strategies").click()
    expect(page.locator("#comparison .row")).to_have_count(3)
    assert page.evaluate(NOTHING_SIDEWAYS)
    expect(page).to_have_url(re.compile("strategy=beam"))
    expect(page).to_have_url(re.compile("n_best=3"))
    page.set_viewport_size(PHONE)
    reload()
    expect(page.locator("#answer .n-best li")).to_have_count(3)
    expect(page.locator("#mini-viewer canvas:visible")).to_have_count(4)
    page.get_by_label("n_best").fill("9")
    expect(page.locator("#decode-message")).to_contain_text("n_best=9 must not be above beam_size=4")
    page.get_by_role("radio", name="greedy").check()
    expect(page).not_to_have_url(re.compile("n_best|strategy"))  # defaults are not in the address
    for typed, reason in (("4 x", "'x' at position 2"), ("", "empty"), ("<img src=x onerror=window.P=1>", "'<'")):
        page.get_by_role("textbox", name="Input").fill(typed)
        page.get_by_role("button", name="Decode").click()
        expect(page.locator("#decode-message")).to_contain_text(reason)
    assert page.evaluate("window.P === undefined")


@pytest.mark.slow
def test_a_report_is_written_shown_and_downloaded(page: Page, reload: Callable, runs: Runs):
    shutil.rmtree(runs[SHIPPED].folder.report, ignore_errors=True)
    reload()
    open_tab(page, "Report")  # which writes the report of a run that has none
    expect(page.locator("#report-message")).to_contain_text("digits-reversal-shipped: ")
    expect(page.get_by_role("button", name="Write report")).to_be_enabled()
    report = page.frame_locator("#report iframe")
    expect(report.locator("h1")).to_have_text("Report: digits-reversal-shipped")
    expect(report.locator("strong").first).to_contain_text("This model solves its task")
    expect(report.locator("img")).to_have_count(4)
    word = report.get_by_text("exact match", exact=True).first
    word.hover()
    expect(word).to_have_attribute("title", re.compile("whole answers that are correct"))
    for name, ending in (("Save as HTML", ".html"), ("Save Markdown", ".zip")):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == f"digits-reversal-shipped-report{ending}"
    assert page.evaluate(NOTHING_SIDEWAYS)
    page.set_viewport_size(PHONE)
    reload()  # it is there without being written again
    expect(report.locator("h1")).to_have_text("Report: digits-reversal-shipped")


def test_invalid_settings_are_explained_and_valid_ones_saved_and_loaded_again(page: Page, tmp_path: Path):
    expect(page.locator("footer")).not_to_contain_text("Settings")  # Gradio's own are for developers of an app
    choose_preset(page, "digits-reversal")
    open_settings(page, "Model")
    field = page.get_by_label("d_model")
    field.fill("30")
    field.blur()
    expect(page.locator("#summary")).to_contain_text("d_model=30 must be divisible by model.num_heads=4")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#summary")).to_contain_text("d_model=30")

    choose_preset(page, "tiny")
    expect(page.locator("#summary")).not_to_contain_text("d_model")
    open_settings(page, "Training")
    field = page.get_by_label("steps", exact=True)
    field.fill("7")
    expect(page.locator("#summary")).to_contain_text("training.warmup_steps=20 must not be above training.steps=7")
    field.fill("500")
    expect(page.locator("#summary")).to_contain_text("training.steps 400 → 500")
    expect(page.locator("#section-training")).to_contain_text("500 steps")  # what is set can be read when it is closed
    with page.expect_download() as download:
        page.get_by_role("button", name="Save", exact=True).click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "tiny-changed.yaml"
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator("#summary")).not_to_contain_text("changed")
    file = page.locator("input[type=file][accept*=yaml]")
    file.set_input_files(saved)
    expect(page.locator("#preset-picker input[value=tiny-changed]")).to_be_checked()
    expect(page.locator("#summary")).to_contain_text("22,637 parameters")
    file.set_input_files({"name": "bad.yaml", "mimeType": "text/yaml", "buffer": b"task: {family: digits, color: red}"})
    expect(page.locator("#train-problem")).to_contain_text("task.color is not a known key")


@pytest.mark.slow
def test_a_notice_of_a_run_is_shown_until_it_is_closed(page: Page, runs: Runs):
    name, text = "noted", "stopped and saved because the server shut down"
    shown = "Stopped and saved because the server shut down; press Resume to continue"
    folder = RunFolder.create(runs.root, load_preset("tiny"), name=name, status="stopped")
    folder.write_info(folder.read_info().model_copy(update={"message": text}))
    choose_run(page, runs[name].title)
    message = page.locator("#run-bar .message")
    expect(message).to_contain_text(shown)
    page.set_viewport_size({"width": 1366, "height": 768})
    expect(page.locator("#train")).to_be_in_viewport(ratio=1)  # the notice takes its room from what scrolls
    page.mouse.move(900, 600)
    page.mouse.wheel(0, 300)
    page.wait_for_function("() => window.scrollY > 100")
    notice, tabs = box_of(message), box_of(page.locator("#tabs .tab-wrapper"))
    assert tabs["y"] >= notice["y"] + notice["height"]
    page.get_by_role("button", name="Close this message").click()
    for _ in range(2):  # the server is asked for the run again
        page.wait_for_event("requestfinished", lambda request: '"feed"' in (request.post_data or ""))
    page.wait_for_timeout(200)
    expect(message).to_be_hidden()
    choose_run(page, SHIPPED)
    choose_run(page, runs[name].title)
    expect(message).to_contain_text(shown)
    folder.write_info(folder.read_info().model_copy(update={"status": "finished"}))  # nothing to resume
    expect(message.locator(".message-text")).to_have_text("Stopped and saved because the server shut down")
