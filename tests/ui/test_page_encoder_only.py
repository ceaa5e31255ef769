"""The page over an encoder-only model, which fills in masks by self-attention over its input."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.config import load_preset
from core.server import Runs
from tests.support.run_helpers import wait_for_status
from tests.ui.packed import unpacked
from tests.ui.server_functions import call
from ui import page
from ui.attention_blocks import BLOCK_NAMES
from ui.components.attention_viewer import attention_viewer
from ui.components.why_answer import why_answer, why_value
from ui.current_decode import CurrentDecode

RUN = "masked"
INPUT = "4 8 2 <MASK> 8 4"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A lab whose one run is an encoder-only model's."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    runs = Runs(root)
    few = {"training.steps": 10, "training.evaluate_every": 5, "training.validation_sequences": 20}
    runs.start(load_preset("masked-digits").with_changes(few), name=RUN)
    wait_for_status(runs, RUN, "finished", "failed")
    yield runs
    runs.close()


def test_all_heads_of_the_encoder_are_shown_with_the_gold_cells_of_masked_digits(lab):
    shown = page._decode(lab, RUN, INPUT)
    decoded: CurrentDecode = shown["current_decode"]
    thumbnails, viewer = shown["thumbnails"], shown["viewer"]
    assert [decoded.num_layers(each) for each in BLOCK_NAMES] == [0, 0, 2]
    record = viewer["decode"]
    assert record["source"] == ["<BOS>", "4", "8", "2", "<MASK>", "8", "4", "<EOS>"]
    assert [(each["block"], each["columns"]) for each in record["blocks"]] == [("encoder", "source")]
    weights = unpacked(record["maps"]["encoder"])
    assert weights.shape == (2, 4, 8, 8)
    assert np.allclose(weights.sum(axis=-1), 1, atol=1e-3)
    assert record["scored_block"] == "encoder"
    assert np.shape(record["attention_mass"]) == (2, 4)
    assert record["gold_cells"] == [[3, 3]]  # the masked digit, step 3, is the 2 in column 3
    assert "predicts all tokens of its answer at once" in record["blocks"][0]["caption"]
    assert (thumbnails["block"], len(thumbnails["heads"])) == ("encoder", 4)
    assert thumbnails["gold_cells"] == [[4, 3]]  # row 0 is BOS
    assert thumbnails["rows"][4] == {"token": "<MASK>"}


def test_the_attention_mass_is_that_of_the_masked_row(lab):
    decoded: CurrentDecode = page._decode(lab, RUN, INPUT)["current_decode"]
    for score in decoded.inspection.scores:
        weight = decoded.inspection.maps.encoder[score.layer - 1, 0, score.head - 1, 4, 3].item()
        assert score.attention_mass == pytest.approx(weight)
        assert score.uniform_mass == pytest.approx(1 / 8)


def test_its_training_can_be_replayed(lab):
    record = call(attention_viewer(lab), "replay", {"run": RUN})
    maps = record["snapshots"][-1]["outputs"][0]["maps"]
    size = len(record["inputs"][0]["source"])
    assert {block: packed["shape"] for block, packed in maps.items()} == {"encoder": (2, 4, size, size)}
    assert record["scored_block"] == "encoder"
    assert len(record["snapshots"][-1]["attention_mass"]) == 2


def test_a_filled_mask_is_explained_by_every_method_that_the_model_has(lab):
    value = why_value(page._decode(lab, RUN, INPUT)["current_decode"])
    shown = {"run": RUN, "source": value["source"], "tokens": value["tokens"]} | value["interventions"]

    def ask(method: str, **request) -> dict:
        return call(why_answer(lab), "why", {"method": method, "step": 3} | shown | request)

    parts = ask("parts")
    assert {each["head"]["block"] for each in parts["parts"] if each["head"]} == {"encoder"}
    assert sum(each["logit"] for each in parts["parts"]) == pytest.approx(parts["sum"], abs=1e-3)
    lens = ask("lens")
    assert lens["rows"][-1]["candidates"][0]["token"] == lens["target"]
    assert lens["answers"] is None
    tokens = ask("tokens")
    assert tokens["prefix"] == ()
    assert {(len(each["source"]), len(each["prefix"])) for each in tokens["methods"]} == {(8, 0)}
    assert [(each["name"], len(each["values"])) for each in tokens["zeroing"]] == [("encoder.1", 8), ("encoder.2", 8)]
    foil = next(token for token in parts["candidates"] if token.isdigit())
    patching = ask("patching", foil=foil, position=2, replacement="5")
    assert patching["corrupted"] == ("4", "8", "5", "<MASK>", "8", "4")
    assert {each["block"] for each in patching["grids"]} == {"encoder"}
    assert patching["grids"][0]["restored"][0][3] == pytest.approx(1, abs=1e-3)
