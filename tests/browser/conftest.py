"""The page, served and opened in a browser, for the tests beside this file."""

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from core.config import Preset, load_preset
from core.config.listing import work
from core.runs import DEFAULT_ROOT, RunFolder, training
from core.runs.estimate import TrainingTime
from core.server import Runs
from core.training.loop import Event
from core.training.state import TrainingState
from tests.browser.chromium import DESKTOP, NOTHING_SIDEWAYS, new_context
from tests.serving import REPEATER, SHIPPED, TRANSLATOR, address, runs
from tests.support.run_helpers import wait_for
from tests.support.trainings import train_run

__all__ = ["address", "runs"]
expect.set_options(timeout=30_000)  # the cores are busy with other tests
OPERATIONS_PER_SECOND = 2e10  # of a training, about those of a core

# What Gradio logs of a stream that was open when a test left the page.
LEFT = (
    "AbortError: BodyStreamBuffer was aborted",
    "AbortError: signal is aborted without reason",
    "Unexpected error Connection errored out.",
)


def is_error(message: ConsoleMessage) -> bool:
    """Whether a console message is an error of the page."""
    return message.type == "error" and not message.text.startswith(LEFT)


@pytest.fixture(autouse=True)
def estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training times follow from the number of operations: measuring them takes a core from what a test waits for."""

    def by_operations(preset: Preset, **_: Any) -> TrainingTime:
        seconds = work(preset) / OPERATIONS_PER_SECOND
        return TrainingTime(0.8 * seconds, 1.2 * seconds)

    monkeypatch.setattr("core.server.estimates.estimate_training_time", by_operations)


@pytest.fixture(autouse=True)
def few_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports and comparisons measure 100 inputs: thousands take a core from what a test waits for."""
    for name, number in (("compare.SEQUENCES", 100), ("compare.INPUTS_PER_LENGTH", 10), ("report.SEQUENCES", 100)):
        monkeypatch.setattr(f"ui.tabs.{name}", number)


@pytest.fixture(scope="session")
def tab(chromium: Browser) -> tuple[Page, list[str]]:
    """A tab of a headless Chromium and its console errors; one for all tests, so that scripts stay compiled."""
    page = new_context(chromium).new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: None if str(error).startswith(LEFT) else errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if is_error(message) else None)
    return page, errors


@pytest.fixture
def empty_page(tab: tuple[Page, list[str]], runs: Runs) -> Iterator[Page]:
    """A tab for the test to open; a console error or sideways scrolling fails the test."""
    page, errors = tab
    if page.url.startswith("http"):
        page.evaluate("sessionStorage.clear()")  # drafts of the last test's form
    page.goto("about:blank")  # cancels the requests of the last test's page
    errors.clear()
    page.set_viewport_size(DESKTOP)
    yield page
    for live in runs.active():  # the next test's page would open with it
        live.stop.set()
    wait_for(lambda: not runs.active(), seconds=60)
    assert errors == []
    assert page.evaluate(NOTHING_SIDEWAYS)


@pytest.fixture
def page(empty_page: Page, address: str, request: pytest.FixtureRequest) -> Page:
    """The page, newly opened, with the shipped run on the bench."""
    empty_page.set_viewport_size(getattr(request, "param", DESKTOP))
    empty_page.goto(f"{address}?run={SHIPPED}")  # not a training that the last test's press has begun after its end
    expect(empty_page.locator("#bench-view .answer")).to_have_count(4)
    return empty_page


def _add_run(runs: Runs, name: str, preset: str, changes: dict[str, object]) -> None:
    """Train a run to its end, and add it."""
    short = {"training.steps": 60, "training.warmup_steps": 10, "training.evaluate_every": 20}
    changed = load_preset(preset).with_changes(short | changes)
    folder = RunFolder.create(runs.root, changed, name=name)
    train_run(folder)


@pytest.fixture(scope="session")
def seeds(runs: Runs) -> list[str]:
    """Titles of two short runs of one preset with different seeds."""
    for seed in range(2):
        _add_run(runs, f"pair-seed-{seed}", "tiny", {"training.seed": seed})
    return ["pair-seed-0", "pair-seed-1"]


@pytest.fixture(scope="session")
def without_attention(runs: Runs) -> str:
    """Name of a short run of a recurrent model whose decoder reads the encoder's final state only."""
    small = {"model.attention_type": "none", "model.d_hidden": 8, "model.d_embedding": 8, "training.batch_size": 8}
    _add_run(runs, "without-attention", "digits-reversal-gru", small | {"training.validation_sequences": 16})
    return "without-attention"


@pytest.fixture(scope="session")
def letters(runs: Runs) -> str:
    """Title of a short run of a task that reads the letters a to j."""
    small = {"model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "training.batch_size": 8}
    _add_run(runs, "letters", "pattern-completion", small | {"training.validation_sequences": 16})
    return "letters"


@pytest.fixture(scope="session")
def translations(runs: Runs) -> list[str]:
    """Titles of two short runs of one translation task with different seeds."""
    pytest.importorskip("num2words")
    small = {"model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "training.training_sequences": 100}
    for seed in range(2):
        changes = small | {"training.validation_sequences": 32, "training.seed": seed}
        _add_run(runs, f"french-seed-{seed}", "number-words-french", changes)
    return ["french-seed-0", "french-seed-1"]


@pytest.fixture(scope="session")
def lab_with_shipped_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page over all shipped runs."""
    root = tmp_path_factory.mktemp("shipped")
    for name in (SHIPPED, TRANSLATOR, REPEATER):
        shutil.copytree(DEFAULT_ROOT / name, root / name)
    from ui.serving.launch import serve  # Gradio takes seconds to import

    runs = Runs(root)
    page, address = serve(runs)
    yield address
    page.close()
    runs.close()


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Slow training down, so that slow browsers see it; call the fixture to continue at full speed."""
    is_in_a_hurry = threading.Event()
    train = training.train

    def slowly(state: TrainingState) -> Iterator[Event]:
        for event in train(state):
            yield event
            is_in_a_hurry.wait(0.05)

    monkeypatch.setattr(training, "train", slowly)
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
