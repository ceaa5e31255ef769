"""Weights of large runs are rounded to 8 bits for the site, and its scripts read them back."""

import pytest
import torch
from playwright.sync_api import Browser

from core.graphs.graph import weights_of
from core.models.int8 import rounded
from core.runs import DEFAULT_ROOT, Run, RunFolder
from ui.site.build import HERE
from ui.site.weight_files import weight_file

TRANSLATOR = "translate-en-de-shipped"
READ = """async ([script, weights, parameters, bytes]) => {
  const source = script.replace(/^import .*$/m, "");
  const { unrounded } = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  return Array.from(unrounded({ weights, parameters }, Uint8Array.from(bytes)));
}"""


def test_a_row_is_off_by_half_of_its_scale_at_most_and_zeros_stay():
    matrix = torch.randn(50, 30, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 3, 50)[:, None]
    matrix[7] = 0
    scales, integers = rounded(matrix)
    assert integers.dtype == torch.int8
    off = (scales[:, None] * integers - matrix).abs()
    assert (off <= scales[:, None] * 0.501).all()
    assert (off[7] == 0).all()
    assert (integers.abs().amax(dim=1) == 127).sum() == 49


def test_small_models_keep_their_weights():
    weights = weights_of(Run(RunFolder(DEFAULT_ROOT, "digits-reversal-shipped")).trained().model)
    name, content = weight_file(weights)
    assert name == "weights.bin"
    assert content == b"".join(weight.numpy().tobytes() for weight in weights.values())


def test_the_site_reads_what_was_rounded(chromium: Browser, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ui.site.weight_files.MAX_EXACT", 0)
    draw = torch.Generator().manual_seed(1)
    shapes = {"bias": (3,), "table": (5, 4), "norm": (2,), "output": (2, 6)}
    weights = {name: torch.randn(*shape, generator=draw) for name, shape in shapes.items()}
    name, content = weight_file(weights)
    assert name == "weights-int8.bin"
    page = chromium.new_page()
    named = [[name, list(shape)] for name, shape in shapes.items()]
    size = sum(weight.numel() for weight in weights.values())
    found = page.evaluate(READ, [(HERE / "scripts" / "weights.js").read_text(), named, size, list(content)])
    page.close()
    expected = [scales[:, None] * integers for scales, integers in map(rounded, (weights["table"], weights["output"]))]
    parts = (weights["bias"], expected[0], weights["norm"], expected[1])
    assert torch.tensor(found).equal(torch.cat([part.flatten() for part in parts]))
