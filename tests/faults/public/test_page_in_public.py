"""The public page in a browser: sharing, deleting, and markup from users that is shown as text."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from core.config import Preset, load_preset, preset_to_yaml
from core.runs import RunFolder
from core.server.ownership import Ownership, owner_of, write_ownership
from tests.browser.chromium import CHROMIUM, DESKTOP, FLAGS, NOTHING_SIDEWAYS, PHONE, new_context, open_tab
from tests.faults.public.conftest import Public
from tests.serving import SHIPPED

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]
TITLE = "<img src=x onerror=window.hit=1> ${window.hit=1}"
MARKUP = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>${window.hit=1} {{window.hit=1}} <b>bold</b>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser: Browser, public: Public) -> Iterator[Callable[..., Page]]:
    """Return a function that opens the page as a new visitor, in a new browser context."""
    contexts = []

    def open_page(size: dict[str, int] = DESKTOP, query: str = "") -> Page:
        contexts.append(new_context(browser, viewport=size, accept_downloads=True))
        page = contexts[-1].new_page()
        page.goto(public.address + query)
        expect(page.locator("#bench-view .answer").first).to_be_visible(timeout=30_000)
        return page

    yield open_page
    for context in contexts:
        context.close()


def give_run(public: Public, page: Page, preset: Preset, name: str) -> None:
    """Create a run with the shipped run's weights, owned by the page's visitor."""
    token = next(each["value"] for each in page.context.cookies() if each["name"] == "attention-lab-visitor")
    weights = (public.runs.root / SHIPPED / "best.safetensors").read_bytes()
    folder = RunFolder.create(public.runs.root, preset, name=name, status="stopped")
    folder.best.write_bytes(weights)
    write_ownership(folder, Ownership(owner=owner_of(token)))


def test_a_run_can_be_shared_downloaded_and_deleted(public: Public, visitor: Callable[..., Page]):
    anna, ben, name = visitor(), visitor(PHONE), "bold-owl-1-a1b2c3d4e5f6a1b2c3d4e5f6"
    give_run(public, anna, load_preset("digits-reversal"), name)
    link = f"{public.address}?run={name}"
    title = "#run-bar .run .title"
    anna.goto(link)
    expect(anna.locator(title)).to_have_text("bold-owl 1", timeout=30_000)
    ben.goto(link)
    expect(ben.locator("#run-bar .message-text")).to_contain_text("not shared with you", timeout=30_000)
    expect(ben.locator(title)).to_have_text("Choose a run")

    anna.locator("#run-bar .run").click()
    menu = anna.get_by_role("dialog", name="Runs")
    expect(menu.get_by_role("button", name="Copy link")).to_be_hidden()  # it would lead others to nothing
    menu.get_by_role("button", name="Share by link").click()
    expect(menu.get_by_role("status")).to_contain_text("Everyone with the link")
    ben.goto(f"{link}&tab=decode")
    expect(ben.locator(title)).to_have_text("bold-owl 1", timeout=30_000)
    expect(ben.locator("#answer .output .tile")).to_have_text(list("9284"), timeout=30_000)
    ben.locator("#run-bar .run").click()
    theirs = ben.get_by_role("dialog", name="Runs")
    expect(theirs.get_by_role("link", name="Download run")).to_be_visible()
    for button in ("Delete", "Rename", "Stop sharing", "Share by link"):
        expect(theirs.get_by_role("button", name=button, exact=True)).to_be_hidden()
    expect(ben.locator("#run-bar .resume")).to_be_hidden()
    assert ben.evaluate(NOTHING_SIDEWAYS)

    with anna.expect_download() as download:
        menu.get_by_role("link", name="Download run").click()
    assert download.value.suggested_filename == "bold-owl 1.safetensors"  # the name has a secret
    menu.get_by_role("button", name="Delete", exact=True).click()
    expect(menu.get_by_role("button", name="Cancel")).to_be_focused()
    menu.get_by_role("button", name="Cancel").click()
    assert RunFolder(public.runs.root, name).exists()
    menu.get_by_role("button", name="Delete", exact=True).click()
    menu.get_by_role("button", name="Delete permanently").click()
    expect(anna.locator(title)).to_have_text(SHIPPED, timeout=30_000)
    assert not RunFolder(public.runs.root, name).exists()


def load_preset_file(page: Page, file: Path) -> None:
    """Upload a preset as a visitor does."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Load", exact=True).click()
    chooser.value.set_files(file)


def test_markup_in_user_input_is_shown_as_text(public: Public, visitor: Callable[..., Page], tmp_path):
    page = visitor()
    preset = load_preset("digits-reversal").model_copy(update={"name": "marked", "description": MARKUP[:200]})
    give_run(public, page, preset, "marked")
    public.runs.rename("marked", TITLE, others=[])
    page.goto(f"{public.address}?run=marked&input={MARKUP}&prefix={MARKUP}&tab=decode")
    expect(page.locator("#decode-message")).to_contain_text("<", timeout=30_000)
    page.get_by_role("textbox", name="Input").fill(MARKUP)
    page.get_by_role("button", name="Decode", exact=True).click()
    expect(page.locator("#decode-message .bad")).to_contain_text("'<'")
    open_tab(page, "Train")
    file = tmp_path / f"x{MARKUP[:9]}.yaml"
    file.write_text(preset_to_yaml(preset))
    load_preset_file(page, file)
    described = page.locator("#preset-picker label.preset", has=page.locator("input:checked"))
    expect(described.locator(".description")).to_have_text(MARKUP[:200], timeout=30_000)
    file.write_text(f"name: {MARKUP!r}\n{MARKUP}: 1\n")
    load_preset_file(page, file)
    expect(page.locator("#train-problem")).to_contain_text("✗", timeout=30_000)
    expect(page.locator("#run-bar .run .title")).to_have_text(TITLE)
    page.locator("#run-bar .run").click()
    expect(page.locator("#run-bar .item .name").first).to_have_text(TITLE)
    page.keyboard.press("Escape")
    for tab in ("Look inside", "Report", "Compare"):
        open_tab(page, tab)
        page.wait_for_timeout(500)
    page.goto(f"{public.address}?run={MARKUP}")
    expect(page.locator("#run-bar .message-text")).to_contain_text("<img src=x", timeout=30_000)
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src='x'], #run-bar .message-text b, #decode-message b").count() == 0
