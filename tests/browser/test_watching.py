"""A training by a user's own program on the page: live, with heads, predictions and findings, and after a kill."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from benchmarks import model_styles as styles
from core import lab
from core.server import Runs
from tests.browser.chromium import DESKTOP, PHONE, choose_run, open_tab
from tests.runs.watching.loops import BATCH, OPTIONS, made, update
from tests.support.run_helpers import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def name(runs: Runs, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for a run that is deleted after the test."""
    name = re.sub("[^a-z]+", "-", f"watched-{request.node.name}"[:40]).strip("-")
    yield name
    shutil.rmtree(runs.root / name, ignore_errors=True)


def expect_bench(page: Page) -> None:
    """The bench shows the predictions, heads and curves of a watched training."""
    expect(page.locator("#bench-view .answers-title")).to_have_text("What it predicts now")
    expect(page.locator("#bench-view .answer")).to_have_count(4)
    expect(page.locator("#bench-view .heads-panel .map canvas").first).to_be_visible()
    expect(page.locator("#bench-view .validation-name")).to_have_text("watched pairs")
    expect(page.locator("#bench-view .accuracy-now")).to_contain_text("%")
    expect(page.locator("#run-bar .stop")).to_be_hidden()
    expect(page.locator("#run-bar .resume")).to_be_hidden()


def test_a_loop_of_ones_own_is_followed_with_its_findings(page: Page, runs: Runs, name: str):
    model, optimizer = made()
    watch = lab.watch(model, BATCH, name=name, root=runs.root, optimizer=optimizer, every=2, **OPTIONS)
    choose_run(page, name)
    expect_bench(page)
    expect(page.locator("#run-bar .steps")).to_have_text("0 steps")
    expect(page.locator("#bench-view .answers-when")).to_have_text("teacher-forced, step 0")
    for number in range(4):
        watch.step(update(model, optimizer, number))
    expect(page.locator("#bench-view .answers-when")).to_have_text("teacher-forced, step 2")
    open_tab(page, "Report")
    page.get_by_text("Doctor: check this run for bugs").click()
    expect(page.locator("#doctor .about")).to_contain_text("has no findings yet: call watch.diagnose(bos=…, eos=…)")
    watch.diagnose(bos=1, eos=2, loss=styles.loss_of)
    expect(page.locator("#doctor .about")).to_contain_text("after 4 updates")
    expect(page.locator("#doctor .findings")).to_contain_text("greedy decoding")
    watch.close()
    expect(page.locator("#run-bar .status")).to_have_text(re.compile("finished, token accuracy"))
    open_tab(page, "Look inside")
    expect(page.locator("#viewer .heading")).to_contain_text(
        f"predicted (teacher-forced) by {name} after 4 training steps"
    )
    expect(page.locator("#viewer .head-grid .thumbnail").first).to_be_visible()
    expect(page.locator("#viewer .readout").first).to_have_text("Point at a cell to read its weight.")
    expect(page.locator("#viewer .panel, #viewer")).to_contain_text("The weights of this run are with the program")
    open_tab(page, "Decode")
    expect(page.locator("#decode-message .notice")).to_contain_text("is trained by your own program")
    expect(page.locator("#decode-message .notice")).not_to_have_class(re.compile("bad"))
    open_tab(page, "Train")
    page.get_by_role("button", name="Copy this run's settings").click()
    expect(page.locator("#train-problem")).to_contain_text("is trained by your own program")
    page.set_viewport_size(PHONE)
    expect_bench(page)
    page.set_viewport_size(DESKTOP)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "package"), [("loops", "torch"), ("lightning_loop", "lightning"), ("transformers_loop", "transformers")]
)
def test_a_program_is_followed_live_killed_and_opened_again(
    page: Page, runs: Runs, name: str, module: str, package: str, address: str
):
    pytest.importorskip(package)
    command = [sys.executable, "-m", f"tests.runs.watching.{module}", "--root", str(runs.root), "--name", name]
    program = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: name in runs, seconds=120)
        choose_run(page, name)
        expect_bench(page)
        steps = page.locator("#run-bar .steps")
        first = steps.inner_text()
        expect(steps).not_to_have_text(first)
        second = steps.inner_text()
        expect(steps).not_to_have_text(second)
        wait_for(lambda: len(runs[name].replay.snapshots()) > 3, seconds=120)
    finally:
        program.kill()
        program.wait()
    expect(page.locator("#run-bar .status")).to_have_text("interrupted")
    expect(page.locator("#run-bar .message-text")).to_contain_text("Its process ended before training did")
    page.goto(f"{address}?run={name}")
    expect_bench(page)
    page.locator("#bench-view .scrubber").fill("0")
    expect(page.locator("#bench-view .answers-when")).to_have_text("teacher-forced, step 0")
