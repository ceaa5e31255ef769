"""The tab Look inside: the model as a map, and how a cell came about, in a real browser."""

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.chromium import DESKTOP, NOTHING_SIDEWAYS, box_of, choose_run, new_context, open_tab
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for

LAPTOP, PHONE = {"width": 1366, "height": 768}, {"width": 390, "height": 844}
IN_VIEW = "(node) => { const box = node.getBoundingClientRect(); return box.top >= 0 && box.top < innerHeight }"


@pytest.fixture
def viewer(empty_page: Page, address: str, request: pytest.FixtureRequest) -> Locator:
    """The viewer with 4 8 2 9 decoded by the shipped run."""
    empty_page.set_viewport_size(getattr(request, "param", LAPTOP))
    empty_page.goto(f"{address}?run={SHIPPED}&input=4+8+2+9&tab=attention&block=cross&layer=2&head=3")
    viewer = empty_page.locator("#viewer")
    expect(viewer.locator(".story-say")).to_contain_text("To write “9”, having read “<BOS>”, this head takes")
    return viewer


def press_cell(viewer: Locator, row: int, column: int) -> None:
    """Press a cell of the large map, with a pointer."""
    size = viewer.evaluate(
        """(viewer, [rows, columns]) => {
            const map = viewer.querySelector("canvas.map");
            const cell = (map.clientWidth - 2) / columns;
            return { cell, head: map.clientHeight - 2 - rows * cell };
        }""",
        [5, 6],
    )
    spot = {"x": (column + 0.5) * size["cell"], "y": size["head"] + (row + 0.5) * size["cell"]}
    viewer.locator("canvas.map").click(position=spot)


def test_a_cell_opens_by_pointer_key_and_link(viewer, reload):
    page = viewer.page
    press_cell(viewer, 1, 3)
    expect(viewer.locator(".story-say")).to_contain_text("To write “2”, having read “9”, this head takes")
    expect(viewer.locator(".story-of")).to_have_text("cross-attention, layer 2, head 3 · row 2, column 4")
    expect(viewer.locator(".story-steps h4 b")).to_have_text(
        ["Score", "Softmax", "Values", "Back into the stream", "The rest of the layer", "The answer"]
    )
    expect(viewer.locator(".key-bar.on")).to_contain_text("2")
    page.set_viewport_size({"width": 320, "height": 700})
    assert viewer.locator(".bars").evaluate("(bars) => bars.scrollWidth <= bars.clientWidth")
    page.set_viewport_size(DESKTOP)
    page.wait_for_url("**row=2&column=4*")
    reload()
    expect(viewer.locator(".story-say")).to_contain_text("To write “2”, having read “9”")
    viewer.locator("canvas.map").focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(viewer.locator(".story-of")).to_have_text("cross-attention, layer 2, head 3 · row 3, column 5")


@pytest.mark.slow
def test_a_model_without_attention_has_no_heads(empty_page: Page, address: str, without_attention: str):
    page = empty_page
    page.goto(f"{address}?run={without_attention}&input=4+8+2+9&tab=attention")
    expect(page.locator("#viewer .empty")).to_contain_text("This model has no attention heads")
    expect(page.locator("#viewer .map")).to_be_hidden()
    expect(page.locator("#measure-heads")).to_be_hidden()
    expect(page.locator("#why .result")).to_contain_text("integrated gradients")
    page.locator("#viewer").get_by_role("radio", name="training replay").check()
    expect(page.locator("#viewer .empty")).to_contain_text("This model has no attention heads")
    page.get_by_role("tab", name="Decode").click()
    expect(page.locator("#answer tbody tr").first).to_be_visible()
    expect(page.locator("#answer .inspect")).to_have_count(0)
    choose_run(page, SHIPPED)
    expect(page.locator("#answer .inspect").first).to_be_visible()
    page.get_by_role("tab", name="Look inside").click()
    page.locator("#viewer").get_by_role("radio", name="current decode").check()
    expect(page.locator("#viewer canvas.map")).to_be_visible()
    expect(page.locator("#measure-heads")).to_be_visible()
    page.locator("#heads .cell").first.click()
    expect(page.locator("#decode-message")).to_contain_text("without")


