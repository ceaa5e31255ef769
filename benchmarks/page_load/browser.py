"""``bench browser``: what it costs a training that a page in Chromium is open and follows it.

Needs Playwright and Chromium (``requirements-dev.txt``). No other program should run at the same time.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from core.config import load_preset
from core.runs import DEFAULT_ROOT
from core.server import Runs
from ui.serving.launch import serve

SHIPPED = "digits-reversal-shipped"
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
RATE_PAIRS, RATE_STEPS = 6, 500
SETTLE_MS = 6000  # in which an opened page measures the training times of the listed presets
LEAST_RATE = 0.95  # of the training's rate without a page
ANSWERED = """() => document.querySelectorAll('#bench-view .answer').length >= 3
  && [...document.querySelectorAll('#bench-view .map canvas')].filter((map) => map.width > 10).length >= 4"""


def main() -> int:
    """Measure, print a table, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object in the last line")
    options = parser.parse_args()
    sys.setswitchinterval(0.001)  # as in app.py
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (runs, address), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS))
        rate = rate_with_page(browser, runs, address)
        browser.close()
    print(f"rate_with_page {rate:.3f}  (at least {LEAST_RATE:g})")
    if options.json:
        print(json.dumps({"benchmark": "browser", "rate_with_page": rate}))
    return 1 if rate < LEAST_RATE else 0


@contextmanager
def served(root: Path) -> Iterator[tuple[Runs, str]]:
    """Serve the page over the shipped run alone."""
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    runs = Runs(root, in_processes=True)  # as in app.py
    page, address = serve(runs)
    try:
        yield runs, address
    finally:
        runs.close()
        page.close()


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """Open the page in a new context, as a visitor who has seen the tour."""
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    page = context.new_page()
    page.add_init_script("localStorage.setItem('attention-lab-tour', 'done')")
    page.goto(address, wait_until="commit")
    try:
        yield page
    finally:
        context.close()


def rate_with_page(browser: Browser, runs: Runs, address: str) -> float:
    """Return the rate of a training started and watched on an open page, divided by the rate without any page.

    The median of pairs; every second pair begins with the page.
    """
    preset = load_preset("digits-reversal").with_changes({"training.steps": RATE_STEPS})
    last = runs.start(preset)  # warm-up; a page that opens with this run has its settings in the form
    finish(runs, last)
    ratios = []
    for pair in range(RATE_PAIRS):
        seconds = {}
        for watched in (False, True) if pair % 2 else (True, False):
            seconds[watched] = train_on_page(browser, runs, f"{address}?run={last}") if watched else train(runs, preset)
        ratios.append(seconds[False] / seconds[True])
    return statistics.median(ratios)


def train_on_page(browser: Browser, runs: Runs, address: str) -> float:
    """Press Train on a page that has been open for a while, and watch; return the training time in seconds."""
    with opened(browser, address) as page:
        page.wait_for_function(ANSWERED)
        page.locator("#train:enabled").wait_for()
        page.wait_for_timeout(SETTLE_MS)
        page.locator("#train").click()
        while not runs.active():
            page.wait_for_timeout(50)
        return finish(runs, runs.active()[0].folder.name)


def train(runs: Runs, preset: Any) -> float:
    """Train a preset; return its training time in seconds."""
    return finish(runs, runs.start(preset))


def finish(runs: Runs, name: str) -> float:
    """Wait for the end of a run; return its training time in seconds."""
    while runs.active():
        time.sleep(0.05)
    return runs[name].info.seconds


if __name__ == "__main__":
    sys.exit(main())
