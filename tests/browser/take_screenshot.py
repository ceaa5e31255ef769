"""Photograph the page in training, for the README and for links: ``python -m tests.browser.take_screenshot``."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from core.runs import DEFAULT_ROOT
from core.server import Runs
from tests.browser.chromium import CHROMIUM, FLAGS, choose_preset, new_context
from tests.serving import SHIPPED
from ui.serving.launch import serve

REPOSITORY = Path(__file__).resolve().parents[2]
README, SOCIAL = REPOSITORY / "docs/images/screenshot.png", REPOSITORY / "ui/web/images/social.png"
PRESET, SECONDS = "digits-reversal", 5.0  # of training before the picture is taken
MAX_SOCIAL_BYTES = 300_000


def main() -> None:
    """Serve the page over the shipped run alone, and photograph it twice."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DEFAULT_ROOT / SHIPPED, Path(folder) / SHIPPED)
        runs = Runs(Path(folder))
        page, address = serve(runs)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            photograph(browser, address, README, {"width": 1366, "height": 768}, scale=1.5)
            photograph(browser, address, SOCIAL, {"width": 1200, "height": 630}, scale=1)
            browser.close()
        runs.close()
        page.close()
    assert SOCIAL.stat().st_size <= MAX_SOCIAL_BYTES


def photograph(browser: Browser, address: str, picture: Path, size: ViewportSize, *, scale: float) -> None:
    """Train, and save a picture of the page a few seconds later; then stop the training."""
    context = new_context(browser, viewport=size, device_scale_factor=scale, color_scheme="light")
    tab = context.new_page()
    tab.goto(address)
    choose_preset(tab, PRESET, timeout=60_000)
    tab.locator("#rail").evaluate("(rail) => rail.scrollTo(0, 0)")
    tab.wait_for_timeout(8000)  # the form has the preset, and the listed training times are measured
    tab.get_by_role("button", name="Train", exact=True).click()
    tab.wait_for_function("() => document.querySelector('#run-bar .stop:enabled')")
    tab.wait_for_timeout(1000 * SECONDS)
    expect(tab.locator("#bench-view .answer")).not_to_have_count(0, timeout=60_000)
    picture.parent.mkdir(exist_ok=True)
    tab.screenshot(path=picture)
    tab.get_by_role("button", name="Stop").click()
    expect(tab.locator("#run-bar .status")).to_have_text("stopped", timeout=60_000)
    context.close()


if __name__ == "__main__":
    main()
