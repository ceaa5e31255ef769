"""Which Chromium drives the page, how it is started, and what every test does with it."""

import shutil

from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NOTHING_SIDEWAYS = "() => document.documentElement.scrollWidth <= window.innerWidth"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def open_tab(page: Page, name: str) -> None:
    """Open a tab by its name."""
    page.get_by_role("tab", name=name).click()
