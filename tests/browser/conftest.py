"""The page, served and opened in a browser, for the tests beside this file."""

import threading
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from core.config import load_preset
from core.runs import RunFolder
from core.runs import recorder as recording
from core.runs.recorder import train_recorded
from core.server import Runs
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import Event
from core.training.state import TrainingState
from tests.browser.chromium import CHROMIUM, DESKTOP, FLAGS, NOTHING_SIDEWAYS
from tests.serving import address, runs

__all__ = ["address", "runs"]
expect.set_options(timeout=30_000)  # the cores are busy with other tests


@pytest.fixture(scope="session")
def tab() -> Iterator[tuple[Page, list[str]]]:
    """A tab of a headless Chromium and its console errors; one for all tests, so that scripts stay compiled."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_context().new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        yield page, errors
        browser.close()


@pytest.fixture
def empty_page(tab: tuple[Page, list[str]]) -> Iterator[Page]:
    """A tab for the test to open; a console error or sideways scrolling fails the test."""
    page, errors = tab
    page.goto("about:blank")  # cancels the requests of the last test's page
    errors.clear()
    page.set_viewport_size(DESKTOP)
    yield page
    assert errors == []
    assert page.evaluate(NOTHING_SIDEWAYS)


@pytest.fixture
def page(empty_page: Page, address: str, request: pytest.FixtureRequest) -> Page:
    """The page, newly opened, with its first decode."""
    empty_page.set_viewport_size(getattr(request, "param", DESKTOP))
    empty_page.goto(address)
    expect(empty_page.locator("#answer .output .tile")).to_have_text(list("9284"))
    return empty_page


@pytest.fixture(scope="session")
def seeds(runs: Runs) -> list[str]:
    """Names of two short runs of one preset with different seeds."""
    short = {"training.steps": 60, "training.warmup_steps": 10, "training.evaluate_every": 20}
    names = []
    for seed in range(2):
        preset = load_preset("tiny").with_changes(short | {"training.seed": seed})
        folder = RunFolder.create(runs.root, preset, name=f"pair-seed-{seed}")
        state, history = new_state(preset), History(preset.training.steps)
        train_recorded(folder, state, history, should_stop=lambda: False, on_event=lambda event: None)
        names.append(folder.name)
    return names


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Slow training down, so that slow browsers see it; call the fixture to continue at full speed."""
    is_in_a_hurry = threading.Event()
    train = recording.train

    def slowly(state: TrainingState) -> Iterator[Event]:
        for event in train(state):
            yield event
            is_in_a_hurry.wait(0.05)

    monkeypatch.setattr(recording, "train", slowly)
    yield is_in_a_hurry.set
    is_in_a_hurry.set()


@pytest.fixture
def reload(tab: tuple[Page, list[str]]) -> Callable[..., None]:
    """Reload the page, or open a link; canceled requests do not count as console errors."""
    page, errors = tab

    def again(link: str = "") -> None:
        before = list(errors)
        if link:
            page.goto("about:blank")
            page.goto(link, wait_until="commit")
        else:
            page.reload(wait_until="commit")
        errors[:] = before

    return again
