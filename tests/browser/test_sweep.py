"""The Sweep tab in a real browser: nonsense at its field; a sweep started, reloaded, stopped, continued, opened."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.config import load_preset
from core.runs.estimate import TrainingTime
from core.server import Runs
from core.server.estimates import Estimates
from tests.browser.chromium import NOTHING_SIDEWAYS, PHONE, choose_preset, open_tab
from tests.browser.test_accessibility import NO_TRANSITIONS, UNLABELED, check
from tests.runs.sweeps.conftest import Held
from tests.support.made_up_sweep import made_up_sweep

pytestmark = pytest.mark.slow
SHORT = """
preset: tiny
set: {training.warmup_steps: 2, training.evaluate_every: 4, training.batch_size: 4, training.validation_sequences: 8}
axes:
  training.learning_rate: [0.003, 0.01]
seeds: 2
"""
MAX_SECONDS = 1.5  # to open the tab with a sweep of a thousand trials
IS_SHOWN = """() => document.querySelectorAll("#sweep table tbody tr").length > 40
  && document.querySelector("#sweep .state").textContent.includes("1,000 of 1,000 trials finished")"""


@pytest.fixture
def held(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Sweeps whose runs wait; call the fixture to let them train. Every preset is estimated to take a second or two."""
    monkeypatch.setattr("core.runs.sweeps.driver.RunProcess", Held)
    monkeypatch.setattr("core.runs.sweeps.driver._POLL_SECONDS", 0.05)
    monkeypatch.setattr("core.server.sweeps.TABLE_SECONDS", 0.1)
    monkeypatch.setattr("core.server.sweeps.usable_cores", lambda: 2)
    monkeypatch.setattr(Estimates, "wait", lambda *_, seconds: TrainingTime(1.0, 2.0))
    Held.release.clear()
    yield Held.release.set
    Held.release.set()
    runs.sweeps.close(seconds=20)


def field(page: Page, label: str):
    return page.locator("#sweep .fields").get_by_label(label, exact=False).first


@pytest.fixture
def form(page: Page) -> Page:
    """The Sweep tab with the form, whose base is ``tiny``."""
    choose_preset(page, "tiny")
    open_tab(page, "Sweep")
    expect(page.locator("#sweep .base")).to_contain_text("All runs share the settings of tiny, 400 steps")
    expect(page.locator("#sweep .estimate")).to_contain_text("on this machine")
    return page


