"""The lessons on attention in a real browser: figures, questions, progress and links."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from core.interpret.inspection import inspect
from core.interpret.interventions import Interventions
from core.server import Runs
from core.teaching.attention_lessons import attention_lessons, load_attention_lesson
from core.teaching.attention_lessons.attention_scores import attention_scores
from core.teaching.symptoms import symptoms
from tests.browser.chromium import DESKTOP, NOTHING_SIDEWAYS, PHONE, open_lesson, open_tab
from tests.browser.test_accessibility import NO_TRANSITIONS, check
from tests.serving import SHIPPED

NAMES = [lesson.name for lesson in attention_lessons()]
FIRST_BY_DAY = [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]


@pytest.fixture
def page(empty_page: Page, request: pytest.FixtureRequest) -> Page:
    """A tab in which ``learn`` opens the page."""
    empty_page.set_viewport_size(getattr(request, "param", DESKTOP))
    return empty_page


@pytest.fixture
def learn(page: Page, address: str, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Open a lesson by its link, in a browser that has not seen any."""

    def open_link(name: str) -> None:
        is_of_the_shipped_run = not load_attention_lesson(name).runs - {SHIPPED}
        lab = address if is_of_the_shipped_run else request.getfixturevalue("lab_with_shipped_runs")
        storage = {"origin": lab.rstrip("/"), "storageTypes": "local_storage"}  # answers that another test has given
        page.context.new_cdp_session(page).send("Storage.clearDataForOrigin", storage)
        page.goto(f"{lab}?tab=lessons&lesson={name}")
        expect(page.locator("#lesson .attention-lesson .title")).to_contain_text(load_attention_lesson(name).title)
        shown(page)

    return open_link


def shown(page: Page) -> None:
    """Wait until every figure of the open lesson has its content."""
    for figure in page.locator("#lesson .figure").all():
        expect(figure.locator("table, .thumbnail, .ribbon").first).to_be_visible()
        expect(figure.locator("td, canvas, .word").first).to_be_visible()


def question(page: Page, name: str) -> Locator:
    return page.locator(f"#lesson form[data-question={name}]")


def figures_wider_than_text_and_drawing(page: Page) -> list[str]:
    return page.evaluate("""() => {
      const text = document.querySelector("#lesson section > p").clientWidth + 40;
      const drawings = (figure) => [...figure.querySelectorAll("canvas, table, svg")];
      const drawn = (figure) => Math.max(...drawings(figure).map((drawing) => drawing.scrollWidth));
      return [...document.querySelectorAll("#lesson .figure")]
        .filter((figure) => figure.clientWidth > Math.max(text, drawn(figure) + 40))
        .map((figure) => `${figure.clientWidth} > ${text}, ${drawn(figure)}: ${figure.innerText.slice(0, 60)}`);
    }""")


def answer(page: Page, name: str, label: str) -> None:
    question(page, name).get_by_label(label).check()
    question(page, name).get_by_role("button", name="Check").click()


def progress(page: Page, name: str) -> Locator:
    return page.locator(f"#lesson .list button[value={name}] .progress")


def test_answers_and_progress_survive_a_reload(page: Page, learn: Callable, reload: Callable):
    learn("tokens")
    expect(progress(page, "tokens")).to_have_text("0 of 3")
    answer(page, "where-equal", "In embedding + position")
    expect(question(page, "where-equal").locator(".result")).to_contain_text("✗ Not quite. The two have different")
    expect(progress(page, "tokens")).to_have_text("0 of 3")
    question(page, "rows-of-sevens").locator("input").fill("3")
    page.keyboard.press("Enter")
    expect(question(page, "rows-of-sevens").locator(".result")).to_contain_text("✓ Right.")
    expect(progress(page, "tokens")).to_have_text("1 of 3")
    reload()
    expect(page.locator("#lesson .attention-lesson .title")).to_contain_text("What a token is to a model")
    expect(question(page, "rows-of-sevens").locator("input")).to_have_value("3")
    expect(question(page, "rows-of-sevens").locator(".result")).to_contain_text("✓ Right.")
    expect(question(page, "where-equal").get_by_label("In embedding + position")).to_be_checked()
    expect(question(page, "where-equal").locator(".result")).to_contain_text("✗ Not quite.")
    expect(progress(page, "tokens")).to_have_text("1 of 3")
    answer(page, "where-equal", "In the embeddings")
    expect(progress(page, "tokens")).to_have_text("2 of 3")
    page.get_by_role("button", name="Forget my answers").click()
    page.get_by_role("button", name="Press again to forget all answers").click()
    expect(progress(page, "tokens")).to_have_text("0 of 3")
    expect(question(page, "rows-of-sevens").locator("input")).to_have_value("")


