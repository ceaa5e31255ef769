"""What Look inside opens: the parts of a model and the arithmetic of a cell, as the browser asks for them."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from core.interpret.cell import cell_arithmetic
from core.models.seq2seq import Head
from core.server import Runs
from tests.serving import SHIPPED
from tests.ui.packed import unpacked
from tests.ui.server_functions import call
from ui.components.attention_viewer import attention_value, attention_viewer
from ui.interventions import InterventionSpec
from ui.tabs import decode


def ask(runs: Runs, name: str, **request: Any) -> dict[str, Any]:
    return call(attention_viewer(runs), name, request)


def shown(runs: Runs, **interventions: Any) -> dict[str, Any]:
    """What the browser sends back of a decode of 4 8 2 9."""
    spec = InterventionSpec(SHIPPED, **interventions)
    record = attention_value(decode.decode(runs, SHIPPED, "4 8 2 9", interventions=spec)[0])["decode"]
    return {"run": record["name"], "source": record["source"], "tokens": record["tokens"]} | record["interventions"]


CELL = {"block": "cross", "layer": 2, "head": 3, "row": 1, "column": 3}


def test_a_cell_is_the_arithmetic_of_the_core(runs):
    answer = ask(runs, "cell", **shown(runs), **CELL)
    loaded = runs[SHIPPED].trained()
    src = torch.tensor([[1, *loaded.task.src_vocab.encode([*"4829"]), 2]])
    tokens = torch.tensor([[*loaded.task.tgt_vocab.encode([*"9284"]), 2]])
    cell = cell_arithmetic(loaded.model, src, tokens, Head("cross", 2, 3), 1, 3)
    assert answer["products"] == pytest.approx(cell.products.tolist(), rel=1e-5)
    assert answer["weights"] == pytest.approx(cell.weights.tolist(), rel=1e-5)
    assert answer["sum"] / answer["divisor"] == pytest.approx(answer["scores"][3], rel=1e-5)
    total = torch.tensor([each["numbers"] for each in answer["values"]]).sum(dim=0) + torch.tensor(answer["others"])
    assert total.tolist() == pytest.approx(cell.output.tolist(), abs=1e-5)
    assert 3 in [each["column"] for each in answer["values"]]
    assert answer["answer"]["produced"] == "2"
    assert max(answer["answer"]["tokens"], key=lambda each: each["logit"]).get("token") == "2"
    assert answer["replaced"] == ()
    json.dumps(answer, allow_nan=False)


def test_an_ablated_decode_is_computed_as_it_was_decoded(runs):
    answer = ask(runs, "cell", **shown(runs, ablate=("cross.2.3",), ablate_with="mean"), **CELL)
    assert answer["replaced"] == ("output",)
    assert any(answer["output"])  # the mean, not zero


def test_every_part_of_the_model_opens(runs):
    facts = ask(runs, "parts", run=SHIPPED)
    assert facts["size"] == "2 + 2 layers, 4 heads, d_model 64"
    assert facts["parts"][0]["name"] == "source.embedding"
    decoded = shown(runs)
    for part in facts["parts"]:
        if part["kind"] == "attention":
            continue
        answer = ask(runs, "part", **decoded, part=part["name"])
        rows = answer["answers"] or answer["vectors"][-1]["rows"]
        assert len(rows) == len(decoded["source" if part["side"] == "source" else "tokens"])
        assert answer["text"]
        json.dumps(answer, allow_nan=False)
    answers = ask(runs, "part", **decoded, part="output")["answers"]
    assert [step[0]["token"] for step in answers] == ["9", "2", "8", "4", "<EOS>"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": ["<BOS>", "x", "<EOS>"]}, "source has the token 'x', which is not in the vocabulary"),
        ({"source": ["4", "8"]}, "source must start with <BOS> and end with <EOS>"),
        ({"tokens": ["4"] * 65}, "tokens has 65 tokens, more than max_seq_len=64"),
        ({"row": 7}, "row=8 is not in the map of cross.2.3, which has 5"),
        ({"head": 9}, "head=cross.2.9 is not in this model"),
        ({"ablate": ["cross.7"]}, "ablate=cross.7 is not in this model"),
        ({"run": "no-such-run"}, "no-such-run"),
        ({"row": -1}, "invalid request"),
        ({"more": 1}, "invalid request"),
        ({"tokens": ["4"] * 3000}, "invalid request"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_in_words(runs, change, message):
    answer = ask(runs, "cell", **shown(runs) | CELL | change)
    assert message in answer["error"]


def test_a_part_that_is_not_there_is_refused_in_words(runs):
    answer = ask(runs, "part", **shown(runs), part="cross.2")
    assert answer["error"].startswith("part='cross.2' is not one of source.embedding,")


# ---- at a training step whose weights were kept


def replayed(runs: Runs, step: int, number: int = 0) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the browser sends of a fixed input's answer in a snapshot, and the maps of that snapshot."""
    record = ask(runs, "replay", run=SHIPPED)
    (snapshot,) = [each for each in record["snapshots"] if each["step"] == step]
    output = snapshot["outputs"][number]
    request = {"run": SHIPPED, "source": record["inputs"][number]["source"], "tokens": list(output["tokens"])}
    return request | {"training_step": step}, {block: unpacked(maps) for block, maps in output["maps"].items()}