def test_once_the_page_is_open_a_tab_needs_no_further_script_and_nothing_is_drawn(chromium: Browser, address: str):
    context = new_context(chromium)  # with an empty cache
    context.add_init_script(
        """window.frames_asked = 0;
        const ask = requestAnimationFrame;
        window.requestAnimationFrame = (draw) => { window.frames_asked += 1; return ask(draw); };"""
    )
    page = context.new_page()
    page.goto(f"{address}?run={SHIPPED}")
    page.wait_for_function(
        """() => {
          const later = document.querySelector('meta[name="later-scripts"]').content.split(" ");
          const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
          return later.every((each) => loaded.some((name) => name.endsWith(each)));
        }"""
    )
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    open_tab(page, "Look inside")
    expect(page.locator("#viewer .story-say")).to_contain_text("this head takes")
    assert [url for url in requested if "/lab/" in url and url.endswith((".js", ".css"))] == []
    wait_for(
        lambda: page.evaluate(
            """async () => {
              const before = window.frames_asked;
              await new Promise((done) => setTimeout(done, 200));
              return window.frames_asked === before;
            }"""
        )
    )
    context.close()


def test_the_numbers_multiply_out(viewer):
    viewer.get_by_role("button", name="Numbers").click()
    rows = viewer.locator(".story-steps .step").first.locator("tr")
    expect(rows).to_have_count(3)
    query, key, products = (
        [float(cell) for cell in rows.nth(at).locator("td").all_inner_texts()[:16]] for at in range(3)
    )
    for q, k, product in zip(query, key, products, strict=True):
        assert q * k == pytest.approx(product, rel=0.02, abs=1e-3)  # shown with three digits
    total = float(rows.nth(2).locator("td").last.inner_text().removeprefix("Σ = "))
    assert sum(products) == pytest.approx(total, rel=0.01)
    viewer.get_by_role("button", name="Numbers").click()
    expect(viewer.locator(".story-steps canvas.strip").first).to_be_visible()


@pytest.mark.slow
def test_the_model_map_opens_attention_and_every_other_part(viewer, reload):
    page, maps = viewer.page, viewer.locator(".large")
    left = box_of(maps)["x"]
    viewer.locator(".model").evaluate("(model) => (model.hidden = true)")  # as before its parts are known
    assert box_of(maps)["x"] == left
    viewer.locator(".model").evaluate("(model) => (model.hidden = false)")
    feed_forward = viewer.get_by_role("button", name="Feed-forward, encoder layer 2")
    feed_forward.click()
    expect(viewer.locator(".story-title")).to_have_text("Feed-forward, encoder layer 2")
    expect(feed_forward).to_have_attribute("aria-current", "true")
    page.wait_for_url("**part=encoder.2.feed-forward*")
    reload()
    expect(viewer.locator(".story-title")).to_have_text("Feed-forward, encoder layer 2")
    viewer.get_by_role("button", name="+ Positions, encoder").click()
    expect(viewer.locator(".position-maps canvas")).to_have_count(4)
    expect(viewer.locator(".heat td").first).to_have_text("1.00")
    viewer.get_by_role("button", name="Linear, softmax, decoder").click()
    expect(viewer.locator(".answers .chip.win").first).to_contain_text("9")
    viewer.get_by_role("button", name="Self-attention, encoder layer 1", exact=True).click()
    expect(viewer.locator(".title")).to_contain_text("Encoder self-attention, layer 1 of 2")
    expect(viewer.locator(".story-say")).to_contain_text("“<BOS>” takes")
    expect(viewer.locator(".story-steps h4 b").last).to_have_text("Next")