@pytest.mark.slow
def test_the_lesson_that_was_open_last_opens_again_and_the_address_names_it(
    page: Page, learn: Callable, reload: Callable, address: str
):
    learn("tokens")
    open_lesson(page, "masks")
    expect(page).to_have_url(re.compile("lesson=masks"))
    page.get_by_role("button", name="Next: Many heads").click()
    expect(page).to_have_url(re.compile("lesson=heads"))
    reload(address)
    open_tab(page, "Learn")
    expect(page.locator("#lesson .attention-lesson .title")).to_have_text("5. Many heads")
    shown(page)


@pytest.mark.parametrize("page", [PHONE], indirect=True)
@pytest.mark.parametrize("name", FIRST_BY_DAY)
def test_every_lesson_is_drawn_and_accepts_its_right_answers(page: Page, learn: Callable, name: str):
    learn(name)
    lesson = load_attention_lesson(name)
    for each in lesson.questions:
        if each.number:
            question(page, each.id).locator("input").fill(str(each.number.value))
            question(page, each.id).get_by_role("button", name="Check").click()
        else:
            (right,) = [choice for choice in each.choices if choice.correct]
            answer(page, each.id, right.text)
        expect(question(page, each.id).locator(".result")).to_contain_text("✓ Right.")
    expect(progress(page, name)).to_have_text(f"✓ {len(lesson.questions)} of {len(lesson.questions)}")
    assert page.evaluate(NOTHING_SIDEWAYS)


def weights_in(figure: Locator) -> list[list[float]]:
    """The numbers of a map on the page."""
    cells = figure.locator("tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => Number(cell.dataset.weight)))"
    )
    return cells


def test_the_map_is_that_of_a_decode_and_follows_input_and_head(page: Page, learn: Callable, runs: Runs):
    learn("queries")
    assert figures_wider_than_text_and_drawing(page) == []
    page.set_viewport_size({"width": 320, "height": 700})
    fit = "(boxes) => boxes.map((box) => box.scrollWidth - box.clientWidth)"
    assert page.locator("#lesson .figure .scroll").evaluate_all(fit) == [0, 0]  # nothing to scroll to
    page.set_viewport_size(DESKTOP)
    loaded = runs[SHIPPED].trained()
    figure = page.locator("#lesson .figure").first
    for text, head in (("4 8 2 9", 1), ("7 1 3", 4)):
        page.get_by_label("Input of the figures").fill(text)
        page.keyboard.press("Enter")
        figure.get_by_label("attention head").select_option(f"2.{head}")
        found = inspect(loaded.model, loaded.task, text)
        expect(figure.locator("thead th")).to_have_text([re.compile("produced"), *found.source_labels])
        expected = found.maps.cross[1, 0, head - 1].tolist()
        assert weights_in(figure) == [pytest.approx(row, abs=1e-4) for row in expected]
        figure.get_by_role("button", name="<EOS>").click()
        expect(figure.locator(".readout")).to_contain_text(f"Step {len(found.steps)} produced <EOS> after reading")
        cell = f"row={len(found.steps)}&column={max(range(len(expected[-1])), key=expected[-1].__getitem__) + 1}"
        expect(figure.get_by_role("link")).to_have_attribute("href", re.compile(f"cross&layer=2&head={head}&{cell}$"))