def test_nonsense_is_refused_at_its_field_and_a_sweep_is_trained_reloaded_stopped_and_continued(
    held: Callable[[], None], form: Page, reload: Callable[..., None], runs: Runs
):
    page, sweep = form, form.locator("#sweep")
    start = sweep.get_by_role("button", name="Start sweep")
    expect(sweep.locator(".nothing")).to_contain_text("Nothing trained yet")

    # Nonsense
    field(page, "Runs at a time").fill("1")
    values = sweep.get_by_label("values, separated by commas").first
    for label, text, said in (
        ("Name", "Ü b", "should be a-z, 0-9 and -"),
        ("Runs at a time", "99", "must be from 1 to 2"),
    ):
        old = field(page, label).input_value()
        field(page, label).fill(text)
        problem = field(page, label).locator("xpath=..").locator(".problem")
        expect(problem).to_contain_text(said)
        expect(start).to_be_disabled()
        field(page, label).fill(old)
        expect(start).to_be_enabled()
    values.fill("lots")
    expect(sweep.locator(".axis .problem").first).to_contain_text("training.learning_rate='lots'")
    values.fill("0.003, 0.01")
    sweep.get_by_label("how its values are given").select_option("log range")
    expect(field(page, "Search")).to_have_value("random")
    expect(sweep.get_by_label("high", exact=True)).to_have_value("0.01")
    sweep.get_by_label("high", exact=True).fill("0.001")
    expect(sweep.locator(".axis .problem").first).to_contain_text("low=0.003 must be below high=0.001")
    sweep.get_by_label("how its values are given").select_option("values")
    field(page, "Search").select_option("grid: all combinations")

    # A file with short runs, a second axis, the budget, and the file of all this
    sweep.locator(".file").set_input_files({"name": "short.yaml", "mimeType": "text/plain", "buffer": SHORT.encode()})
    expect(sweep.locator(".base")).to_contain_text("tiny with training.warmup_steps=2")
    field(page, "Runs at a time").fill("1")
    sweep.get_by_role("button", name="Add an axis").click()
    sweep.get_by_label("setting of the axis").nth(1).select_option("model.d_ff")
    sweep.get_by_label("values, separated by commas").nth(1).fill("16, 32")
    field(page, "Name").fill("rates")
    field(page, "Length of a run").select_option("updates")
    sweep.get_by_label("how many", exact=True).fill("8")
    expect(sweep.locator(".estimate")).to_contain_text("4 trials × 2 seeds")
    with page.expect_download() as download:
        sweep.get_by_role("button", name="Download YAML").click()
    file = Path(download.value.path())
    assert "training.learning_rate: [0.003, 0.01]" in file.read_text()
    assert download.value.suggested_filename == "rates.yaml"

    # Training, a reload, and Stop twice
    start.click()
    expect(sweep.locator(".heading")).to_have_text("rates")
    expect(sweep.locator(".state")).to_contain_text("0 of 4 trials finished")
    expect(sweep.locator(".state")).to_contain_text("1 run training")
    expect(page).to_have_url(re.compile("sweep=rates"))
    reload()
    expect(sweep.locator(".state")).to_contain_text("1 run training")
    stop = sweep.get_by_role("button", name="Stop", exact=True)
    stop.dblclick()
    expect(sweep.get_by_role("button", name="Continue")).to_be_visible()
    assert runs.sweeps.active() is None
    held()
    sweep.get_by_role("button", name="Continue").click()
    expect(sweep.locator(".state")).to_contain_text("4 of 4 trials finished")
    expect(sweep.locator(".best")).to_contain_text("Best so far: ")

    # A trial becomes the current run
    expect(sweep.locator(".importance li")).to_have_count(2)
    expect(sweep.locator(".pictures table.heat tbody tr")).to_have_count(2)
    expect(sweep.locator(".curves canvas").first).to_be_visible()
    sweep.get_by_role("button", name="open trial 1", exact=True).click()
    expect(page.locator("#run-bar .run .title")).to_have_text(re.compile(r"^rates.*seed.0$"))
    expect(sweep.locator(".trial .runs button")).to_have_count(2)
    sweep.locator(".parallel canvas").press("ArrowRight")
    expect(sweep.locator(".readout").first).to_contain_text("learning_rate ")
    for name, suffix, begin in (("CSV", "csv", "trial,training.learning_rate"), ("LaTeX", "tex", "\\begin{tabular}")):
        with page.expect_download() as download:
            sweep.locator("section").last.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == f"rates.{suffix}"
        assert Path(download.value.path()).read_text().startswith(begin)
    page.set_viewport_size(PHONE)
    assert page.evaluate(NOTHING_SIDEWAYS)

    # The file, opened again
    sweep.locator(".which").select_option("new sweep")
    sweep.locator(".file").set_input_files(file)
    expect(field(page, "Name")).to_have_value("rates")
    expect(sweep.get_by_role("button", name="Continue or extend")).to_be_enabled()
    expect(sweep.locator(".estimate")).to_contain_text("nothing is left to train")
    sweep.locator(".file").set_input_files({"name": "no.yaml", "mimeType": "text/plain", "buffer": b"- 1"})
    expect(sweep.locator(".message")).to_contain_text("no.yaml: a sweep must be a mapping")


@pytest.mark.slow
def test_a_sweep_has_no_serious_violation(page: Page, runs: Runs):
    page.add_style_tag(content=NO_TRANSITIONS)
    made_up_sweep(runs.root, load_preset("tiny"), trials=25, name="made-up")
    open_tab(page, "Sweep")
    page.locator("#sweep .which").select_option("made-up")
    expect(page.locator("#sweep .curves, #sweep table tbody tr").last).to_be_visible()
    page.wait_for_function(f"() => ({UNLABELED})().length === 0")
    check(page, "sweep")


@pytest.mark.slow
def test_the_tab_opens_quickly_with_a_thousand_trials(page: Page, runs: Runs, address: str):
    made_up_sweep(runs.root, load_preset("tiny"), trials=1_000)
    open_large_sweep(page)  # the first time, the server reads all runs and imports SciPy
    page.goto(address)
    page.wait_for_timeout(6_000)  # a page that opens measures the training times of the listed presets
    seconds = open_large_sweep(page)
    assert seconds <= MAX_SECONDS, f"{seconds:.2f} s"


def open_large_sweep(page: Page) -> float:
    started = time.monotonic()
    open_tab(page, "Sweep")
    which = page.locator("#sweep .which")
    which.locator("option[value=large]").wait_for(state="attached")
    which.select_option("large")
    page.wait_for_function(IS_SHOWN, polling=20)  # ``expect`` looks once a second
    return time.monotonic() - started
