"""The page over a decoder-only model, whose self-attention covers input and output."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.config import Preset
from core.server import Runs
from tests.support.run_helpers import wait_for_status
from tests.ui.packed import unpacked
from tests.ui.server_functions import call
from ui import page
from ui.attention_blocks import BLOCK_NAMES
from ui.components.attention_viewer import attention_viewer
from ui.current_decode import CurrentDecode

RUN = "causal"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, tiny: Preset) -> Iterator[Runs]:
    """A lab whose one run is a decoder-only model's."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    runs = Runs(root)
    runs.start(tiny.with_changes({"model.family": "decoder-only"}), name=RUN)
    wait_for_status(runs, RUN, "finished", "failed")
    yield runs
    runs.close()


def test_decoder_only_attention_covers_input_and_output(lab):
    shown = page._decode(lab, RUN, "4829")
    decoded: CurrentDecode = shown["current_decode"]
    thumbnails, viewer = shown["thumbnails"], shown["viewer"]
    assert [decoded.num_layers(each) for each in BLOCK_NAMES] == [0, 2, 0]
    record = viewer["decode"]
    assert [(each["block"], each["columns"]) for each in record["blocks"]] == [("decoder", "source and read")]
    weights = unpacked(record["maps"]["decoder"])
    steps = len(record["tokens"])
    assert weights.shape == (2, 2, steps, 6 + steps)
    assert np.allclose(weights.sum(axis=-1), 1, atol=1e-3)
    for row in range(steps):  # a step does not see what is yet to come
        assert not weights[:, :, row, 6 + row + 1 :].any()
    assert record["scored_block"] == "decoder"
    assert all(0 <= share <= 1 for layer in record["attention_mass"] for share in layer)
    assert record["gold_cells"][0] == [0, 4]  # the first digit of the answer is the last of the input
    assert "reads its input as a prefix" in record["blocks"][0]["caption"]
    assert thumbnails["block"] == "decoder"


def test_its_training_can_be_replayed(lab):
    record = call(attention_viewer(lab), "replay", {"run": RUN})
    shape = record["snapshots"][-1]["outputs"][0]["maps"]["decoder"]["shape"]
    steps = len(record["snapshots"][-1]["outputs"][0]["tokens"])
    assert shape == (2, 2, steps, 6 + steps)
    health = [each.health.heads for each in lab[RUN].replay.snapshots()]
    assert [each["induction"] for each in record["snapshots"]] == [each.induction["decoder"] for each in health]
    assert np.shape(health[-1].induction["decoder"]) == (2, 2)
