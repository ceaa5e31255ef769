"""Start a run on the page from the weights of another run: only one that fits, and what does not fit says why."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from core.config import load_preset
from core.runs import RunFolder
from core.server import Runs
from tests.browser.chromium import NOTHING_SIDEWAYS, PHONE
from tests.support.trainings import train_run


@pytest.fixture
def first(runs: Runs) -> Iterator[str]:
    """A finished run of the preset tiny."""
    quick = {"training.steps": 4, "training.warmup_steps": 0, "training.evaluate_every": 2}
    folder = RunFolder.create(runs.root, load_preset("tiny").with_changes(quick), name="first-tiny")
    train_run(folder)
    yield folder.name
    if folder.exists():
        runs.delete(folder.name)


def test_a_run_is_started_from_another_one(first: str, page: Page, runs: Runs):
    page.locator("#preset-picker").get_by_text("tiny", exact=True).click()
    start, hint = page.get_by_label("Start from"), page.locator("#start-from-hint")
    expect(start).to_have_value("")
    expect(start.locator("option:disabled", has_text="digits-reversal-shipped")).to_contain_text(
        "model.d_model=32, and it has 64"
    )
    start.select_option(first)
    expect(page.locator("#summary .summary")).to_contain_text("begins with the weights of first-tiny")
    page.locator("#section-model summary").click()
    width = page.locator("#set-transformer-d_ff-input")
    width.fill("128")
    expect(hint).to_have_text("✗ model.d_ff=128, and it has 64")
    expect(page.locator("#summary .summary")).to_contain_text("model.d_ff=128, and first-tiny has 64")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#summary .summary")).to_contain_text("model.d_ff=128, and first-tiny has 64")
    width.fill("64")
    expect(hint).to_contain_text("its best weights")
    page.locator("#section-training summary").click()
    page.locator("#set-training-steps-input").fill("60")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#settings")).to_contain_text("began with the weights of first-tiny after step")
    expect(page.locator("#run-bar .status")).to_contain_text("finished", timeout=60_000)
    name = next(iter(runs))
    expect(start.locator(f"option[value='{name}']")).to_be_enabled()  # it has weights now
    page.set_viewport_size(PHONE)
    assert page.evaluate(NOTHING_SIDEWAYS)


def test_a_run_that_ended_before_the_page_knew_of_it_can_be_started_from(page: Page, runs: Runs):
    page.locator("#preset-picker").get_by_text("tiny", exact=True).click()
    page.locator("#section-training summary").click()
    page.locator("#set-training-steps-input").fill("60")
    before, held = set(runs), list[Route]()
    is_held = True
    page.route("**/component_server/**", lambda route: held.append(route) if is_held else route.continue_())
    page.get_by_role("button", name="Train", exact=True).click()
    for _ in range(1_200):
        if any(runs[name].info.status == "finished" for name in set(runs) - before):
            break
        page.wait_for_timeout(50)  # the page's requests are taken meanwhile
    is_held = False
    for route in held:
        route.continue_()
    (name,) = set(runs) - before
    expect(page.get_by_label("Start from").locator(f"option[value='{name}']")).to_be_enabled()
    page.unroute_all()
    runs.delete(name)