@pytest.mark.slow
@pytest.mark.parametrize("viewer", [PHONE], indirect=True)
def test_on_a_phone_a_pressed_cell_brings_its_story_into_view(viewer):
    press_cell(viewer, 2, 2)
    story = viewer.locator(".story")
    expect(story).to_contain_text("row 3, column 3")
    assert story.evaluate(IN_VIEW)
    assert viewer.page.evaluate(NOTHING_SIDEWAYS)


@pytest.mark.slow
def test_without_the_head_the_answer_changes_as_ablation_says(viewer):
    page = viewer.page
    page.locator("#heads button[title='cross.2.3']").click()
    expect(viewer.locator(".story .replaced")).to_have_text("The output used is not this sum: the head is ablated.")
    expect(viewer.locator(".story-steps .step").last).to_contain_text("This head is ablated already.")
    expect(viewer).to_contain_text("This head is ablated, so nothing of this reaches the model.")


def test_why_this_answer_is_explained_four_ways(viewer):
    page = viewer.page
    why = page.locator("#why")
    expect(why.locator(".say")).to_contain_text(re.compile("Why 9[?] Integrated gradients name “.+” .+ [(]1.00[)]"))
    first = re.search("name “(.+?)” of the input", why.locator(".say").inner_text())[1]
    largest = why.get_by_role("region", name="Tokens of the input").locator("tbody tr").first.locator("td")
    columns = why.get_by_role("region", name="Tokens of the input").locator("thead th").all_inner_texts()[1:]
    assert dict(zip(largest.all_inner_texts(), columns, strict=True))["1.00"] == first  # as the table says
    why.get_by_role("radio", name="which head or layer adds to it").check()
    expect(why.locator(".say")).to_contain_text("Why 9? The logit is")
    expect(why.locator(".contributions button").first).to_be_visible()
    why.get_by_label("token to compare with", exact=True).select_option("2")  # one that is not among the likely ones
    expect(why.locator(".say")).to_contain_text("Why 9, not 2?")
    expect(why.get_by_label("another token to compare with")).to_be_hidden()  # all are in the list
    why.get_by_role("radio", name="2", exact=True).check()
    expect(why.locator(".say")).to_contain_text("Why 2?")
    why.get_by_label("token to compare with", exact=True).select_option("9")
    expect(why.locator(".say")).to_contain_text("Why 2, not 9?")
    why.get_by_role("radio", name="from which layer on it can be read").check()
    expect(why.locator(".say")).to_contain_text("It is the most likely token from")
    expect(why.locator(".answer-line").last).to_have_text("9 2 8 4 <EOS>")
    why.get_by_role("radio", name="which tokens it rests on").check()
    expect(why.get_by_role("region", name="Tokens of the input")).to_contain_text("integrated gradients")
    why.get_by_role("radio", name="what brings it back on a changed input").check()
    expect(why.locator(".say")).to_contain_text("the logit difference falls from")
    why.get_by_label("token to change").select_option("1: 4")
    expect(why.locator(".problem")).to_contain_text("choose another step, or change the input yourself")
    assert page.evaluate(NOTHING_SIDEWAYS)


@pytest.mark.slow
def test_a_head_among_the_parts_opens_in_the_maps(viewer):
    viewer.page.locator("#why").get_by_role("radio", name="which head or layer adds to it").check()
    viewer.page.locator("#why .contributions button", has_text="decoder.2.4").click()
    expect(viewer.locator(".title")).to_have_text("Decoder self-attention, layer 2 of 2, head 4")


