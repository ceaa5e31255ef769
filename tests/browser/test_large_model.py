"""Look inside with 24 layers of 24 heads: the heads scroll in boxes of their own, and nothing is clipped."""

import pytest
import torch
from playwright.sync_api import Page, expect

from core.runs.importing_models import import_model
from core.runs.torch_transformer import mapping_to_yaml, propose
from core.server import Runs
from tests.browser.chromium import NOTHING_SIDEWAYS, head_button
from tests.support.foreign_models import StateDictModel

pytestmark = pytest.mark.slow
LAYERS = HEADS = 24
# Elements of a kind whose text does not fit, or that another covers at its middle.
CLIPPED = """(nodes) => nodes.filter((node) => {
    const [box, own] = [node.closest("label, button"), node].map((each) => each.getBoundingClientRect());
    return own.width && (own.left < box.left - 0.5 || own.right > box.right + 0.5 || own.bottom > box.bottom + 0.5);
}).map((node) => node.textContent)"""
HEIGHT = "(node) => node.getBoundingClientRect().height"
IS_INSIDE = """(node) => {
    const [box, own] = [node.closest(".head-grid"), node].map((each) => each.getBoundingClientRect());
    return own.top >= box.top - 1 && own.bottom <= box.bottom + 1;
}"""


@pytest.fixture(scope="module")
def large(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an imported run with 24 layers of 24 heads on each side."""
    folder = tmp_path_factory.mktemp("large")
    torch.manual_seed(0)
    state = StateDictModel(d_model=96, heads=HEADS, layers=LAYERS).state_dict()
    torch.save(state, folder / "large.pt")
    mapping = mapping_to_yaml(propose(state).model_copy(update={"num_heads": HEADS, "max_seq_len": 8}))
    run, _ = import_model(runs.root, folder / "large.pt", mapping=mapping, name="large")
    return run.name


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (360, 740)], ids=["laptop", "phone"])
def test_many_layers_of_many_heads_stay_usable(empty_page: Page, address: str, large: str, width: int, height: int):
    empty_page.set_viewport_size({"width": width, "height": height})
    empty_page.goto(f"{address}?run={large}&input=5+6+7&tab=attention&block=cross&layer=20&head=23")
    viewer, grid = empty_page.locator("#viewer"), empty_page.locator("#viewer .head-grid")
    expect(viewer.locator("canvas.map")).to_be_visible()
    expect(grid.locator(".thumbnail")).to_have_count(LAYERS * HEADS)
    assert grid.evaluate(HEIGHT) < 0.85 * height  # the others scroll
    selected = grid.locator(".thumbnail", has=empty_page.locator("input:checked"))
    expect(selected).to_have_attribute("title", "layer 20, head 23")
    assert selected.evaluate(IS_INSIDE)
    assert grid.locator(".head-label").evaluate_all(CLIPPED) == []
    expect(viewer.locator(".model-layer")).to_have_count(2 * LAYERS)
    importance = empty_page.locator("#heads")
    expect(importance.locator(".cell")).to_have_count(3 * LAYERS * (HEADS + 1))
    assert importance.locator(".importance-box").evaluate(HEIGHT) <= 700
    importance.locator(".figure").evaluate_all("(nodes) => nodes.forEach((node) => (node.textContent = '99.6 %'))")
    assert importance.locator(".figure").evaluate_all(CLIPPED) == []
    assert empty_page.evaluate("document.documentElement.scrollHeight") < 10 * height
    assert empty_page.evaluate(NOTHING_SIDEWAYS)
    last = head_button(empty_page, "cross.24.24")
    last.click()
    expect(last).to_have_attribute("aria-pressed", "true")
    expect(empty_page.locator("#attention-edited .row").nth(1)).to_contain_text("without cross.24.24")
