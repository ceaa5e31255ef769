"""The input of the tabs Decode and Look inside: read by another run, too long, and decoded again while a run trains."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from core.config import load_preset
from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.access import VisitorRuns
from tests.browser.chromium import DESKTOP, choose_run, new_context, open_tab, press_quickly, requests_held
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for
from ui.serving.launch import serve
from ui.tabs import decode as decode_tab

# Gradio's message, which depends on the moment at which its own connection ends.
ADD_TOAST = """() => {
  const toast = document.createElement("div");
  toast.className = "toast-body error";
  toast.textContent = "Error Connection to the server was lost. Attempting reconnection...";
  document.body.append(toast);
}"""


def test_an_input_that_the_next_run_cannot_read_becomes_an_example_and_a_long_one_is_explained(
    page: Page, letters: str
):
    open_tab(page, "Decode")
    field, message = page.get_by_role("textbox", name="Input"), page.locator("#decode-message")
    expect(page.locator("#answer .output .tile")).to_have_text(list("9284"))
    choose_run(page, letters)
    expect(field).to_have_value("a b a b a")
    expect(message).to_contain_text("“4 8 2 9” is not an input of letters. This is an example of its task.")
    expect(message).to_contain_text("Decoded with letters")
    expect(page).to_have_url(re.compile("input=a\\+b\\+a\\+b\\+a"))

    open_tab(page, "Look inside")
    expect(page.locator("#attention-of")).to_contain_text("a b a b a →")
    field.fill("a b " * 100)
    field.press("Enter")
    expect(message).to_contain_text("this model reads at most")
    expect(message).to_be_in_viewport()
    expect(page.locator("#viewer canvas.map")).to_be_hidden()
    field.fill("a b " * 600)  # nothing is cut off on the way
    field.press("Enter")
    expect(message).to_contain_text("2,400 characters; the maximum is 2,000")
    expect(page).to_have_url(re.compile("run="))
    expect(page).not_to_have_url(re.compile("input="))  # no server would open such an address again


@pytest.mark.parametrize("is_sent", [False, True])
def test_an_input_typed_before_the_page_has_opened_is_kept_and_decoded(empty_page: Page, address: str, is_sent: bool):
    with requests_held(empty_page):
        empty_page.goto(f"{address}?run={SHIPPED}&tab=decode&input=1+2+3")
        field = empty_page.get_by_role("textbox", name="Input")
        field.fill("9 8 7 6 5")
        if is_sent:
            field.press("Enter")
    expect(empty_page.locator("#answer .output .tile")).to_have_text(list("56789"))
    expect(field).to_have_value("9 8 7 6 5")
    expect(empty_page).to_have_url(re.compile(r"input=9\+8\+7\+6\+5"))


def test_the_former_answer_is_marked_while_another_input_is_typed(page: Page):
    open_tab(page, "Decode")
    field, answer = page.get_by_role("textbox", name="Input"), page.locator("#answer")
    expect(answer.locator(".verdict")).to_have_text("✓ correct")
    expect(answer.locator(".former-note")).to_be_hidden()
    field.fill("1 2 3")
    expect(answer.locator(".former-note")).to_have_text("Answer to the previous input")
    expect(answer.locator(".verdict")).to_be_hidden()
    field.fill("4 8 2 9")  # the answer fits again
    expect(answer.locator(".former-note")).to_be_hidden()
    expect(answer.locator(".verdict")).to_be_visible()
    field.fill("1 2 3")
    page.get_by_role("button", name="Decode", exact=True).click()
    expect(answer.locator(".output .tile")).to_have_text(list("321"))
    expect(answer.locator(".former-note")).to_be_hidden()
    page.locator("#examples button", has_text="4 8 2 9").click()
    expect(answer.locator(".output .tile")).to_have_text(list("9284"))
    expect(answer.locator(".former-note")).to_be_hidden()


def test_without_a_server_one_banner_says_so_and_buttons_look_disabled(tab: tuple[Page, list[str]], address: str):
    browser = tab[0].context.browser
    assert browser is not None
    context = new_context(browser, viewport=DESKTOP)
    page = context.new_page()
    page.clock.install()
    page.goto(f"{address}?run={SHIPPED}&input=4+8+2+9&tab=decode")
    expect(page.locator("#answer .verdict")).to_have_text("✓ correct")
    context.set_offline(True)
    page.clock.fast_forward(10_000)  # to the next call
    expect(page.locator("#run-bar .message-text")).to_contain_text("No connection to the server")
    expect(page.locator("#decode")).to_have_css("opacity", "0.5")
    page.evaluate(ADD_TOAST)
    expect(page.locator(".toast-body").last).to_be_attached()
    expect(page.locator(".toast-body:visible")).to_have_count(0)  # one would cover the banner
    page.get_by_role("textbox", name="Input").fill("1 2 3")
    expect(page.locator("#answer .former-note")).to_be_visible()
    expect(page.locator("#answer .verdict")).to_be_hidden()
    page.locator("#train").evaluate("(button) => button.click()")  # as the Enter key
    page.clock.fast_forward(2_000)
    context.set_offline(False)
    page.clock.fast_forward(60_000)
    message = page.locator("#run-bar .message")
    expect(message).to_contain_text("The connection was lost when Train was pressed")
    page.get_by_role("button", name="Close this message").click()
    page.clock.fast_forward(10_000)
    expect(message).to_be_hidden()
    expect(page.locator("#decode")).to_have_css("opacity", "1")
    context.close()


@pytest.mark.slow
def test_an_open_answer_follows_the_training_without_touching_what_is_being_typed(
    empty_page: Page, address: str, runs: Runs, hurry: Callable
):
    page = empty_page
    run = runs.start(load_preset("tiny").with_changes({"training.steps": 2_000, "training.evaluate_every": 10}))
    page.goto(f"{address}?run={run}&input=1+2+3&tab=decode")
    message, field = page.locator("#decode-message"), page.get_by_role("textbox", name="Input")
    expect(message).to_contain_text(re.compile(r"after [1-9]\d* training steps"))
    field.fill("4 5 6")
    field.press("End")

    def steps_of_weights() -> int:
        return int(re.search(r"after (\d+)( training)? steps", message.inner_text())[1])

    def see_newer_weights() -> None:
        before = steps_of_weights()
        wait_for(lambda: steps_of_weights() > before, seconds=60)

    see_newer_weights()
    field.press_sequentially(" 7")
    see_newer_weights()
    expect(field).to_have_value("4 5 6 7")
    expect(field).to_be_focused()
    field.press("Enter")
    expect(page).to_have_url(re.compile("input=4\\+5\\+6\\+7"))

    open_tab(page, "Look inside")
    message, large = page.locator("#attention-of"), page.locator("#viewer canvas.map")
    expect(message).to_contain_text("4 5 6 7 →")
    before = large.evaluate("(canvas) => canvas.toDataURL()")
    see_newer_weights()
    assert large.evaluate("(canvas) => canvas.toDataURL()") != before


def test_stop_can_be_pressed_only_while_there_is_something_to_stop(page: Page, runs: Runs, hurry: Callable):
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_disabled()
    run = runs.start(load_preset("tiny").with_changes({"training.steps": 60, "training.evaluate_every": 20}))
    choose_run(page, runs[run].title)
    expect(stop).to_be_enabled()
    hurry()
    expect(page.locator("#run-bar .status")).to_contain_text("finished")
    expect(stop).to_be_disabled()
    expect(page.get_by_role("button", name="Resume")).to_be_hidden()


def test_an_answer_to_the_former_input_that_comes_late_does_not_stay(
    empty_page: Page, address: str, runs: Runs, hurry: Callable, monkeypatch: pytest.MonkeyPatch
):
    page, decode, asked, release = empty_page, decode_tab.decode, Event(), Event()
    run = runs.start(load_preset("tiny").with_changes({"training.steps": 60, "training.evaluate_every": 20}))
    page.goto(f"{address}?run={run}&input=1+2+3&tab=decode")
    expect(page.locator("#decode-message")).to_contain_text("Decoded with")

    decoded: list[str] = []

    def slow_for_the_former(runs: VisitorRuns, run: str | None, text: str, *rest: Any, **options: Any) -> Any:
        if text == "1 2 3":
            asked.set()
            assert release.wait(60)
        decoded.append(text)
        return decode(runs, run, text, *rest, **options)

    monkeypatch.setattr(decode_tab, "decode", slow_for_the_former)
    hurry()
    assert asked.wait(60)  # the open answer is computed with the weights of the end
    page.get_by_role("textbox", name="Input").fill("4 5")
    page.get_by_role("textbox", name="Input").press("Enter")
    expect(page).to_have_url(re.compile("input=4\\+5"))
    release.set()
    wait_for(lambda: decoded[-1:] == ["4 5"] and "1 2 3" in decoded, seconds=60)  # again, after the late answer
    expect(page).to_have_url(re.compile("input=4\\+5"))
    expect(page.locator("#answer").get_by_role("group", name="input").get_by_role("button")).to_have_text(["4", "5"])


def test_of_two_examples_pressed_one_after_the_other_the_last_is_answered(empty_page: Page, address: str):
    page = empty_page
    page.goto(f"{address}?run={SHIPPED}&input=4+8+2+9&tab=decode")
    expect(page.locator("#answer .output .tile")).to_have_text(list("9284"))
    examples = page.locator("#examples")
    press_quickly(page, *(examples.get_by_role("button", name=text, exact=True) for text in ("1 2 3", "1 1 1 1")))
    expect(page.get_by_role("textbox", name="Input")).to_have_value("1 1 1 1")
    expect(page.locator("#answer .output .tile")).to_have_text(list("1111"))


@pytest.mark.slow
def test_a_page_keeps_its_run_and_input_when_its_server_is_restarted(tab: tuple[Page, list[str]], tmp_path: Path):
    browser = tab[0].context.browser
    assert browser is not None
    shutil.copytree(DEFAULT_ROOT / SHIPPED, tmp_path / SHIPPED)
    shutil.copytree(DEFAULT_ROOT / SHIPPED, tmp_path / "not-opened-first")
    runs = Runs(tmp_path)
    server, address = serve(runs)
    port = int(address.rstrip("/").rsplit(":", 1)[1])
    context = new_context(browser, viewport=DESKTOP)
    page = context.new_page()
    page.goto(f"{address}?run=not-opened-first&input=4+8+2+9&tab=decode")
    expect(page.locator("#answer .verdict")).to_have_text("✓ correct")
    server.close()
    expect(page.locator("#run-bar .message-text")).to_contain_text("No connection to the server")
    page.get_by_role("textbox", name="Input").fill("1 2 3")
    server, _ = serve(runs, server_port=port)
    expect(page.locator("#answer .output .tile")).to_have_text(list("321"))
    expect(page).to_have_url(re.compile("run=not-opened-first"))
    context.close()
    server.close()
    runs.close()
