"""Make the README's picture of the page: ``python -m tests.browser.take_screenshot``."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.access import VisitorRuns
from tests.browser.chromium import CHROMIUM, FLAGS
from tests.serving import SHIPPED
from ui.page import build_page
from ui.theme import LAUNCH

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "screenshot.png"


def main() -> None:
    """Serve the page over the shipped run alone, open the Attention tab and photograph it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DEFAULT_ROOT / SHIPPED, Path(folder) / SHIPPED)
        page = build_page(VisitorRuns(Runs(Path(folder))))
        _, address, _ = page.launch(**LAUNCH)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            tab = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=1.5)
            tab.goto(address)
            tab.wait_for_selector("#answer .tile")
            tab.get_by_role("tab", name="Attention").click()
            tab.wait_for_selector("#viewer canvas:visible")
            tab.wait_for_timeout(1000)
            tab.screenshot(path=PICTURE)
            browser.close()
        page.close()


if __name__ == "__main__":
    main()
