"""The attention viewer: maps of a decode, and the training replay."""

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
def decoded(runs: Runs):
    """What the shipped run made of 4 8 2 9."""
    return decode.decode(runs, SHIPPED, "4 8 2 9")[0]


def test_a_decode_contains_every_recorded_attention_map(decoded):
    value = attention_value(decoded)
    record = value["decode"]
    assert record["source"] == ["<BOS>", *"4829", "<EOS>"]
    assert record["tokens"] == record["expected"] == [*"9284", "<EOS>"]
    assert {each["block"]: each["columns"] for each in record["blocks"]} == {
        "cross": "source",
        "decoder": "read",
        "encoder": "source",
    }
    for block, packed in record["maps"].items():
        recorded = getattr(decoded.inspection.maps, block)[:, 0].numpy()
        assert np.allclose(unpacked(packed), recorded, atol=1e-5)
    json.dumps(value)


def test_attention_mass_is_the_mean_over_the_gold_cells(decoded):
    record = attention_value(decoded)["decode"]
    assert record["gold_cells"] == [[0, 4], [1, 3], [2, 2], [3, 1]]
    weights = unpacked(record["maps"]["cross"])
    shares = np.mean([weights[:, :, row, column] for row, column in record["gold_cells"]], axis=0)
    assert np.allclose(shares, record["attention_mass"], atol=1e-4)
    assert record["uniform_mass"] == pytest.approx(1 / 6)


def test_selecting_the_same_cell_twice_gives_two_selections(decoded):
    assert attention_value(decoded)["selection"] == {}
    opened = attention_value(decoded, block="cross", layer=2, row=0)["selection"]
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


def test_a_replay_contains_metrics_inputs_and_snapshots(trained):
    record = call(attention_viewer(trained), "replay", {"run": "a"})
    assert (record["status"], record["step"], record["steps"]) == ("finished", 8, 8)
    assert record["points"]["columns"]["step"] == list(range(1, 9))
    assert (
        record["saved_steps"]
        == record["evaluations"]["columns"]["step"]
        == [each["step"] for each in record["snapshots"]]
        == record["weights_steps"]
        == [0, 4, 8]
    )
    assert record["inputs"][0] == {
        "source": ["<BOS>", *"4829", "<EOS>"],
        "expected": [*"9284", "<EOS>"],
        "gold_cells": ((0, 4), (1, 3), (2, 2), (3, 1)),
    }
    assert (record["scored_block"], record["scored_on"]) == ("cross", "mean over 32 fixed inputs")
    for snapshot in record["snapshots"]:
        assert np.shape(snapshot["attention_mass"]) == (1, 2)
        for spec, answer in zip(record["inputs"], snapshot["outputs"], strict=True):
            steps, keys = len(answer["tokens"]), len(spec["source"])
            assert answer["maps"]["cross"]["shape"] == (1, 2, steps, keys)
            assert answer["maps"]["encoder"]["shape"] == (1, 2, keys, keys)
            assert np.allclose(unpacked(answer["maps"]["cross"]).sum(axis=-1), 1, atol=keys * 0.002)
    json.dumps(record)


def test_a_replay_request_returns_only_newer_data(trained):
    held = {"since": 4, "since_step": 6, "since_evaluation": 4, "step_width": 1, "evaluation_width": 1}
    record = call(attention_viewer(trained), "replay", {"run": "a"} | held)
    assert [each["step"] for each in record["snapshots"]] == [8]
    assert record["evaluations"]["columns"]["step"] == [4, 8]
    assert record["points"]["columns"]["step"] == [6, 7, 8]
    assert record["saved_steps"] == [0, 4, 8]


def test_a_run_without_snapshots_returns_its_metrics(trained, tmp_path):
    kept = ("preset.yaml", "run.json", "metrics.jsonl")
    (tmp_path / "a").mkdir()
    for name in kept:
        shutil.copy(trained.root / "a" / name, tmp_path / "a" / name)
    record = call(attention_viewer(Runs(tmp_path)), "replay", {"run": "a"})
    assert (record["saved_steps"], record["inputs"], record["blocks"], record["scored_block"]) == ([], [], [], None)
    assert record["points"]["columns"]["step"] == list(range(1, 9))
    assert record["weights_steps"] == []


def test_a_model_too_large_for_maps_still_has_scores():
    record = replay_value([Snapshot(0, (), (), ((0.5,),), 0.25, 32)])
    assert record["snapshots"] == [
        {"step": 0, "attention_mass": ((0.5,),), "induction": None, "marks": {}, "outputs": []}
    ]
    assert record["blocks"] == []
    assert record["scored_block"] is not None


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
def test_malformed_replay_requests_return_an_error(runs: Runs, request_):
    assert call(attention_viewer(runs), "replay", request_).keys() == {"error"}
