"""The bench in a real browser: everything a person watches is in view, and moves while the model trains."""

import itertools
import re
import shutil
import time
from collections.abc import Callable, Iterator
from threading import Event

import pytest
from playwright.sync_api import Page, expect

from benchmarks.page_load.app_process import AppProcess, serve_app
from core.config import load_preset
from core.runs import Run, RunFolder
from core.server import Runs
from tests.browser.chromium import (
    COOKIES_BLOCKED,
    NOTHING_SIDEWAYS,
    PHONE,
    TWO_FRAMES,
    box_of,
    choose_preset,
    choose_run,
    open_settings,
    open_tab,
    press_tab,
)
from tests.serving import SHIPPED, TRANSLATOR
from tests.support.run_helpers import wait_for
from ui.tabs import decode

LAPTOP, SCREEN = {"width": 1366, "height": 768}, {"width": 1920, "height": 1080}
PAPER = {"width": 718, "height": 1000}  # A4 without its margins
XGA = {"width": 1024, "height": 768}
STEP = ".run_bar .steps"
# What is entirely inside the viewport, as text or as the pixels of a canvas, by name.
IN_VIEW = """() => {
  const inside = (node) => {
    const { left, right, top, bottom, width } = node.getBoundingClientRect();
    return node.checkVisibility() && width > 0 && left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
  };
  const all = (css) => [...document.querySelectorAll(css)].filter(inside);
  const bench = "#bench-view ";
  return {
    progress: all("#run-bar .steps").map((node) => node.textContent).join(),
    stop: all("#run-bar .stop:enabled").length,
    loss: all(bench + ".loss-now").map((node) => node.textContent).join(),
    lossChart: all(bench + ".loss-plot canvas").map((node) => node.toDataURL()).join(),
    accuracy: all(bench + ".accuracy-plot canvas").map((node) => node.toDataURL()).join(),
    answers: all(bench + ".answer").map((node) => node.innerText),
    weights: all(bench + ".answers-when").map((node) => node.textContent).join(),
    heads: all(bench + ".map canvas").map((node) => node.toDataURL()),
  };
}"""

# The rows of pixels of a chart in whose middle third every pixel is drawn, as that of a gridline.
ROWS_INKED_WITHOUT_GAP = """(canvas) => {
  const width = Math.floor(canvas.width / 3);
  const context = canvas.getContext("2d");
  return [...Array(canvas.height).keys()].filter((row) =>
    context.getImageData(width, row, width, 1).data.every((value, at) => at % 4 !== 3 || value > 0));
}"""
# Where the drawings of the panels are if they are 600 × 300 pixels, as on a wide screen.
DRAWN_WIDE = """() => {
  const boxOf = (node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const drawn = [...document.querySelectorAll("#bench-view .panels canvas")].filter((node) => node.checkVisibility());
  for (const canvas of drawn) {
    [canvas.width, canvas.height] = [600, 300];
    const sized = canvas.closest(".u-wrap") ? [canvas.closest(".u-wrap"), canvas.closest(".uplot")] : [canvas];
    for (const { style } of sized) Object.assign(style, { width: "600px", height: "300px" });
  }
  const about = (node) => ({ box: boxOf(node), panel: boxOf(node.closest(".panel")), isMap: !!node.closest(".map") });
  return drawn.map(about);
}"""
# Whether all maps of heads are at least so many pixels wide.
MAPS_OF_WIDTH = """(least) => {
  const maps = [...document.querySelectorAll("#bench-view .map canvas")];
  return maps.length === 8 && maps.every((map) => map.clientWidth >= least);
}"""

