"""``bench waits``: how long a person waits, from pressing to seeing, on the command line and on the page.

Cold is the first time: of a command, in a copy of the program that is not compiled to bytecode, while the packages are;
on the page, after the server has started. Warm is the median of further times, which take turns, and the longest of
them. The page opens in a browser profile without a cache, and again with it. The operating system's cache of files is
warm throughout. No other program should run at the same time.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.page_load.app_process import AppProcess
from core.runs import DEFAULT_ROOT

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED, OTHER, TRANSLATOR = "digits-reversal-shipped", "digits-again", "translate-en-de-shipped"
ROUNDS = 3
LONG = 0.5  # seconds: waits above it are marked
PATIENCE = 120_000  # milliseconds
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ANSWERED = """() => document.querySelectorAll('#bench-view .answer').length >= 3
  && [...document.querySelectorAll('#bench-view .map canvas')].filter((map) => map.width > 10).length >= 4"""
REFUSED = "a wrong option"
COMMANDS = {
    "--help": ["--help"],
    "runs": ["runs"],
    "presets": ["presets"],
    REFUSED: ["train", "--preset", "tiny", "--step", "5"],
    "describe": ["describe", "--preset", "digits-reversal"],
    "decode 4 8 2 9": ["decode", "--run", SHIPPED, "4 8 2 9"],
    "translate a sentence": ["translate", "--run", TRANSLATOR],
    "evaluate": ["evaluate", "--run", SHIPPED],
    "analyze": ["analyze", "--run", SHIPPED],
    "doctor": ["doctor", "--run", SHIPPED],
    "compare two runs": ["compare", "--runs", f"{SHIPPED},{OTHER}"],
    "report": ["report", "--run", SHIPPED, "--out", "{out}"],
    "train tiny": ["train", "--preset", "tiny", "--run", "{new}"],
}


@dataclass(frozen=True)
class Wait:
    """Seconds that a person waits: the first time, and the median and the longest of later times."""

    where: str
    what: str
    cold: float
    warm: float
    worst: float


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object in the last line")
    options = parser.parse_args()
    print(f"{'':12} {'':28} {'cold':>7} {'warm':>7} {'(worst)':>9}  seconds; * above {LONG} s when warm")
    waits = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkpoints"
        for name in (SHIPPED, TRANSLATOR):
            shutil.copytree(DEFAULT_ROOT / name, root / name)
        shutil.copytree(root / SHIPPED, root / OTHER)
        for_page = Path(folder) / "page"
        shutil.copytree(root, for_page / "checkpoints", ignore=shutil.ignore_patterns(SHIPPED))  # the app copies it
        for wait in chain(command_waits(root), page_waits(for_page)):
            mark = " *" if wait.warm > LONG else ""
            row = f"{wait.where:12} {wait.what:28} {wait.cold:7.2f} {wait.warm:7.2f} {f'({wait.worst:.2f})':>9}{mark}"
            print(row, flush=True)
            waits.append(wait)
    if options.json:
        print(json.dumps({"benchmark": "waits", "waits": [asdict(each) for each in waits]}))
    return 0


def command_waits(root: Path) -> Iterator[Wait]:
    """Yield the wait for every command, from its start to its end."""
    cold = _without_bytecode(root)
    warm: dict[str, list[float]] = {what: [] for what in COMMANDS}
    for _ in range(ROUNDS):
        for what, arguments in COMMANDS.items():
            warm[what].append(_run(what, arguments, root))
    for what, seconds in warm.items():
        yield Wait("command line", what, cold[what], statistics.median(seconds), max(seconds))


def _without_bytecode(root: Path) -> dict[str, float]:
    """Return the seconds of every command in a copy of the program that has no bytecode and writes none."""
    program = root.parent / "program"
    for folder in ("core", "presets"):
        shutil.copytree(REPOSITORY / folder, program / folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONDONTWRITEBYTECODE": "1"}
    return {what: _run(what, arguments, root, program, environment) for what, arguments in COMMANDS.items()}


def _run(
    what: str,
    arguments: list[str],
    root: Path,
    program: Path = REPOSITORY,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> float:
    """Return the seconds of a command; an error is raised unless it ends as it should."""
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        filled = [each.format(out=folder, new=Path(folder).name.replace("_", "-")) for each in arguments]
        command = [sys.executable, "-m", "core", "--checkpoints", str(root), *filled]
        started = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=program,
            input="Open the window.\n",
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | environment,
        )
        seconds = time.perf_counter() - started
    if done.returncode != (2 if what == REFUSED else 0):
        raise RuntimeError(f"{' '.join(filled)} failed: {done.stderr[-2000:]}")
    return seconds


def page_waits(folder: Path) -> Iterator[Wait]:
    """Yield the wait for the app, for its page, and for what a visitor presses, from the press to what it shows."""
    started = time.perf_counter()
    app = AppProcess(folder, public=False)
    try:
        app.wait_until_ready()
        start = time.perf_counter() - started
        yield Wait("page", "start the app", start, start, start)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS))
            opened = [_opened_twice(browser, app.address) for _ in range(ROUNDS + 1)]
            pressed: dict[str, list[float]] = {what: [] for what in PRESSES}
            for _ in range(ROUNDS + 1):
                for what, press in PRESSES.items():
                    with _visit(browser, app.address) as visited:
                        pressed[what].append(press(visited))
            browser.close()
        new, again = zip(*opened, strict=True)
        for what, (cold, *later) in {"open it": new, "open it again": again, **pressed}.items():
            yield Wait("page", what, cold, statistics.median(later), max(later))
    finally:
        app.close()


def _opened_twice(browser: Browser, address: str) -> tuple[float, float]:
    """Return the seconds to open the page in a new browser profile, and again in the same."""
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    context.add_init_script("localStorage.setItem('attention-lab-tour', 'done')")
    times = []
    for _ in range(2):
        page = context.new_page()
        started = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.wait_for_function(ANSWERED, polling=20, timeout=PATIENCE)
        times.append(time.perf_counter() - started)
        page.close()
    context.close()
    return times[0], times[1]


@contextmanager
def _visit(browser: Browser, address: str) -> Iterator[Page]:
    """Open the page with the shipped run as a visitor who has seen the tour, and wait until it is ready."""
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    context.set_default_timeout(PATIENCE)
    context.add_init_script("localStorage.setItem('attention-lab-tour', 'done')")
    page = context.new_page()
    page.goto(f"{address}?run={SHIPPED}")
    page.wait_for_function(ANSWERED, polling=20, timeout=PATIENCE)
    page.locator("#train:enabled").wait_for()
    page.wait_for_load_state("load")
    page.wait_for_timeout(1_000)  # what the page still fetches after it is ready is not the press's
    try:
        yield page
    finally:
        context.close()


def _timed(press: Callable[[], None], seen: Callable[[], object]) -> float:
    started = time.perf_counter()
    press()
    seen()
    return time.perf_counter() - started


def _tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def _train(page: Page) -> float:
    """From Train to the first update on the page."""
    before = page.locator("#run-bar .steps").text_content()
    is_moving = f"""() => {{
      const steps = document.querySelector('#run-bar .steps').textContent;
      return steps !== {before!r} && /^[1-9]/.test(steps);
    }}"""
    seconds = _timed(
        lambda: page.locator("#train").click(),
        lambda: page.wait_for_function(is_moving, polling=20, timeout=PATIENCE),
    )
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-bar .status")).to_have_text("stopped")
    return seconds


def _decode(page: Page) -> float:
    """From the typed input to its answer."""
    _tab(page, "Decode")
    field = page.get_by_role("textbox", name="Input")
    expect(page.locator("#decode-message")).to_contain_text("Decoded with")
    field.fill("4 8 2 9 1")
    return _timed(lambda: field.press("Enter"), lambda: expect(page.locator("#answer")).to_contain_text("19284"))


def _look_inside(page: Page) -> float:
    """From the tab Look inside to the arithmetic of a cell."""
    return _timed(
        lambda: _tab(page, "Look inside"),
        lambda: expect(page.locator("#viewer .story-body")).to_be_visible(timeout=PATIENCE),
    )


def _switch_run(page: Page) -> float:
    """From the choice of another run to its answers with their heads."""
    page.locator("#run-bar .run").click()
    item = page.locator("#run-bar .item", has_text=TRANSLATOR).first
    return _timed(
        item.click,
        lambda: page.wait_for_function(
            f"() => document.querySelector('#run-bar .run .title')?.textContent === {TRANSLATOR!r} && ({ANSWERED})()",
            polling=20,
            timeout=PATIENCE,
        ),
    )


def _report(page: Page) -> float:
    """From the tab Report to the report."""
    heading = page.frame_locator("#report iframe").locator("h1")
    return _timed(lambda: _tab(page, "Report"), lambda: expect(heading).to_contain_text("Report", timeout=PATIENCE))


def _compare(page: Page) -> float:
    """From the tab Compare to the verdict."""
    verdict = page.locator("#run-comparison .verdict")
    return _timed(lambda: _tab(page, "Compare"), lambda: expect(verdict).to_be_visible(timeout=PATIENCE))


def _learn(page: Page) -> float:
    """From the tab Learn to the first lesson."""
    lesson = page.locator("#lesson .list button").first
    return _timed(lambda: _tab(page, "Learn"), lambda: expect(lesson).to_be_visible(timeout=PATIENCE))


PRESSES: dict[str, Callable[[Page], float]] = {
    "Train to the first update": _train,
    "an input to its answer": _decode,
    "Look inside": _look_inside,
    "another run": _switch_run,
    "Report": _report,
    "Compare": _compare,
    "Learn": _learn,
}


if __name__ == "__main__":
    sys.exit(main())