@pytest.mark.slow
def test_a_cell_of_the_training_replay_is_compared_between_training_steps(empty_page, address, reload):
    page = empty_page
    page.set_viewport_size(LAPTOP)
    page.goto(f"{address}?run={SHIPPED}&input=4+8+2+9&tab=attention&view=replay&block=cross&layer=2&head=3")
    viewer = page.locator("#viewer")
    steps = viewer.get_by_role("group", name="The same at training step")
    expect(steps.get_by_role("radio")).to_have_count(5)
    expect(steps.get_by_role("radio", name="1,000")).to_be_checked()
    viewer.get_by_role("button", name="Numbers").click()
    press_cell(viewer, 1, 3)
    opened = viewer.locator(".story-of")
    expect(opened).to_have_text("cross-attention, layer 2, head 3 · row 2, column 4 · training step 1,000")
    products = viewer.locator(".story-steps .step").first.locator("tr").last
    late = products.inner_text()

    steps.get_by_role("radio", name="125", exact=True).check()
    expect(viewer.locator(".when")).to_have_text("step 125 of 1,000")
    expect(opened).to_have_text("cross-attention, layer 2, head 3 · row 2, column 4 · training step 125")
    early = products.inner_text()
    assert early != late
    expect(viewer.locator(".story-say")).to_contain_text("To write “2”, having read “9”")
    share = viewer.locator(".story-steps .key-bar.on b").inner_text()
    viewer.get_by_role("button", name="Table").click()
    in_map = viewer.locator(".table-box tbody tr").nth(1).locator("td").nth(3).inner_text()
    assert float(share) == pytest.approx(float(in_map), abs=0.003)  # the replay rounds weights to a byte

    page.wait_for_url("**step=125*")
    reload()
    viewer.get_by_role("button", name="Numbers").click()
    expect(opened).to_have_text("cross-attention, layer 2, head 3 · row 2, column 4 · training step 125")
    expect(products).to_have_text(early.replace("\t", ""))

    viewer.get_by_role("slider", name="training step").press("ArrowRight")
    expect(viewer.locator(".story-problem")).to_have_text(
        "Only some steps keep their weights: this is the arithmetic of step 125, the nearest to the map's step 150."
    )
    expect(viewer.locator(".story-body")).to_be_visible()
    expect(opened).to_contain_text("training step 125")
    expect(steps.locator("input:checked")).to_have_count(0)
    viewer.get_by_role("button", name="Feed-forward, encoder layer 2").click()
    steps.get_by_role("radio", name="25", exact=True).check()
    expect(viewer.locator(".story-title")).to_have_text("Feed-forward, encoder layer 2")
    expect(opened).to_have_text("for each token it reads · training step 25")
    page.wait_for_url(lambda url: "step=25" in url and "part=encoder.2.feed-forward" in url)
    assert page.evaluate(NOTHING_SIDEWAYS)


def test_any_token_of_the_table_of_steps_asks_why(empty_page: Page, address: str):
    page, why = empty_page, empty_page.locator("#why")
    page.goto(f"{address}?run={SHIPPED}&input=4+8+2+9&tab=decode")
    page.locator("#answer").get_by_role("button", name="Why 2, not 4?").click()
    expect(page.get_by_role("tab", name="Look inside")).to_have_attribute("aria-selected", "true")
    expect(why.locator(".say")).to_contain_text(re.compile(r"^Why 2, not 4\?"))
    expect(why.locator(".foil")).to_have_value("4")
    expect(why.locator(".say")).to_be_in_viewport()
    page.evaluate("scrollTo(0, 0)")  # where the tab is left, and would open again
    open_tab(page, "Decode")
    page.locator("#answer").get_by_role("button", name="Why 8?", exact=True).first.click()
    expect(why.locator(".say")).to_contain_text(re.compile(r"^Why 8\?"))
    expect(why.locator(".say")).to_be_in_viewport()
    expect(why.locator(".foil")).to_have_value("")
    expect(why.get_by_role("radio", name="8", exact=True)).to_be_checked()
    page.evaluate("scrollTo(0, 0)")
    open_tab(page, "Decode")
    page.locator("#answer").get_by_role("button", name="Why 8?", exact=True).first.click()  # answered already
    expect(why.locator(".say")).to_be_in_viewport()
