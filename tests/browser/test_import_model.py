"""Models of other programs on the page: imported from a path, and with many heads in many layers."""

import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from core.server import Runs
from tests.browser.chromium import DESKTOP, NOTHING_SIDEWAYS, PHONE, choose_run, open_tab
from tests.support.foreign_models import MARIAN, StateDictModel, write_folder, write_marian_text_model


def type_path(page: Page, path: Path) -> None:
    """Open the form, and name a path in it."""
    page.get_by_role("button", name="Import a model").click()
    field = page.get_by_role("textbox", name="Folder or file")
    expect(field).to_be_focused()
    field.fill(str(path))


def test_a_folder_is_imported_and_becomes_the_run_of_every_tab(page: Page, tmp_path: Path):
    type_path(page, write_marian_text_model(tmp_path / "opus-tiny"))
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("#run-bar .run .title")).to_have_text(re.compile(r"^opus-tiny"))
    expect(page.locator("#run-bar .status")).to_have_text("imported")
    expect(page.locator("#run-bar .message-text")).to_contain_text("Marian: 1 encoder and 2 decoder layers, 2 heads")
    expect(page.locator("#bench-view .answers-hint")).to_contain_text("imported without the history of its training")

    open_tab(page, "Decode")
    expect(page.locator("#decode-message")).to_contain_text("Decoded with opus-tiny")
    open_tab(page, "Look inside")
    expect(page.locator("#viewer .head-grid .thumbnail")).to_have_count(4)
    expect(page.locator("#why .say")).to_contain_text("Integrated gradients name")
    page.get_by_role("button", name="Measure all heads").click()
    message = page.locator("#heads-message .notice")
    expect(message).to_contain_text("imported without pairs")
    expect(message).not_to_have_class(re.compile("bad"))
    open_tab(page, "Train")
    page.get_by_role("button", name="Copy this run's settings").click()
    expect(page.locator("#train-problem")).to_contain_text("nothing here to train it on")


@pytest.mark.slow
def test_the_mapping_of_a_state_dict_is_corrected_on_the_page(page: Page, tmp_path: Path):
    torch.save(StateDictModel().state_dict(), tmp_path / "my_model.pt")
    type_path(page, tmp_path / "my_model.pt")
    mapping, start = page.get_by_role("textbox", name="Mapping"), page.get_by_role("button", name="Import", exact=True)
    expect(mapping).to_be_hidden()
    start.click()
    expect(mapping).to_have_value(re.compile("num_heads: 8"))
    expect(page.locator("#model-message")).to_contain_text("Check the mapping, then press Import again")
    expect(page.locator("#model-message .notice")).to_be_in_viewport()
    mapping.fill(mapping.input_value().replace("num_heads: 8", "num_heads: 5"))
    start.click()
    expect(page.locator("#model-message .notice.bad")).to_contain_text("must be divisible by")
    mapping.fill(mapping.input_value().replace("num_heads: 5", "num_heads: 4"))
    start.click()
    expect(page.locator("#run-bar .run .title")).to_have_text(re.compile(r"^my-model"))
    expect(page.locator("#run-bar .message-text")).to_contain_text(
        "nn.Transformer: 1 encoder and 1 decoder layers, 4 heads"
    )


def test_what_is_wrong_with_a_path_is_said_beside_it(page: Page, tmp_path: Path):
    title = page.locator("#run-bar .run .title").inner_text()
    type_path(page, tmp_path / "nothing")
    page.keyboard.press("Enter")
    message = page.locator("#model-message .notice.bad")
    expect(message).to_contain_text("there is no such file or folder")
    expect(message).to_be_in_viewport()
    folder = write_folder(tmp_path / "bert", MARIAN | {"model_type": "bert"}, {})
    page.get_by_role("textbox", name="Folder or file").fill(str(folder))
    page.get_by_role("button", name="Import", exact=True).click()
    expect(message).to_contain_text("config.json: model_type = 'bert' is not supported")
    page.get_by_role("button", name="Back to the charts").locator("visible=true").click()
    expect(page.locator("#bench-view")).to_be_visible()
    expect(page.locator("#run-bar .run .title")).to_have_text(title)


@pytest.mark.slow
@pytest.mark.parametrize("page", [DESKTOP, PHONE], indirect=True, ids=["desktop", "phone"])
def test_the_heads_of_six_layers_of_sixteen_fit_on_the_page(page: Page, runs: Runs, tmp_path: Path):
    size = {"encoder_layers": 6, "decoder_layers": 6, "d_model": 64}
    heads = {"encoder_attention_heads": 16, "decoder_attention_heads": 16}
    folder = write_folder(tmp_path / "deep", MARIAN | size | heads)
    run = runs.import_model(folder)
    try:
        choose_run(page, runs[run].title)
        open_tab(page, "Look inside")
        expect(page.locator("#viewer .head-grid .thumbnail")).to_have_count(96)
        expect(page.locator("#heads .cell")).to_have_count(3 * 6 * 17)
        assert page.evaluate(NOTHING_SIDEWAYS)
        cut = """(boxes) => boxes.flatMap((box) => [...box.querySelectorAll("button, label, canvas")]
            .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)).length"""
        assert page.locator("#viewer .head-grid, #heads").evaluate_all(cut) == 0
        overlapping = """(box) => { const cells = [...box.querySelectorAll(".cell .figure, .cell .name")];
            return cells.filter((each) => each.scrollWidth > each.parentElement.clientWidth).length; }"""
        assert page.locator("#heads").evaluate(overlapping) == 0
    finally:
        runs.delete(run)
