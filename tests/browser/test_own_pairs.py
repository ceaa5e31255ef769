"""Own pairs on the page: what is uploaded or pasted is what Train trains, or the page says what is missing."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.server import Runs
from tests.browser.chromium import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]
PAIRS = "".join(f"{number}\t{str(number)[::-1]}\n" for number in range(100, 160))


def test_an_uploaded_file_is_what_train_trains(page: Page, runs: Runs, tmp_path: Path):
    file = tmp_path / "backwards.tsv"
    file.write_text(PAIRS)
    before = set(runs)
    page.locator("#own-open").click()
    page.locator("#own-file input[type=file]").set_input_files(file)
    expect(page.locator("#own-preview .notice")).to_contain_text("The data is valid")
    expect(page.locator("#preset-picker input[value=backwards]")).to_be_checked()
    page.locator("#train").click()
    expect(page.locator("#run-bar .run .title")).to_contain_text("backwards")
    trained = (set(runs) - before).pop()
    assert runs[trained].preset.task.family == "own-pairs"


def test_train_says_what_is_missing_for_pairs_that_are_not_checked_or_not_valid(page: Page, runs: Runs):
    before = set(runs)
    page.locator("#own-open").click()
    page.locator("#own-pasted textarea").fill(PAIRS.replace("\t", " => "))
    page.locator("#train").click()
    notice = page.locator("#own-preview .notice")
    expect(notice).to_contain_text("not checked yet")
    page.locator("#own-look").click()
    expect(notice).to_contain_text("The data is valid")
    expect(page.locator("#preset-picker input:checked")).to_have_value(re.compile("pasted"))
    page.locator("#own-pasted textarea").fill("no arrow")
    page.locator("#own-look").click()
    expect(notice).to_contain_text("✗")
    page.locator("#train").click()
    assert set(runs) == before