# The mean brightness of a canvas, 0 to 255.
BRIGHTNESS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.reduce((sum, value, at) => sum + (at % 4 < 3 ? value : 0), 0) / (0.75 * data.length);
}"""


@pytest.fixture(scope="module")
def laptop() -> Iterator[AppProcess]:
    """``python app.py`` as a person starts it: each run trains in a process of its own."""
    with serve_app(public=False) as app:
        yield app


def watch_training(page: Page, *, first: float | None, then: float) -> tuple[dict, dict]:
    """Press Train; return what is in view after ``first`` seconds, and what is when all of it has changed.

    Args:
        first: None waits until the first answers are in view, however slow the machine is.
        then: seconds for everything to change.
    """
    page.get_by_role("button", name="Train", exact=True).click()
    if first is None:
        expect(page.locator("#bench-view .answers-when")).to_have_text(re.compile("^weights of step [0-9]{1,2}$"))
    else:
        page.wait_for_timeout(1000 * first)
    before = page.evaluate(IN_VIEW)
    end = time.monotonic() + then
    while time.monotonic() < end:
        after = page.evaluate(IN_VIEW)
        changed = [name for name in before if name != "stop" and after[name] != before[name]]
        if len(changed) == len(before) - 1:
            return before, after
        page.wait_for_timeout(100)
    unchanged = [name for name in before if name != "stop" and after[name] == before[name]]
    pytest.fail(f"in view after {first} s: {before.keys() - unchanged}; unchanged for {then} s: {unchanged}")


def check_in_view(seen: dict) -> None:
    """Progress, loss, accuracy, three answers, four heads and Stop are in view."""
    assert seen["stop"] == 1
    assert re.search(r"\d", seen["progress"])
    assert re.search(r"\d", seen["loss"])
    assert seen["lossChart"]
    assert seen["accuracy"]
    assert len(seen["answers"]) >= 3
    assert len(seen["heads"]) >= 4


@pytest.mark.parametrize("preset", ["tiny", "digits-reversal"])
@pytest.mark.parametrize("size", [LAPTOP, SCREEN], ids=["1366 × 768", "1920 × 1080"])
@pytest.mark.slow
def test_one_second_after_train_everything_is_in_view_and_changes(
    empty_page: Page, laptop: AppProcess, preset: str, size: dict
):
    page = empty_page
    page.set_viewport_size(size)
    page.goto(laptop.address)
    choose_preset(page, preset)
    expect(page.locator("#summary")).to_contain_text("on this machine")  # the training time has been measured
    before, _ = watch_training(page, first=1, then=2)
    check_in_view(before)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-bar .status")).to_have_text("stopped")


def test_everything_watched_during_training_is_in_view_and_moves(page: Page, hurry: Callable):
    page.set_viewport_size(LAPTOP)
    open_tab(page, "Train")
    choose_preset(page, "tiny")
    open_settings(page, "Training")
    page.locator("#set-training-steps-input").fill("10000")  # it must not end before all has changed
    expect(page.locator("#section-training summary")).to_contain_text("10,000 steps")
    page.keyboard.press("Home")
    _, after = watch_training(page, first=None, then=60)
    check_in_view(after)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-bar .status")).to_have_text("stopped")
    expect(page.locator("#run-bar .stop:enabled")).to_have_count(0)  # nothing is left to stop


def test_a_run_that_starts_while_another_one_is_still_opening_stays_the_current_one(
    empty_page: Page, address: str, monkeypatch: pytest.MonkeyPatch
):
    opening, release, opened, examples_of = Event(), Event(), Event(), decode.examples_of
    asked = []

    def slow_second(run: Run) -> list[list[str]]:
        asked.append(run.name)
        if run.name != SHIPPED:
            opened.set()
        elif len(asked) == 2:  # the first ones are for the input
            opening.set()
            assert release.wait(60)
        return examples_of(run)

    monkeypatch.setattr(decode, "examples_of", slow_second)
    page = empty_page
    page.goto(address)
    title = page.locator("#run-bar .run .title")
    expect(title).to_contain_text(SHIPPED)
    choose_preset(page, "tiny")
    assert opening.wait(30)
    title.evaluate(
        """(title) => {
          window.titles = [];
          const record = new MutationObserver(() => titles.push(title.textContent));
          record.observe(title, { childList: true, subtree: true, characterData: true });
        }"""
    )
    page.get_by_role("button", name="Train", exact=True).click()
    expect(title).to_contain_text("tiny")
    release.set()
    wait_for(opened.is_set)  # the answer for the former run has come
    page.evaluate(TWO_FRAMES)
    titles = page.evaluate("titles")
    first = next(at for at, each in enumerate(titles) if "tiny" in each)
    assert set(titles[first:]) == {titles[first]}


def test_after_a_training_the_next_steps_are_one_press_away(seeds: list[str], page: Page):
    steps = page.locator("#bench-view .next-steps")
    expect(steps).to_be_hidden()  # the shipped run is not the visitor's
    choose_run(page, seeds[0])
    steps.get_by_role("button", name="Type your own").click()
    expect(page.locator("#input textarea")).to_be_focused()
    open_tab(page, "Train")
    steps.get_by_role("button", name="Teach it plurals").click()
    expect(page.locator("#summary")).to_contain_text("239,518 parameters")
    expect(page.locator("#preset-picker input:checked")).to_have_value("plurals")
    steps.get_by_role("button", name="Teach it plurals").click()  # it is open already
    steps.get_by_role("button", name="Take a head away").click()
    head = page.locator("#heads .cell").first
    expect(head.locator(".figure")).to_contain_text("%", timeout=60_000)
    head.click()
    expect(page.locator("#attention-edited")).to_contain_text("without")
    open_tab(page, "Train")
    page.locator("#train").click()
    expect(page.locator("#run-bar .run")).to_contain_text("plurals")


def test_on_a_phone_progress_loss_and_stop_are_in_view(page: Page):
    page.set_viewport_size(PHONE)
    open_tab(page, "Train")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#run-bar .stop:enabled")).to_be_visible()
    page.wait_for_function(f"() => (({IN_VIEW})()).lossChart && (({IN_VIEW})()).stop && (({IN_VIEW})()).progress")
    tabs = box_of(page.locator("#tabs .tab-wrapper"))
    assert tabs["y"] + tabs["height"] <= 150
    assert page.evaluate(NOTHING_SIDEWAYS)
    page.mouse.wheel(0, 600)  # the bar stays
    page.wait_for_function(f"() => window.scrollY > 300 && (({IN_VIEW})()).stop === 1")


def test_the_slider_moves_answers_heads_and_figures_together(page: Page):
    open_tab(page, "Train")
    expect(page.locator("#bench-view .answers-when")).to_have_text("weights of step 1,000")
    page.evaluate(TWO_FRAMES)  # maps are drawn in the frame after the texts
    last = page.evaluate(IN_VIEW)
    page.locator("#bench-view .scrubber").evaluate(
        "(slider) => { slider.value = 0; slider.dispatchEvent(new Event('input')); }"
    )
    expect(page.locator("#bench-view .answers-when")).to_have_text("weights of step 0")
    expect(page.locator("#bench-view .answer .mark.bad")).not_to_have_count(0)
    page.evaluate(TWO_FRAMES)
    first = page.evaluate(IN_VIEW)
    assert first["loss"] != last["loss"]
    assert first["answers"] != last["answers"]
    assert all(early != late for early, late in zip(first["heads"], last["heads"], strict=True))
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("#bench-view .answers-when")).to_have_text("weights of step 1,000")
    assert page.evaluate(IN_VIEW)["answers"] == last["answers"]


@pytest.mark.slow
def test_attention_has_the_colors_of_the_theme(page: Page):
    maps = page.locator("#bench-view .map canvas")
    expect(maps).to_have_count(8)
    page.evaluate(TWO_FRAMES)
    assert all(canvas.evaluate(BRIGHTNESS) > 128 for canvas in maps.all())  # most weights are small
    page.get_by_role("button", name="Switch between light and dark").click()
    page.evaluate(TWO_FRAMES)
    assert all(canvas.evaluate(BRIGHTNESS) < 128 for canvas in maps.all())
    page.get_by_role("button", name="Switch between light and dark").click()


@pytest.mark.slow
def test_what_decides_is_large_and_first_everywhere(translations: list[str], page: Page, runs: Runs):
    last = {name: column[-1] for name, column in runs[translations[0]].history.evaluations().items()}
    open_tab(page, "Train")
    bench, now = page.locator("#bench-view"), page.locator("#bench-view .accuracy-now")
    expect(now).to_have_text("100 %")  # the shipped run's exact match
    expect(bench.locator(".second-key")).to_be_hidden()
    choose_run(page, translations[0])
    result = f"exact match 0 %, BLEU {last['bleu']:.1f}"
    expect(now).to_have_text("0 %")
    expect(bench.locator(".quality-key")).to_have_text("whole answers")
    expect(bench.locator(".second-key")).to_have_text("BLEU")
    expect(page.locator("#run-bar .status")).to_have_text(f"finished, validation {result}")
    bench.locator(".accuracy-plot .chart-plot").focus()
    page.keyboard.press("ArrowLeft")
    expect(bench.locator(".accuracy-panel .reading")).to_have_text(
        re.compile(r"^step \d+: whole answers 0 %, BLEU \d+\.\d, tokens .* %, training pairs ")
    )
    bench.locator(".numbers > summary").click()
    columns = "step|train loss|validation loss|BLEU|chrF|token accuracy, training|exact match, training|token accuracy"
    columns += "|exact match|learning rate|gradient norm"
    expect(bench.locator("thead th:visible")).to_have_text(columns.split("|"))
    expect(bench.locator("tbody tr").last.locator("td")).to_have_count(11)
    bench.locator(".numbers > summary").click()
    page.locator("#run-bar .run").click()
    expect(page.locator("#run-bar .item", has_text=translations[0]).locator(".how")).to_have_text(result)
    page.keyboard.press("Escape")
    choose_run(page, runs[SHIPPED].title)
    expect(now).to_have_text("100 %")
    expect(bench.locator(".second-key")).to_be_hidden()


def test_a_translation_of_sentences_shows_bleu_and_chrf(lab_with_shipped_runs: str, empty_page: Page):
    empty_page.goto(f"{lab_with_shipped_runs}?run={TRANSLATOR}")
    bench = empty_page.locator("#bench-view")
    expect(bench.locator(".accuracy-now")).to_have_text("48.8")
    expect(bench.locator(".accuracy-title")).to_have_text("Translation quality")
    expect(bench.locator(".quality-key")).to_have_text("BLEU")
    expect(bench.locator(".second-key")).to_have_text("chrF")
    expect(empty_page.locator("#run-bar .status")).to_have_text("finished, validation BLEU 48.8")


def test_the_heads_have_the_most_room(page: Page):
    open_tab(page, "Train")
    for size, least in ((LAPTOP, 96), (SCREEN, 150), (XGA, 80), (PHONE, 60)):
        page.set_viewport_size(size)
        page.wait_for_function(MAPS_OF_WIDTH, arg=least)
        page.evaluate(TWO_FRAMES)  # charts are drawn again
        names = ("heads", "loss", "accuracy", "answers")
        boxes = {name: box_of(page.locator(f"#bench-view .{name}-panel")) for name in names}
        area = {name: box["width"] * box["height"] for name, box in boxes.items() if box}
        if size is not PHONE:  # which shows one under the other
            assert area["answers"] < area["heads"] / 3
        for name in ("loss", "accuracy"):
            box, plot = boxes[name], box_of(page.locator(f"#bench-view .{name}-plot canvas"))
            assert box["y"] + box["height"] - plot["y"] - plot["height"] <= 12  # nothing blank under a chart


def test_words_of_the_field_are_explained_where_they_stand(page: Page):
    open_tab(page, "Train")
    for place, says in {
        ".accuracy-now": "whole answers that are correct",
        ".accuracy-panel .keys [data-term=teacher-forced]": "reads the reference",
        ".loss-now": "negative log probability",
    }.items():
        word = page.locator(f"#bench-view {place}")
        word.hover()
        expect(word).to_have_attribute("title", re.compile(f"{says}.*\n.+"))
    open_tab(page, "Decode")
    word = page.locator("#answer .candidate .token", has_text="<PAD>").first
    word.hover()
    expect(word).to_have_attribute("title", re.compile("A mask hides it"))
    word = page.locator("#decode-columns").get_by_text("beam", exact=True)  # an element that is a word of the glossary
    word.hover()
    expect(word).to_have_attribute("title", re.compile("as many as the beam is wide"))


def test_the_charts_name_their_axis_and_show_values_in_place_of_the_legend(page: Page):
    open_tab(page, "Train")
    chart, panel = page.locator("#bench-view .loss-plot .chart-plot"), page.locator("#bench-view .loss-panel")
    keys = box_of(panel.locator(".keys"))
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(panel.locator(".chart-announced")).to_have_text(re.compile("^training step "))
    expect(panel.locator(".reading")).to_have_text(re.compile("^step "))
    reading = box_of(panel.locator(".reading"))
    assert (reading["x"], reading["y"]) == (keys["x"], keys["y"])


@pytest.mark.slow
def test_any_block_layer_and_input_can_be_watched_and_a_head_opens(page: Page):
    open_tab(page, "Train")
    maps = page.locator("#bench-view .map")
    expect(maps).to_have_count(8)
    page.get_by_label("Attention block").select_option("all blocks")
    expect(maps).to_have_count(24)
    page.get_by_label("Attention block").select_option("encoder self-attention")
    page.get_by_label("Layer", exact=True).select_option("layer 2")
    expect(maps).to_have_count(4)
    page.locator("#bench-view").get_by_label("Input").select_option(index=1)
    expect(page.locator("#bench-view .input option:checked")).to_have_text("3 3 7 4")
    expect(page.locator("#bench-view .pair-text")).to_have_text("→ 4 7 3 3")
    page.get_by_role("button", name="encoder self-attention, layer 2, head 3: open").click()
    expect(page.locator("#viewer .title")).to_contain_text("Encoder self-attention, layer 2 of 2, head 3")


def test_a_map_opened_by_keyboard_has_the_focus_and_each_tab_keeps_its_scroll(page: Page):
    page.set_viewport_size(LAPTOP)
    open_tab(page, "Train")
    page.locator("#bench-view .map").nth(5).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#viewer .title")).to_contain_text("layer 2 of 2, head 2")
    expect(page.locator("#viewer canvas.map")).to_be_focused()
    page.evaluate("() => scrollTo({ top: 400, behavior: 'instant' })")
    page.wait_for_function("() => scrollY === 400")
    press_tab(page, "Train")
    page.wait_for_function("() => scrollY === 0")
    expect(page.locator("#bench-view .loss-panel")).to_be_in_viewport(ratio=1)
    press_tab(page, "Look inside")
    page.wait_for_function("() => scrollY === 400")
    page.locator("#input textarea").evaluate("(input) => input.scrollIntoView({ block: 'start', behavior: 'instant' })")
    tabs, field = box_of(page.locator("#tabs .tab-wrapper")), box_of(page.locator("#input textarea"))
    assert field["y"] >= tabs["y"] + tabs["height"]


def test_a_map_pressed_during_training_opens_with_its_arithmetic(page: Page, hurry: Callable):
    open_tab(page, "Train")
    choose_preset(page, "tiny")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#bench-view .answers-when")).to_have_text(re.compile(r"^weights of step [1-9]\d*$"))
    page.locator("#bench-view .map").first.click()
    expect(page.locator("#viewer .title")).to_contain_text("training step")
    expect(page.locator("#viewer .story-body")).to_be_visible()
    hurry()


def test_no_gridline_strikes_through_the_text_of_an_empty_chart(page: Page, runs: Runs):
    RunFolder.create(runs.root, load_preset("tiny"), name="not-begun", status="stopped")
    choose_run(page, runs["not-begun"].title)
    expect(page.locator("#bench-view .answers-when")).to_be_empty()
    page.wait_for_function(TWO_FRAMES)
    assert page.locator("#bench-view .loss-plot canvas").evaluate(ROWS_INKED_WITHOUT_GAP) == []
    choose_run(page, SHIPPED)
    page.wait_for_function(
        f"() => ({ROWS_INKED_WITHOUT_GAP})(document.querySelector('#bench-view .loss-plot canvas')).length"
    )


def test_what_was_drawn_for_a_wide_screen_fits_on_paper(page: Page):
    page.wait_for_function("() => [...document.styleSheets].some((sheet) => sheet.href?.includes('later.css'))")
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    page.wait_for_function(TWO_FRAMES)  # what this draws again, paper does not
    drawn = page.evaluate(DRAWN_WIDE)
    page.emulate_media(media="null")
    assert len(drawn) >= 10
    for each in drawn:
        left, top, right, bottom = each["box"]
        within = each["panel"]
        inside = (left >= within[0], top >= within[1], right <= within[2], bottom <= within[3])
        assert all(inside), each
        assert (right - left) / (bottom - top) == pytest.approx(2, abs=0.1)
    maps = [each["box"] for each in drawn if each["isMap"]]
    for one, other in itertools.combinations(maps, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_a_link_to_a_run_that_is_not_there_says_so(empty_page: Page, address: str):
    empty_page.goto(f"{address}?run=no-such-run&tab=train")
    expect(empty_page.locator("#run-bar .message-text")).to_contain_text("There is no run “no-such-run” here")
    expect(empty_page.locator("#run-bar .title")).to_have_text("Choose a run")  # and not another one
    empty_page.get_by_role("button", name="Choose a run").last.click()
    empty_page.locator("#run-bar .item", has_text=SHIPPED).click()
    expect(empty_page.locator("#bench-view .answer")).to_have_count(4)


def test_a_link_to_a_head_and_a_preset_that_are_not_there_says_so(empty_page: Page, address: str):
    empty_page.goto(f"{address}?tab=attention&block=cross&layer=9&head=77&preset=nope")
    said = empty_page.locator("#run-bar .message-text")
    expect(said).to_contain_text("head=77 is not in this model, which has 2 layers of 4 heads in block cross")
    expect(said).to_contain_text("preset='nope' is not one of the presets")
    expect(empty_page).not_to_have_url(re.compile("nope|77"))


def test_a_link_to_a_preset_opens_the_form_with_it_and_a_reload_keeps_a_later_choice(empty_page: Page, address: str):
    picked = empty_page.locator("#preset-picker input:checked")
    empty_page.goto(f"{address}?preset=digits-reversal-fast")
    expect(picked).to_have_value("digits-reversal-fast")
    expect(empty_page.locator("#run-bar .message")).to_be_hidden()
    expect(empty_page).not_to_have_url(re.compile("preset"))
    choose_preset(empty_page, "digits-reversal")
    empty_page.reload()
    expect(picked).to_have_value("digits-reversal")


def test_a_run_deleted_elsewhere_is_closed_with_its_title(page: Page, runs: Runs):
    name = "deleted-elsewhere"
    shutil.copytree(runs[SHIPPED].folder.path, runs.root / name)
    folder = RunFolder(runs.root, name)
    folder.write_info(folder.read_info().model_copy(update={"shipped": False}))
    runs.rename(name, "日本語 😀")
    choose_run(page, "日本語 😀")
    open_tab(page, "Look inside")
    expect(page.locator("#attention-of")).to_contain_text("日本語 😀")
    runs.delete(name)
    expect(page.locator("#run-bar .message-text")).to_have_text("The run “日本語 😀” was deleted.")
    expect(page.locator("#run-bar .title")).to_have_text("Choose a run")
    expect(page.locator("#run-bar .status")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("run="))
    expect(page.locator("#viewer")).to_contain_text("Nothing decoded yet")
    open_tab(page, "Report")
    expect(page.locator("#report-message")).to_contain_text("No run is chosen")
    expect(page.locator(".toast-body")).to_have_count(0)


@pytest.mark.slow
def test_a_tab_pressed_while_the_page_loads_stays_open(empty_page: Page, address: str):
    empty_page.goto(address, wait_until="commit")
    tab = empty_page.get_by_role("tab", name="Compare")
    tab.click()
    expect(empty_page.locator("#decode-message")).to_contain_text("Decoded with")  # the page has loaded
    expect(tab).to_have_attribute("aria-selected", "true")


def test_back_and_forward_move_between_the_tabs_that_were_open(empty_page: Page, address: str):
    empty_page.goto(address, wait_until="commit")
    expect(empty_page.locator("#decode-message")).to_contain_text("Decoded with")  # the page has loaded
    for name in ("Decode", "Compare"):
        open_tab(empty_page, name)
        expect(empty_page).to_have_url(re.compile(f"tab={name.lower()}"))
    for move, name in (
        (empty_page.go_back, "Decode"),
        (empty_page.go_back, "Train"),
        (empty_page.go_forward, "Decode"),
    ):
        move()
        expect(empty_page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")
        expect(empty_page).to_have_url(re.compile(f"tab={name.lower()}"))
    expect(empty_page.locator("#run-bar .title")).not_to_have_text("Choose a run")


def test_runs_are_found_by_search_and_renamed_in_place(page: Page, runs: Runs, reload: Callable):
    short = load_preset("tiny").with_changes({"training.steps": 41})
    name = runs.start(short)
    wait_for(lambda: runs[name].info.status == "finished", seconds=60)
    page.locator("#run-bar .run").click()
    menu = page.get_by_role("dialog", name="Runs")
    title = runs[name].title
    assert re.fullmatch("tiny [0-9]+", title)
    expect(menu.locator(".item").first).to_contain_text(title)  # the latest first
    expect(menu.locator(".item").first.locator(".what")).to_have_text("reverse 2–5 digits")
    tasks = menu.get_by_role("combobox", name="Task")
    tasks.select_option("reverse 3–10 digits")
    expect(menu.locator(".item", has_text=SHIPPED)).to_have_count(1)
    expect(menu.locator(".item", has_text=title)).to_have_count(0)
    tasks.select_option("All tasks")
    menu.get_by_role("searchbox").fill("reverse 2–5")
    expect(menu.locator(".item", has_text="reverse 3–10 digits")).to_have_count(0)
    menu.locator(".item", has_text=title).click()
    expect(page.locator("#run-bar .run .title")).to_have_text(title)
    expect(page.locator("#run-bar .run .task")).to_have_text("reverse 2–5 digits")
    page.locator("#run-bar .run").click()
    field = menu.get_by_label("Name", exact=True)
    field.fill("x" * 75)
    expect(menu.locator(".rename-rule")).to_have_text("At most 60 characters; this has 75")
    menu.get_by_role("button", name="Rename").click()
    expect(menu.locator(".outcome")).to_be_empty()  # the rule says it
    expect(field).to_have_value("x" * 75)  # nothing is cut off
    field.fill("My first run")
    menu.get_by_role("button", name="Rename").click()
    expect(page.locator("#run-bar .run .title")).to_have_text("My first run")
    reload()
    expect(page.locator("#run-bar .run .title")).to_have_text("My first run")
    page.locator("#run-bar .run").click()
    field.fill("")
    menu.get_by_role("button", name="Rename").click()
    expect(menu.locator(".outcome")).to_have_text("The run has its first name again.")


@pytest.mark.slow
def test_train_pressed_while_a_preset_opens_trains_that_preset(page: Page, runs: Runs):
    open_tab(page, "Train")
    choose_preset(page, "digits-reversal")
    page.evaluate("""() => {
      document.querySelector("#preset-picker input[value=tiny]").click();
      document.querySelector("#train").click();
    }""")
    expect(page.locator("#run-bar .run .title")).to_contain_text("tiny")
    assert [runs[live.folder.name].preset.name for live in runs.active()] == ["tiny"]
    expect(page.locator("#train-problem .notice")).to_be_hidden()


@pytest.mark.slow
def test_a_link_opens_without_the_tour(tab: tuple[Page, list[str]], address: str):
    context = tab[0].context.browser.new_context(viewport=LAPTOP)
    visitor = context.new_page()
    visitor.goto(f"{address}?run={SHIPPED}&tab=attention")
    expect(visitor.locator("#viewer .title")).to_contain_text("Cross-attention, layer 2 of 2")
    open_tab(visitor, "Train")
    expect(visitor.locator("#bench-view .map")).to_have_count(8)
    expect(visitor.locator("#bench-view .tour-offer")).to_be_hidden()
    context.close()


@pytest.mark.slow
def test_on_a_phone_the_menu_of_runs_covers_train(page: Page):
    page.set_viewport_size({"width": 360, "height": 740})
    page.locator("#run-bar .run").click()
    dialog = page.get_by_role("dialog", name="Runs")
    expect(dialog.locator(".item").first).to_be_visible()  # the menu grows when the list arrives
    menu = box_of(dialog)
    train = box_of(page.locator("#train"))
    page.evaluate("by => scrollBy({ top: by, behavior: 'instant' })", train["y"] - menu["y"] - 10)  # the bar stays
    train = box_of(page.locator("#train"))
    assert menu["y"] < train["y"] < train["y"] + train["height"] < menu["y"] + menu["height"]
    middle = [train["x"] + train["width"] / 2, train["y"] + train["height"] / 2]
    assert page.evaluate("([x, y]) => document.elementFromPoint(x, y).closest('.menu') !== null", middle)
    dialog.get_by_role("button", name="Tour of the page").click()  # the bar has no room for it
    expect(dialog).to_be_hidden()
    for number in range(1, 6):
        card = page.get_by_role("dialog", name=re.compile(f"{number} of 5"))
        expect(card.get_by_role("button").last).to_be_focused()
        box = box_of(card)
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("#run-bar .run")).to_be_focused()


def test_training_of_more_than_ten_minutes_asks_first(page: Page, runs: Runs):
    open_tab(page, "Train")
    choose_preset(page, "tiny")
    open_settings(page, "Training")
    page.get_by_label("steps", exact=True).fill("1000000")
    expect(page.locator("#summary")).to_contain_text("training.steps 400 → 1000000")
    expect(page.locator("#summary")).to_contain_text(re.compile("min|h"))
    page.get_by_role("button", name="Train", exact=True).click()
    question = page.locator("#train-question")
    expect(question).to_contain_text("Training takes")
    assert not runs.active()
    question.get_by_role("button", name="Cancel").click()
    expect(question).to_be_hidden()
    assert not runs.active()


def test_the_first_visit_offers_a_tour_once(tab: tuple[Page, list[str]], address: str):
    context = tab[0].context.browser.new_context(viewport=LAPTOP)
    visitor = context.new_page()
    visitor.route(  # the script may come last, when the page has put its tab in the address already
        "**/tour.js", lambda route: (visitor.wait_for_url("**/?*tab=*"), route.continue_())
    )
    visitor.goto(address)
    card, start = visitor.get_by_role("dialog"), visitor.get_by_role("button", name="Start the tour")
    expect(start).to_be_visible()
    before = box_of(start)
    expect(visitor.locator("#bench-view .map")).to_have_count(8)
    expect(visitor.locator("#summary")).to_contain_text("on this machine")
    assert box_of(start) == before  # nothing moves under the pointer while the page loads
    expect(start).to_be_in_viewport(ratio=1)
    expect(card).to_have_count(0)  # the offer covers nothing
    start.click()
    for stop in ("1 of 5", "2 of 5", "3 of 5", "4 of 5", "5 of 5"):
        expect(card).to_contain_text(stop)
        box = box_of(card)
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= LAPTOP["width"]
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= LAPTOP["height"]
        card.get_by_role("button", name=re.compile("Next|Done")).click()
    expect(card).to_have_count(0)
    tour = visitor.get_by_role("button", name="Tour", exact=True)
    expect(tour).to_be_focused()  # the offer has no button any more
    visitor.goto(address)
    expect(visitor.locator("#run-bar .run .title")).to_contain_text("digits-reversal")
    expect(visitor.locator("#bench-view .map")).to_have_count(8)
    expect(start).to_be_hidden()
    tour.press("Enter")
    expect(card).to_contain_text("1 of 5")
    visitor.keyboard.press("Escape")
    expect(tour).to_be_focused()
    context.close()


def test_a_browser_that_keeps_nothing_opens_trains_and_decodes(tab: tuple[Page, list[str]], address: str):
    context = tab[0].context.browser.new_context(viewport=LAPTOP)
    context.add_init_script(COOKIES_BLOCKED)
    visitor = context.new_page()
    errors: list[str] = []
    visitor.on("pageerror", lambda error: errors.append(str(error)))
    visitor.goto(address)
    visitor.get_by_role("button", name="Start the tour").click()
    visitor.get_by_role("button", name="Skip").click()
    expect(visitor.locator("#bench-view .tour-offer")).to_be_hidden()  # the page remembers it until it is left
    visitor.get_by_role("button", name="Switch between light and dark").click()
    choose_preset(visitor, "tiny")
    visitor.get_by_role("button", name="Train", exact=True).click()
    expect(visitor.locator("#run-bar .status")).to_contain_text("finished", timeout=60_000)
    open_tab(visitor, "Decode")
    visitor.get_by_role("textbox", name="Input").fill("1 2 3")
    visitor.get_by_role("button", name="Decode", exact=True).click()
    expect(visitor.locator("#answer .output .tile")).to_have_count(3)
    open_tab(visitor, "Learn")
    expect(visitor.locator("#lesson article:visible .title")).not_to_be_empty()
    visitor.reload()
    expect(visitor.locator("#lesson article:visible .title")).not_to_be_empty()
    assert errors == []
    context.close()
