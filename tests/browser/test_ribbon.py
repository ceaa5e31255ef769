"""The ribbon in a real browser: which words light up, by mouse, touch and keys, and the files it is saved as."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from core.interpret.trained import Trained
from core.runs import DEFAULT_ROOT, Runs
from core.text.pieces import word_groups, word_names
from core.text.vocab import BOS, EOS
from tests.browser.chromium import (
    NOTHING_SIDEWAYS,
    PHONE,
    TWO_FRAMES,
    new_context,
    open_tab,
    press_quickly,
)
from tests.serving import SHIPPED, TRANSLATOR

LAPTOP = {"width": 1366, "height": 768}
ROWS = {"source": "above", "output": "below"}
LEAST = 0.05  # the smallest weight that gets a line
# How many lines of text each row of words takes; of more than one, the lines between the rows cross words.
LINES_OF_TEXT = "(rows) => rows.map((row) => new Set([...row.children].map((word) => word.offsetTop)).size)"
SENTENCES = (
    "The children are playing in the snow.",
    "My sister is older than me.",
    "I know where he lives.",
    "Do you want to drink something?",
    "We have lost our keys.",
    "It's raining again.",
)
DIGITS = ("4 8 2 9", "1 2 3", "1 1 1 1", "9 8 7 6 5 4 3 2 1 0")


@cache
def trained(run: str) -> Trained:
    return Runs(DEFAULT_ROOT)[run].trained()


def words_and_weights(run: str, text: str) -> tuple[list[str], list[str], dict[tuple[int, int], list[list[float]]]]:
    """Words of the input and of the output, and the weights between them by layer and head, from the model itself."""
    decoded = trained(run).decode(text)
    source, produced = decoded.source_labels, [step.produced for step in decoded.steps]
    groups = word_groups if decoded.has_subwords else lambda tokens: [range(at, at + 1) for at in range(len(tokens))]
    names = [word_names(tokens) if decoded.has_subwords else tokens for tokens in (source, produced)]
    columns, rows = (
        [group for name, group in zip(given, groups(tokens), strict=True) if name not in (BOS, EOS)]
        for given, tokens in zip(names, (source, produced), strict=True)
    )
    maps = decoded.maps.cross[:, 0].double()  # (L, H, T, S)
    weights = {
        (layer + 1, head + 1): [
            [float(maps[layer, head, list(row)][:, list(column)].sum(dim=1).mean()) for column in columns]
            for row in rows
        ]
        for layer in range(maps.shape[0])
        for head in range(maps.shape[1])
    }
    shown = [[name for name in given if name not in (BOS, EOS)] for given in names]
    return shown[0], shown[1], weights


def texts(words: Locator) -> list[str]:
    return [text.strip() for text in words.all_text_contents()]


def lit(ribbon: Locator, side: str) -> list[int]:
    words = ribbon.locator(f".{ROWS[side]} .word")
    return words.evaluate_all("(words) => words.flatMap(({ classList }, at) => (classList.contains('on') ? [at] : []))")


def lit_by_pointer(ribbon: Locator, side: str, at: int) -> dict[str, list[int]]:
    """Point at a word until it is lit, since the page may still move under the pointer, and return what is lit."""
    word = ribbon.locator(f".{ROWS[side]} .word").nth(at)
    found: dict[str, list[int]] = {}
    for _ in range(30):
        ribbon.page.mouse.move(0, 0)
        ribbon.page.evaluate(TWO_FRAMES)
        word.hover()
        ribbon.page.evaluate(TWO_FRAMES)
        found = {name: lit(ribbon, name) for name in ROWS}
        if at in found[side]:
            break
    return found


def decode(page: Page, text: str) -> None:
    """Decode an input, and wait for the ribbon of it."""
    page.locator("#input textarea").fill(text)
    page.locator("#decode").click()


@pytest.fixture(scope="module", params=[TRANSLATOR, SHIPPED])
def opened(request: pytest.FixtureRequest, tab: tuple[Page, list[str]], lab_with_shipped_runs: str) -> Iterator[tuple]:
    """A page on the tab Decode with one of the shipped runs, and the run's name."""
    context = new_context(tab[0].context.browser, viewport=LAPTOP, has_touch=True)
    page = context.new_page()
    page.clock.install()  # time passes as always, but a playback need not be waited for
    page.goto(f"{lab_with_shipped_runs}?tab=decode&run={request.param}")
    expect(page.locator("#answer .ribbon path").first).to_be_attached()
    yield page, request.param
    context.close()


