"""A fault during training is shown on the open page within two seconds, with its cause and the remedy."""

import errno
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect, sync_playwright

from core.runs import RunFolder
from core.storage.tensor_file import previous_path
from tests.browser.chromium import CHROMIUM, FLAGS, new_context
from tests.faults.public.conftest import Public, delete_folder, load_per_core
from tests.faults.public.session import Session
from ui.serving.visitors import COOKIE

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]
LONG = {"training.steps": 20_000, "training.evaluate_every": 20, "training.validation_sequences": 16}
SECONDS, MILLISECONDS = 2.0, 60_000
MESSAGE_CONTAINS = """(parts) => {
  const message = document.querySelector("#run-bar .message:not([hidden]) .message-text")?.textContent ?? "";
  return parts.every((part) => message.includes(part));
}"""


@pytest.fixture(scope="module")
def visitor(visit: Callable[[], Session]) -> Session:
    return visit()


@pytest.fixture(scope="module")
def page(public: Public, visitor: Session) -> Iterator[Page]:
    """A tab of the visitor's browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        context = new_context(browser)
        context.add_cookies([{"name": COOKIE, "value": visitor.http.cookies[COOKIE], "url": public.address}])
        yield context.new_page()
        browser.close()


class Trained:
    """A run in training and the page that shows it."""

    def __init__(self, public: Public, visitor: Session, page: Page) -> None:
        self.page, self.runs = page, public.runs
        self.name = visitor.call("train", "tiny", LONG, "")["data"][0]["run"]
        self.folder = RunFolder(public.runs.root, self.name)
        page.goto(f"{public.address}?run={self.name}&tab=train")
        self.wait_for_progress()

    def wait_for_progress(self) -> None:
        """Wait until it trains and has made more than five further steps."""
        expect(self.page.locator("#run-bar .stop:enabled")).to_be_visible(timeout=MILLISECONDS)
        step = self.runs[self.name].info.step
        self.wait(lambda: self.runs[self.name].info.step > step + 5)

    def seconds_until_message(self, *parts: str) -> float:
        """Wait until the message contains all parts; return the seconds it took."""
        start = time.monotonic()
        self.page.wait_for_function(MESSAGE_CONTAINS, arg=parts, timeout=MILLISECONDS, polling=50)
        return time.monotonic() - start

    def stop(self) -> None:
        if self.name in (live.folder.name for live in self.runs.active()):
            self.runs.stop(self.name)
        self.wait(lambda: not self.runs.active())

    @staticmethod
    def wait(condition: Callable[[], bool], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)


@pytest.fixture
def run(public: Public, visitor: Session, page: Page) -> Iterator[Trained]:
    trained = Trained(public, visitor, page)
    yield trained
    trained.stop()


def raising(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next update in a training thread raise an exception."""
    genuine = torch.nn.functional.cross_entropy

    def fail(*arguments, **named):
        if threading.current_thread().name.startswith("train "):
            raise error
        return genuine(*arguments, **named)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", fail)


def not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the training loss NaN."""
    genuine = torch.nn.functional.cross_entropy

    def poisoned(*arguments, **named):
        loss = genuine(*arguments, **named)
        return loss * math.nan if torch.is_grad_enabled() else loss

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", poisoned)


@pytest.mark.parametrize(
    ("fault", "inject", "message"),
    [
        ("a loss that is NaN", not_a_number, ("loss=nan", "Resume continues from the last save")),
        (
            "an exception in a step",
            lambda patch: raising(ZeroDivisionError("division by zero"), patch),
            ("division by zero", "the run can be resumed from there"),
        ),
        ("MemoryError", lambda patch: raising(MemoryError(), patch), ("out of memory", "Use a smaller model")),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_failed_run_shows_the_cause_and_can_be_resumed(run, page, monkeypatch, row, fault, inject, message):
    inject(monkeypatch)
    took = run.seconds_until_message(*message)
    expect(page.locator("#run-bar .status")).to_have_text("failed")
    monkeypatch.undo()
    page.get_by_role("button", name="Resume").click()
    run.wait_for_progress()
    row("F1", f"on the page: {fault}", "1 run", f"cause and remedy after {took:.1f} s; resumed")
    assert took <= SECONDS * load_per_core()


def test_a_full_disk_is_reported_until_there_is_space(run, monkeypatch, row):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    genuine = Path.open

    def opened(path, mode="r", *rest, **named):
        is_written = run.name in str(path) and mode[0] in "aw"
        return (full if is_written else genuine)(path, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", opened)
    for module in ("core.runs.folder", "core.storage.tensor_file"):
        monkeypatch.setattr(f"{module}.write_atomically", full)
    took = run.seconds_until_message("could not be saved", "the disk is full", "Delete runs")
    monkeypatch.undo()
    expect(run.page.locator("#run-bar .message")).to_be_hidden(timeout=MILLISECONDS)
    run.stop()
    assert run.folder.read_info().step == run.runs[run.name].info.step > 0
    row("F1", "on the page: the disk is full", "1 run", f"cause and remedy after {took:.1f} s; saved later")
    assert took <= SECONDS * load_per_core()


def test_a_deleted_folder_is_reported(run, row):
    delete_folder(run.folder.path)
    took = run.seconds_until_message("could not be saved", "was deleted while it was in use. Train the run again")
    row("F1", "on the page: the run's folder is deleted", "1 run", f"cause and remedy after {took:.1f} s")
    assert took <= SECONDS * load_per_core()


def test_a_deleted_preset_is_restored_and_reported(run, page, row):
    preset = run.folder.read_preset()
    (run.folder.path / "preset.yaml").unlink()
    took = run.seconds_until_message("preset.yaml was deleted during training", "restored; nothing needs to be done")
    assert run.folder.read_preset() == preset
    page.get_by_role("button", name="Stop").click()
    run.wait(lambda: not run.runs.active())
    (run.folder.path / "preset.yaml").unlink()
    later = run.seconds_until_message("restored from best.safetensors")
    assert run.folder.read_preset() == preset
    page.get_by_role("button", name="Resume").click()
    run.wait_for_progress()
    row("F1", "on the page: preset.yaml is deleted", "twice", f"reported after {took:.1f} and {later:.1f} s; resumed")
    assert max(took, later) <= SECONDS * load_per_core()


def test_a_damaged_state_is_reported_and_the_previous_one_resumed(run, page, row):
    run.wait(lambda: previous_path(run.folder.last).exists())
    page.get_by_role("button", name="Stop").click()
    run.wait(lambda: not run.runs.active())
    data = bytearray(run.folder.last.read_bytes())
    data[len(data) // 2] ^= 1
    run.folder.last.write_bytes(data)
    page.get_by_role("button", name="Resume").click()
    took = run.seconds_until_message("last.safetensors is damaged", "the previous file is used instead")
    run.wait_for_progress()
    row("F1", "on the page: the newest state is damaged", "1 run", f"reported after {took:.1f} s; resumed")
    assert took <= SECONDS * load_per_core()