def test_the_replay_says_which_steps_have_weights(runs):
    assert ask(runs, "replay", run=SHIPPED)["weights_steps"] == [0, 25, 125, 500, 1000]


@pytest.mark.parametrize("step", [0, 1000])
def test_every_cell_of_a_snapshot_is_computed_with_the_weights_of_its_step(runs, step):
    request, maps = replayed(runs, step, number=1)
    for block, weights in maps.items():
        for head, row in ((0, 0), (3, weights.shape[2] - 1)):
            chosen = {"block": block, "layer": 2, "head": head + 1, "row": row, "column": 0}
            answer = ask(runs, "cell", **request, **chosen)
            assert answer["model_step"] == step
            assert answer["weights"] == pytest.approx(weights[1, head, row].tolist(), abs=0.0021)  # a byte a weight
            assert answer["replaced"] == ()
            if answer["answer"]:
                produced = max(answer["answer"]["tokens"], key=lambda each: each["logit"])["token"]
                assert produced == answer["answer"]["produced"] == request["tokens"][row]


def test_the_same_cell_has_other_numbers_at_another_step(runs):
    (early, _), (late, _) = replayed(runs, 25), replayed(runs, 500)
    before, after = (ask(runs, "cell", **request, **CELL) for request in (early, late))
    assert before["query"] != after["query"]
    assert before["sum"] != after["sum"]


def test_a_part_is_computed_with_the_weights_of_its_step(runs):
    first, _ = replayed(runs, 0)
    answers = ask(runs, "part", **first, part="output")["answers"]
    assert [step[0]["token"] for step in answers] == first["tokens"]
    last, _ = replayed(runs, 1000)
    of_both = [ask(runs, "part", **request, part="source.embedding") for request in (first, last)]
    assert of_both[0]["vectors"] != of_both[1]["vectors"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (50, "step=50 is not one whose weights the run “digits-reversal-shipped” kept: 0, 25, 125, 500, 1000"),
        (1_000_000, "step=1000000 is not one whose weights"),
        (-1, "invalid request"),
        (1_000_001, "invalid request"),
        (True, "invalid request"),
    ],
)
@pytest.mark.parametrize(("name", "opened"), [("cell", CELL), ("part", {"part": "output"})])
def test_only_steps_whose_weights_were_kept_are_opened(runs, name, opened, step, message):
    assert message in ask(runs, name, **shown(runs), **opened, training_step=step)["error"]
