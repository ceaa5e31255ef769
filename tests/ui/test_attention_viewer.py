"""What the Attention tab is given: every head of a decode, and the replay of a training."""

import json
import shutil
from collections.abc import Iterator

import numpy as np
import pytest

from core.config import Preset
from core.interpret.snapshots import Snapshot
from core.server import Runs
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for_status
from tests.ui.packed import unpacked
from tests.ui.server_functions import call
from ui.components.attention_viewer import attention_value, attention_viewer, replay_value
from ui.tabs import decode


@pytest.fixture(scope="module")
def seen(runs: Runs):
    """What the shipped run made of 4 8 2 9."""
    return decode.decode(runs, SHIPPED, "4 8 2 9")[0]


def test_every_head_of_every_layer_is_told_as_it_was_recorded(seen):
    value = attention_value(seen)
    told = value["decode"]
    assert told["source"] == ["<BOS>", *"4829", "<EOS>"]
    assert told["tokens"] == told["expected"] == [*"9284", "<EOS>"]
    assert {each["block"]: each["columns"] for each in told["blocks"]} == {
        "cross": "source",
        "decoder": "read",
        "encoder": "source",
    }
    for block, packed in told["maps"].items():
        recorded = getattr(seen.inspection.maps, block)[:, 0].numpy()
        assert np.allclose(unpacked(packed), recorded, atol=1e-5)
    json.dumps(value)


def test_the_scores_of_a_decode_are_those_of_its_marked_cells(seen):
    told = attention_value(seen)["decode"]
    assert told["gold_cells"] == [[0, 4], [1, 3], [2, 2], [3, 1]]
    weights = unpacked(told["maps"]["cross"])
    shares = np.mean([weights[:, :, row, column] for row, column in told["gold_cells"]], axis=0)
    assert np.allclose(shares, told["attention_mass"], atol=1e-4)
    assert told["uniform_mass"] == pytest.approx(1 / 6)


def test_looking_at_the_same_place_again_is_something_new(seen):
    assert attention_value(seen)["selection"] == {}
    opened = attention_value(seen, block="cross", layer=2, row=0)["selection"]
    assert {name: opened[name] for name in ("block", "layer", "row")} == {"block": "cross", "layer": 2, "row": 0}
    assert opened["at"] > 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny: Preset) -> Iterator[Runs]:
    """A lab with one finished run, ``a``."""
    runs = Runs(tmp_path_factory.mktemp("checkpoints"))
    runs.start(tiny, name="a")
    wait_for_status(runs, "a", "finished", "failed")
    yield runs
    runs.close()


def test_a_replay_tells_figures_inputs_and_snapshots(trained):
    told = call(attention_viewer(trained), "replay", {"run": "a"})
    assert (told["status"], told["step"], told["steps"]) == ("finished", 8, 8)
    assert told["points"]["step"] == list(range(1, 9))
    assert (
        told["saved_steps"] == told["evaluations"]["step"] == [each["step"] for each in told["snapshots"]] == [0, 4, 8]
    )
    assert told["inputs"][0] == {
        "source": ["<BOS>", *"4829", "<EOS>"],
        "expected": [*"9284", "<EOS>"],
        "gold_cells": ((0, 4), (1, 3), (2, 2), (3, 1)),
    }
    assert (told["scored_block"], told["scored_on"]) == ("cross", "mean over 32 fixed inputs")
    for snapshot in told["snapshots"]:
        assert np.shape(snapshot["attention_mass"]) == (1, 2)
        for asked, answer in zip(told["inputs"], snapshot["outputs"], strict=True):
            steps, keys = len(answer["tokens"]), len(asked["source"])
            assert answer["maps"]["cross"]["shape"] == (1, 2, steps, keys)
            assert answer["maps"]["encoder"]["shape"] == (1, 2, keys, keys)
            assert np.allclose(unpacked(answer["maps"]["cross"]).sum(axis=-1), 1, atol=keys * 0.002)
    json.dumps(told)


def test_only_what_is_new_is_told_again(trained):
    told = call(attention_viewer(trained), "replay", {"run": "a", "since": 4, "since_step": 6, "since_evaluation": 4})
    assert [each["step"] for each in told["snapshots"]] == told["evaluations"]["step"] == [8]
    assert told["points"]["step"] == [7, 8]
    assert told["saved_steps"] == [0, 4, 8]


def test_a_run_without_a_replay_has_its_figures_only(trained, tmp_path):
    kept = ("preset.yaml", "run.json", "metrics.jsonl")
    (tmp_path / "a").mkdir()
    for name in kept:
        shutil.copy(trained.root / "a" / name, tmp_path / "a" / name)
    told = call(attention_viewer(Runs(tmp_path)), "replay", {"run": "a"})
    assert (told["saved_steps"], told["inputs"], told["blocks"], told["scored_block"]) == ([], [], [], None)
    assert told["points"]["step"] == list(range(1, 9))


def test_a_model_too_large_for_maps_still_tells_its_scores():
    told = replay_value([Snapshot(0, (), (), ((0.5,),), 0.25, 32)])
    assert told["snapshots"] == [{"step": 0, "attention_mass": ((0.5,),), "outputs": []}]
    assert told["blocks"] == []
    assert told["scored_block"] is not None


@pytest.mark.parametrize(
    "request_",
    [
        None,
        [],
        {"run": 3},
        {"run": "../x"},
        {"run": "no-such-run"},
        {"run": SHIPPED, "since": "1"},
        {"run": "x" * 1000},
    ],
)
def test_a_request_that_makes_no_sense_gets_a_reason(runs: Runs, request_):
    assert call(attention_viewer(runs), "replay", request_).keys() == {"error"}
