"""The page at every width: no text is cut off, covered, or outside its card."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.limits import PUBLIC
from tests.browser.chromium import DESKTOP, choose_run, choose_seeds, new_context, open_tab
from tests.browser.layout import faults_at
from tests.serving import SHIPPED

SMALL, TABLET, XGA, LAPTOP = (320, 640), (820, 1180), (1024, 768), (1366, 768)


def train(page: Page) -> None:
    expect(page.locator("#bench-view .map canvas").first).to_be_visible()
    expect(page.locator("#bench-view .next-steps")).to_be_visible()


def decode(page: Page) -> None:
    expect(page.locator("#answer .inspect").first).to_be_visible()


def look_inside(page: Page) -> None:
    expect(page.locator("#viewer .story-say")).to_be_visible()


def report(page: Page) -> None:
    page.get_by_role("button", name="Wrong answers, one by one").click()
    expect(page.locator("iframe[title=report]")).to_be_visible()


def compare(page: Page) -> None:
    choose_seeds(page, "pair")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#run-comparison .line-chart canvas")).to_have_count(4)


def sweep(page: Page) -> None:
    expect(page.locator("#sweep button:visible").first).to_be_visible()


def learn(page: Page) -> None:
    expect(page.locator("#lesson .figure td, #lesson .figure canvas").first).to_be_visible()


BY_DAY = {"Train": train, "Decode": decode, "Look inside": look_inside}
AT_NIGHT = {"Report": report, "Compare": compare, "Sweep": sweep, "Learn": learn}


@pytest.mark.parametrize(
    ("tabs", "step"),
    [
        pytest.param(BY_DAY, 160, id="by day"),
        pytest.param(BY_DAY | AT_NIGHT, 40, marks=pytest.mark.slow, id="at night"),
    ],
)
def test_no_text_is_cut_off_or_covered_at_any_width(
    seeds: list[str], page: Page, tabs: dict[str, Callable[[Page], None]], step: int
):
    choose_run(page, seeds[0])
    for name, ready in tabs.items():
        page.set_viewport_size(DESKTOP)
        open_tab(page, name)
        ready(page)
        sizes = [*((width, 900) for width in range(360, 2001, step)), SMALL, TABLET, XGA, LAPTOP]
        assert faults_at(page, sizes) == {}, name


def test_the_bar_shows_name_and_result_whole_beside_each_other(page: Page):
    """Narrower bars leave the result out."""
    shown = page.locator("#run-bar :is(.title, .status)")
    expect(shown).to_contain_text([SHIPPED, "exact match 100 %"])
    for width in range(780, 1400, 20):
        page.set_viewport_size({"width": width, "height": 800})
        assert shown.evaluate_all("(all) => all.every((each) => each.scrollWidth <= each.clientWidth)"), width


@pytest.fixture
def student(tab: tuple[Page, list[str]], tmp_path: Path) -> Iterator[Page]:
    """The page of a student in a class, on a laptop."""
    from ui.serving.launch import serve
    from ui.serving.visitors import Presence

    shutil.copytree(DEFAULT_ROOT / SHIPPED, tmp_path / SHIPPED)
    runs = Runs(tmp_path, limits=PUBLIC)
    server, address = serve(runs, Presence())
    browser = tab[0].context.browser
    assert browser is not None
    viewport = {"width": LAPTOP[0], "height": LAPTOP[1]}
    teacher, student = (new_context(browser, viewport=viewport) for _ in range(2))
    board, page = teacher.new_page(), student.new_page()
    board.goto(address)
    board.locator("#run-bar .class").click()
    board.get_by_role("button", name="Open a class").click()
    code = board.locator("dialog .code").inner_text()
    page.goto(address)
    page.locator("#run-bar .class").click()
    page.locator("dialog .code-input").fill(code)
    page.locator("dialog .nickname-input").fill("Ada")
    page.get_by_role("button", name="Join").click()
    yield page
    teacher.close()
    student.close()
    runs.close()
    server.close(verbose=False)


@pytest.mark.slow
def test_the_line_of_a_class_leaves_train_on_the_screen(student: Page):
    expect(student.get_by_role("region", name="Class")).to_be_visible()
    expect(student.locator("#bench-view .map")).to_have_count(8)
    expect(student.locator("#train")).to_be_in_viewport(ratio=1)
    expect(student.locator("#bench-view .replay")).to_be_in_viewport(ratio=1)
    assert faults_at(student, [(360, 800), TABLET, XGA, LAPTOP]) == {}