@pytest.mark.slow
def test_the_scores_of_a_row_are_divided_or_not(page: Page, learn: Callable, runs: Runs):
    learn("queries")
    loaded = runs[SHIPPED].trained()
    scores = attention_scores(loaded.model, loaded.task, "4 8 2 9").scores["cross"][1, 0, 1]
    divided, products = (each.softmax(dim=-1)[3].item() for each in (scores, 4 * scores))
    figure = page.locator("#lesson .figure").nth(1)
    expect(figure.locator(".readout")).to_contain_text(f"{100 * divided:.0f} % on 2 (column 4)")
    expect(figure.get_by_role("link")).to_have_attribute("href", re.compile("head=1&row=2&column=4$"))
    figure.get_by_label("divide by √d_k").uncheck()
    expect(figure.locator(".readout")).to_contain_text(f"{100 * products:.0f} % on 2 (column 4)")


@pytest.mark.slow
def test_an_input_that_cannot_be_read_is_refused_beside_it(page: Page, learn: Callable):
    learn("positions")
    page.get_by_label("Input of the figures").fill("4 x")
    page.get_by_role("button", name="Show", exact=True).click()
    alerts = page.locator("#lesson .attention-lesson [role=alert]")
    expect(alerts.first).to_contain_text(re.compile("x.*; the figures below are those of 4 8"))
    expect(alerts.nth(1)).to_be_empty()  # once, and not again below every figure
    expect(page.get_by_label("Input of the figures")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Input of the figures").fill("4 1")
    page.keyboard.press("Enter")
    expect(page.locator("#lesson .attention-lesson [role=alert]").first).to_be_empty()
    expect(page.get_by_label("Input of the figures")).to_have_attribute("aria-invalid", "false")


@pytest.mark.slow
def test_a_head_is_taken_out_and_the_training_is_replayed(page: Page, learn: Callable, runs: Runs):
    learn("heads")
    figure = page.locator("#lesson .figure").nth(1)
    figure.get_by_role("button", name="all heads of layer 2").click()
    loaded = runs[SHIPPED].trained()
    without = Interventions.parse(loaded.model.heads, ablate=["cross.2"])
    output = inspect(loaded.model, loaded.task, "4 8 2 9", interventions=without).output
    expect(figure.locator(".readout")).to_contain_text(f"Without cross.2 the answer is {' '.join(output)}")
    expect(figure.locator(".readout")).to_contain_text("100 % with it, 0 % without it")
    replay = page.locator("#lesson .figure").nth(2)
    expect(replay.locator(".readout")).to_contain_text("Step 0:")
    replay.get_by_label("training step").press("End")
    expect(replay.locator(".readout")).to_contain_text("answered with 9 2 8 4 ✓")


@pytest.mark.slow
def test_masks_are_removed(page: Page, learn: Callable):
    learn("masks")
    assert figures_wider_than_text_and_drawing(page) == []
    causal, padding = page.locator("#lesson .figure").all()
    moved = causal.locator(".changes tbody td.number")
    expect(moved.first).to_have_text("0 %")
    causal.get_by_label("causal mask").uncheck()
    expect(moved.first).not_to_have_text("0 %")
    expect(padding.locator(".readout").first).to_contain_text("Answer: 9 2 8 4 ✓ correct")
    padding.get_by_label("mask that hides PAD").uncheck()
    expect(padding.locator(".readout").first).to_contain_text("✗ wrong")


def test_a_sentence_is_read_along_with_its_translation(page: Page, learn: Callable):
    learn("alignment")
    figure = page.locator("#lesson .figure").first
    expect(figure.locator("select option").first).to_have_text("layer 2, head 1 (best aligned here)")
    figure.get_by_role("button", name="gave", exact=True).hover()
    expect(figure.locator(".below .word.on")).to_have_text(["hat", "gegeben"])
    figure.get_by_label("sentence").fill("I know that he is sick.")
    page.keyboard.press("Enter")
    expect(figure.locator(".below .word")).to_have_text(["Ich", "weiß", ",", "dass", "er", "krank", "ist", "."])
    expect(figure.get_by_role("link")).to_have_attribute("href", re.compile("translate-en-de-shipped.*he.is.sick"))
    figure.get_by_label("sentence").fill("サクラ")
    page.keyboard.press("Enter")
    expect(page.locator("#lesson section").first.get_by_role("alert")).to_contain_text("サ")


@pytest.mark.slow
def test_a_link_of_a_lesson_opens_the_head_on_its_tab(page: Page, learn: Callable, reload: Callable, address: str):
    learn("tokens")
    reload(address + page.get_by_role("link", name="The encoder's heads in Look inside").get_attribute("href"))
    expect(page.get_by_role("tab", name="Look inside")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#viewer")).to_contain_text("Encoder self-attention, layer 2 of 2, head 1")
    expect(page.locator("#attention-of")).to_contain_text("4 8 4 9 →")


@pytest.mark.slow
def test_a_link_to_a_cell_shows_how_it_came_about_after_a_reload_too_and_progress_is_kept(
    page: Page, tab: tuple[Page, list[str]], learn: Callable, reload: Callable
):
    learn("alignment")
    answer(page, "into-the-stream", "It is one part of a sum that is added to the stream, for later parts to use.")
    expect(question(page, "into-the-stream").locator(".result")).to_contain_text("✓ Right.")
    expect(progress(page, "alignment")).to_have_text("1 of 4")
    link = page.get_by_role("link", name="One weight on its way to the answer, in Look inside")
    cell = "block=cross&layer=2&head=1&row=2&column=4"
    expect(link).to_have_attribute("href", re.compile(f"tab=attention&.*{cell}$"))
    _, errors = tab
    assert errors == []
    with page.expect_navigation(wait_until="commit"):
        link.click()
    errors.clear()  # of the requests that leaving the page canceled
    for again in (False, True):
        if again:
            reload()
        expect(page.get_by_role("tab", name="Look inside")).to_have_attribute("aria-selected", "true")
        story = page.locator("#viewer .story")
        expect(story.locator(".story-title")).to_have_text("How this cell came about")
        expect(story).to_contain_text("cross-attention, layer 2, head 1 · row 2, column 4")
        expect(story).to_contain_text("To write “2”, having read “9”")
        expect(page).to_have_url(re.compile("tab=attention"))
        for part in cell.split("&"):
            expect(page).to_have_url(re.compile(rf"[?&]{part}(&|$)"))
    open_tab(page, "Learn")
    expect(page.locator("#lesson .attention-lesson .title")).to_contain_text("Reading along with a translation")
    shown(page)
    expect(progress(page, "alignment")).to_have_text("1 of 4")
    expect(question(page, "into-the-stream").locator(".result")).to_contain_text("✓ Right.")


# All lessons are made of the same figures and questions: one in every run of the tests, the others in the nightly one.
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_lesson_has_a_serious_violation_or_a_picture_without_text(page: Page, learn: Callable, name: str):
    learn(name)
    page.add_style_tag(content=NO_TRANSITIONS)
    for form in page.locator("#lesson form.ask").all():  # with results, right and wrong
        form.locator("input").first.check() if form.locator("[type=radio]").count() else form.locator("input").fill("3")
        form.get_by_role("button", name="Check").click()
    check(page, name)


def test_a_symptom_is_found_by_its_words_and_leads_to_its_lesson(page: Page, address: str, reload: Callable[..., None]):
    reload(f"{address}?tab=lessons&lesson=symptoms&symptom=true-means")
    listed = page.locator("#lesson .symptoms details")
    expect(page.locator("#symptom-true-means")).to_contain_text("~visible.expand(B, H, T, S).flatten(0, 1)")
    expect(page.locator("#symptom-true-means summary")).to_be_in_viewport()
    expect(listed).to_have_count(len(symptoms()))
    page.get_by_label("Find").fill("repeat shifted")
    expect(page.locator("#symptom-nan")).to_be_hidden()
    page.locator("#symptom-same-token summary").click()
    expect(page).to_have_url(re.compile("symptom=same-token"))
    page.get_by_role("link", name="The lesson: targets not shifted").first.click()
    expect(page.locator("#lesson .lesson .title")).to_contain_text("targets not shifted")