@pytest.mark.parametrize("which", [slice(2), pytest.param(slice(2, None), marks=pytest.mark.slow)], ids=["two", "rest"])
def test_the_words_of_a_word_light_up_with_the_weights_of_the_map(opened: tuple[Page, str], which: slice):
    page, run = opened
    ribbon = page.locator("#answer .ribbon")
    for text in (SENTENCES if run == TRANSLATOR else DIGITS)[which]:
        source, output, weights = words_and_weights(run, text)
        decode(page, text)
        expect(ribbon.locator(".above .word")).to_have_text(source)
        expect(ribbon.locator(".below .word")).to_have_text(output)
        chosen = re.match(r"layer (\d+), head (\d+)", ribbon.locator("option").first.text_content() or "")
        assert chosen, text
        of_head = weights[int(chosen[1]), int(chosen[2])]
        lines = ribbon.locator("path").evaluate_all(
            "(lines) => lines.map(({ dataset }) => [dataset.row, dataset.column, dataset.weight].map(Number))"
        )
        expected = {(r, c): w for r, row in enumerate(of_head) for c, w in enumerate(row) if w >= LEAST + 1e-3}
        drawn = {(row, column): weight for row, column, weight in lines}
        assert {cell: drawn.get(cell) for cell in expected} == pytest.approx(expected, abs=2e-4), text
        assert all(of_head[row][column] > LEAST - 1e-3 for row, column in drawn), text
        for size in (LAPTOP, PHONE):
            page.set_viewport_size(size)
            for side, at in (("output", len(output) // 2), ("source", len(source) // 2)):
                partners = [c if side == "output" else r for r, c in drawn if (r if side == "output" else c) == at]
                other = "source" if side == "output" else "output"
                found = lit_by_pointer(ribbon, side, at)
                assert (found[side], found[other]) == ([at], sorted(partners)), (text, side, size)
            assert ribbon.locator(".words").evaluate_all(LINES_OF_TEXT) == [1, 1], (text, size)
            assert page.evaluate(NOTHING_SIDEWAYS)
        page.set_viewport_size(LAPTOP)


def test_the_arrow_keys_move_between_the_words(opened: tuple[Page, str]):
    page, run = opened
    if run != TRANSLATOR:
        pytest.skip("the same keys")
    ribbon = page.locator("#answer .ribbon")
    first = ribbon.locator(".above .word").first
    page.mouse.move(0, 0)
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(ribbon.locator(".above .word").nth(1)).to_be_focused()
    assert lit(ribbon, "source") == [1]
    page.keyboard.press("ArrowDown")
    word = ribbon.locator(".below .word:focus")
    expect(word).to_have_count(1)
    assert 1 in lit(ribbon, "source")
    expect(ribbon.locator(".readout")).to_contain_text("attends to")
    page.keyboard.press("Tab")
    expect(ribbon.locator(".word:focus")).to_have_count(0)  # one stop of Tab for all words
    assert lit(ribbon, "output") == []


def test_a_tap_holds_a_word_until_it_is_tapped_again(opened: tuple[Page, str]):
    page, _ = opened
    page.set_viewport_size(PHONE)
    word = page.locator("#answer .ribbon .below .word").first
    for pressed in ("true", "false"):
        word.tap()
        expect(word).to_have_attribute("aria-pressed", pressed)
    page.locator("#answer .ribbon .below .word").nth(1).tap()
    page.locator("#answer .ribbon .readout").tap()
    expect(page.locator("#answer .ribbon .below .word").nth(1)).to_have_class(re.compile(r"\bon\b"))
    page.set_viewport_size(LAPTOP)


def test_another_head_draws_other_lines_and_step_by_step_hides_what_comes_later(opened: tuple[Page, str]):
    page, run = opened
    ribbon = page.locator("#answer .ribbon")
    before = ribbon.locator("path").evaluate_all("(lines) => lines.map((line) => line.outerHTML)")
    ribbon.locator("select").select_option(label="mean of layer 1")
    expect(ribbon.locator("select")).to_have_value("1.mean")
    assert ribbon.locator("path").evaluate_all("(lines) => lines.map((line) => line.outerHTML)") != before
    text = SENTENCES[1] if run == TRANSLATOR else DIGITS[1]
    decode(page, text)
    expect(ribbon.locator(".above .word")).to_have_text(words_and_weights(run, text)[0])
    expect(ribbon.locator("select")).to_have_value("1.mean")  # the choice stays for other inputs
    page.set_viewport_size({"width": 320, "height": 700})
    page.wait_for_function("() => innerWidth === 320")
    hidden = ribbon.evaluate(  # at once: a busy browser may play it to its end before the next call
        """(ribbon) => {
            ribbon.querySelector(".play").click();
            return [...ribbon.querySelectorAll(".below .word")].map((word) => word.style.visibility === "hidden");
        }"""
    )
    assert hidden == [False, *[True] * (len(hidden) - 1)]
    page.clock.run_for(700 * (len(hidden) - 1))
    expect(ribbon.locator(".below .word").last).to_be_in_viewport(ratio=1)  # the row scrolls with what is played
    page.set_viewport_size(LAPTOP)
    page.clock.run_for(60_000)
    expect(ribbon.get_by_role("button", name="Step by step")).to_be_visible()
    expect(ribbon.locator(".below .word").last).to_have_css("visibility", "visible")


def test_the_ribbon_is_saved_as_png_and_svg(opened: tuple[Page, str], tmp_path: Path):
    page, _ = opened
    ribbon = page.locator("#answer .ribbon")
    for kind, starts in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as started:
            ribbon.get_by_role("button", name=kind).click()
        started.value.save_as(tmp_path / kind)
        content = (tmp_path / kind).read_bytes()
        assert content.startswith(starts)
    words = texts(ribbon.locator(".word"))
    assert all(f">{word}</text>" in content.decode() for word in words)
    assert content.count(b"<path") == ribbon.locator("path").count()


def test_the_bench_draws_a_translators_lines_and_its_maps_on_request(opened: tuple[Page, str]):
    page, run = opened
    open_tab(page, "Train")
    heads = page.locator("#bench-view .heads-panel")
    drawing = heads.get_by_label("What is drawn")
    expect(drawing).to_have_value("lines" if run == TRANSLATOR else "maps")
    for choice in ("lines", "maps"):
        drawing.select_option(choice)
        expect(heads.locator(".maps")).to_be_visible(visible=choice == "maps")
        expect(heads.locator(".lines")).to_be_visible(visible=choice == "lines")
        if choice == "lines":
            expect(heads.locator(".lines path").first).to_be_attached()
            heads.get_by_label("Input", exact=True).select_option(index=1)
            source = heads.get_by_label("Input", exact=True).locator("option").nth(1).text_content() or ""
            words = heads.locator(".lines .above .word")
            expect(words.last).to_have_text("." if run == TRANSLATOR else source.split()[-1])
            expect(words.first).to_have_text(source.split()[0])
    open_tab(page, "Decode")


def test_look_inside_draws_the_lines_of_the_open_head(opened: tuple[Page, str]):
    page, _ = opened
    open_tab(page, "Look inside")
    viewer = page.locator("#viewer")
    lines = viewer.locator(".lines path")
    expect(lines.first).to_be_attached()
    before = lines.evaluate_all("(lines) => lines.map((line) => line.outerHTML)")
    viewer.locator(".head-grid .thumbnail").first.click()
    expect(viewer.locator(".title")).to_contain_text("layer 1")
    assert lines.evaluate_all("(lines) => lines.map((line) => line.outerHTML)") != before
    viewer.get_by_role("radio", name="encoder self-attention").check()
    expect(viewer.locator(".lines")).to_be_hidden()
    open_tab(page, "Decode")


@pytest.mark.slow
def test_a_translation_of_ones_own_is_two_presses_away(tab: tuple[Page, list[str]], lab_with_shipped_runs: str):
    context = tab[0].context.browser.new_context(viewport=LAPTOP)  # of a visitor who has not taken the tour
    visitor = context.new_page()
    visitor.goto(lab_with_shipped_runs)
    expect(visitor.locator("#run-bar .run .title")).to_contain_text(SHIPPED)
    visitor.get_by_role("link", name="Translate a sentence").click()
    expect(visitor.locator("#answer .ribbon .below .word").first).to_be_visible()
    decode(visitor, "My sister is older than me.")
    ribbon = visitor.locator("#answer .ribbon")
    expect(ribbon.locator(".above .word")).to_have_text(["My", "sister", "is", "older", "than", "me", "."])
    found = lit_by_pointer(ribbon, "source", 1)["output"]
    assert found == [texts(ribbon.locator(".below .word")).index("Schwester")]
    context.close()


def test_each_of_several_sentences_shows_its_words(opened: tuple[Page, str]):
    page, run = opened
    if run != TRANSLATOR:
        pytest.skip("digits are no sentences")
    decode(page, "I have a dog. I know where he lives.")
    ribbon, words = page.locator("#answer .ribbon"), page.locator("#translations .pick")
    expect(words).to_have_count(2)
    press_quickly(page, words.nth(0), words.nth(1))
    for at, source in ((1, "I know where he lives ."), (0, "I have a dog .")):
        words.nth(at).click()
        expect(ribbon.locator(".above .word")).to_have_text(source.split())
        expect(words.nth(at)).to_have_attribute("aria-pressed", "true")
        expect(words.nth(1 - at)).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#translations .text")).to_have_text("Ich habe einen Hund. Ich weiß, wo er wohnt.")
