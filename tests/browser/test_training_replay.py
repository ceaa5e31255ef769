"""The training replay, and the maps of one answer, in a real browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from core.config import load_preset
from core.server import Runs
from tests.browser.chromium import PHONE, head_button, open_tab
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for

RUN = "replayed"
SCRUB = "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input')); }"
DRAWN = "(canvas) => canvas.toDataURL()"


@pytest.fixture
def training(runs: Runs) -> Runs:
    """A lab in which the tiny preset trains."""
    runs.start(load_preset("tiny").with_changes({"training.steps": 200, "training.evaluate_every": 20}), name=RUN)
    wait_for(lambda: len(runs[RUN].replay.snapshots()) > 1, seconds=60)
    return runs


def test_a_replay_follows_training_scrubs_and_is_shared_by_link(
    empty_page: Page, training: Runs, address: str, reload: Callable
):
    page = empty_page
    page.goto(f"{address}?run={RUN}&input=4+8+2+9&tab=attention")
    viewer = page.locator("#viewer")
    viewer.get_by_role("radio", name="training replay").check()
    when = viewer.locator(".when")
    expect(when).to_have_text("step 200 of 200", timeout=120_000)  # follows the training
    expect(viewer.locator(".figures").nth(1)).to_contain_text("of validation answers")
    pictures = viewer.locator(".chart canvas, .thumbnail canvas, canvas.map")
    last = [canvas.evaluate(DRAWN) for canvas in pictures.all()]
    assert len(last) == 6  # three charts, two heads, one of them large

    slider = viewer.get_by_role("slider", name="training step")
    slider.evaluate(SCRUB, "2")
    expect(when).to_have_text("step 40 of 200")
    slider.press("ArrowRight")
    expect(when).to_have_text("step 60 of 200")
    expect(page).to_have_url(re.compile("view=replay"))
    expect(page).to_have_url(re.compile("[?&]step=60"))
    early = [canvas.evaluate(DRAWN) for canvas in pictures.all()]
    assert all(before != after for before, after in zip(last, early, strict=True))

    viewer.locator(".inputs .option").nth(3).click()
    viewer.get_by_role("radio", name="decoder self-attention").check()
    viewer.get_by_title("layer 1, head 2").click()
    viewer.locator(".tile").nth(1).click()
    title = "Decoder self-attention, layer 1 of 1, head 2, training step 60"
    expect(viewer.locator(".title")).to_have_text(title)
    without = head_button(page, "decoder.1.2")
    without.click()
    expect(without).to_have_attribute("aria-pressed", "true")
    expect(page).to_have_url(re.compile("ablate=decoder.1.2"))
    expect(viewer.locator(".title")).to_have_text(title)
    viewer.get_by_role("button", name="Copy link").click()
    link = viewer.locator(".link").input_value()
    heading = viewer.locator("#attention-of").text_content()

    page.set_viewport_size(PHONE)
    reload(link)
    expect(viewer.locator(".title")).to_have_text(title)
    expect(viewer.locator("#attention-of")).to_have_text(heading)
    expect(viewer.locator(".inputs input").nth(3)).to_be_checked()
    expect(viewer.locator(".tile").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(without).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#attention-edited")).to_contain_text("without decoder.1.2 (zero)")

    viewer.get_by_role("button", name="Play").click()
    expect(when).to_have_text("step 200 of 200")
    viewer.get_by_role("radio", name="current decode").check()
    expect(viewer.locator("#attention-of")).to_contain_text("4 8 2 9 →")
    expect(viewer.locator("#attention-of")).to_contain_text("without decoder.1.2")


@pytest.mark.slow
def test_decode_ends_a_replay_and_shows_the_new_answer(page: Page):
    open_tab(page, "Train")
    page.get_by_role("button", name="cross-attention, layer 2, head 1", exact=False).click()
    expect(page.locator("#viewer .heading")).to_contain_text("answered by")
    page.get_by_role("textbox", name="Input").fill("1 2 3 4 5 6")
    page.locator("#ask").get_by_role("button", name="Decode").click()
    expect(page.locator("#viewer .heading")).to_contain_text("1 2 3 4 5 6 → 6 5 4 3 2 1 · decoded by")


@pytest.mark.slow
def test_maps_can_be_previewed_and_downloaded(empty_page: Page, address: str):
    page = empty_page
    page.goto(f"{address}?run={SHIPPED}&input=4+8+2+9&tab=attention")
    viewer = page.locator("#viewer")
    title = viewer.locator(".title")
    expect(title).to_contain_text("Cross-attention, layer 2 of 2")
    locked = title.text_content()
    viewer.get_by_title("layer 1, head 3").hover()
    expect(title).to_have_text("Cross-attention, layer 1 of 2, head 3")
    title.hover()
    expect(title).to_have_text(locked)

    viewer.get_by_title("layer 2, head 2").click()
    expect(title).to_have_text("Cross-attention, layer 2 of 2, head 2")
    viewer.get_by_role("button", name="Table").click()
    expect(viewer.locator("table").get_by_role("row")).to_have_count(6)  # a header and five steps
    for button, ending in (("png", ".png"), ("csv", ".csv")):
        with page.expect_download() as download:
            viewer.locator(f".{button}-button").click()
        name = "digits-reversal-shipped-after-625-steps-4-8-2-9-9-2-8-4-cross-attention-layer-2-of-2-head-2"
        assert download.value.suggested_filename == name + ending
