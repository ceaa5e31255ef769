"""The page over a model that has nothing but decoder self-attention: the input's columns come first in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config import Preset
from core.runs import Runs
from tests.core.watching import wait_until
from ui import page
from ui.views import BLOCK_NAMES, Seen

RUN = "causal"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, tiny: Preset) -> Iterator[Runs]:
    """A lab whose one run is a decoder-only model's."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    runs = Runs(root)
    runs.start(tiny.with_changes({"model.family": "decoder-only"}), name=RUN)
    wait_until(runs, RUN, "finished", "failed")
    yield runs
    runs.close()


def test_its_attention_over_input_and_answer_is_shown_scored_and_marked(lab):
    shown = page._answer(lab, RUN, "4829", "cross", "2")
    seen: Seen = shown[0]
    _, _, answer, _, glance, *_, block, layer, viewer, address = shown
    assert [seen.layers(each) for each in BLOCK_NAMES] == [0, 2, 0]
    assert block["choices"] == [("decoder self-attention", "decoder")]
    assert (block["value"], layer["value"], viewer["block"]) == ("decoder", "2", "decoder")
    read = [step["read"] for step in answer["steps"]]
    assert viewer["columns"] == ["<BOS>", "4", "8", "2", "9", "<EOS>", *read]
    for head in viewer["heads"]:
        for row, weights in enumerate(head["weights"]):
            assert sum(weights) == pytest.approx(1, abs=5e-3)
            assert not any(weights[6 + row + 1 :])  # a step does not see what is yet to come
        assert 0 <= head["score"] <= 1
    assert viewer["marked"][0] == [0, 4]  # the first digit of the answer is the last of the input
    assert "reads its input as the beginning" in viewer["caption"]
    assert glance["block"] == "decoder"
    assert "block=decoder" in address
