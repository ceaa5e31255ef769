"""Why this answer, as the browser asks for it."""

import json
from typing import Any

import pytest

from core.interpret.attribution.direct_logit_attribution import direct_logit_attribution
from core.interpret.attribution.prediction import prediction_at
from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.access import VisitorRuns
from tests.serving import SHIPPED, TRANSLATOR
from tests.ui.server_functions import call
from ui.components.why_answer import why_answer, why_value
from ui.interventions import InterventionSpec
from ui.tabs import decode


def shown(runs: Runs, **interventions: Any) -> dict[str, Any]:
    """What the browser sends back of a decode of 4 8 2 9."""
    spec = InterventionSpec(SHIPPED, **interventions)
    value = why_value(decode.decode(runs, SHIPPED, "4 8 2 9", interventions=spec)[0])
    return {"run": value["run"], "source": value["source"], "tokens": value["tokens"]} | value["interventions"]


def ask(runs: Runs, method: str, **request: Any) -> dict[str, Any]:
    answer = call(why_answer(runs), "why", {"step": 1, "method": method} | shown(runs) | request)
    json.dumps(answer, allow_nan=False)
    return answer


def test_the_parts_are_those_of_the_core_and_sum_to_the_logit(runs):
    answer = ask(runs, "parts", foil="9")
    assert answer["question"] == "why 2, not 9?"
    loaded = runs[SHIPPED].trained()
    prediction = prediction_at(loaded.model, loaded.task, [*"4829"], step=1, foil="9", answer=[*"9284"])
    found = direct_logit_attribution(loaded.model, prediction)
    assert [part["name"] for part in answer["parts"][:-1]] == [part.name for part in found.ranked[:12]]
    assert sum(part["logit"] for part in answer["parts"]) == pytest.approx(answer["sum"], abs=1e-3)
    assert answer["sum"] == pytest.approx(found.logit, rel=1e-4)


def test_any_token_of_the_vocabulary_can_be_the_other(runs):
    answer = ask(runs, "parts")
    vocab = runs[SHIPPED].trained().task.tgt_vocab
    assert {*answer["candidates"], answer["target"]} == set(vocab.tokens)
    assert answer["lists_all"]
    assert answer["foil"] is None


def test_a_typed_word_stands_for_the_piece_that_begins_it():
    runs = VisitorRuns(Runs(DEFAULT_ROOT))
    value = why_value(decode.decode(runs, TRANSLATOR, "I know where he lives.")[0])
    request = {"run": value["run"], "source": value["source"], "tokens": value["tokens"]} | value["interventions"]
    answer = call(why_answer(runs), "why", request | {"step": 0, "method": "parts", "foil": "Sie"})
    assert answer["foil"] == "▁Sie"
    assert answer["question"].endswith(", not Sie?")
    assert not answer["lists_all"]
    refused = call(why_answer(runs), "why", request | {"step": 0, "method": "parts", "foil": "Donaudampf"})
    assert "Donaudampf" in refused["error"]


def test_the_lenses_end_in_the_answer(runs):
    answer = ask(runs, "lens")
    assert answer["rows"][-1]["candidates"][0]["token"] == answer["target"]
    assert answer["answers"][-1] == {"layer": 2, "answer": [*"9284", "<EOS>"], "matches": True}
    assert answer["first"] is not None


def test_every_token_that_was_read_has_a_number(runs):
    answer = ask(runs, "tokens")
    assert [each["name"] for each in answer["methods"]] == [
        "integrated gradients",
        "occlusion",
        "gradient × input",
        "saliency",
    ]
    for each in answer["methods"]:
        assert len(each["source"]) == len(answer["source"]) == 6
        assert len(each["prefix"]) == len(answer["prefix"]) == 2
    assert abs(answer["gap"]) <= 0.01
    assert [each["name"] for each in answer["zeroing"]] == ["cross.1", "cross.2", "decoder.1", "decoder.2"]
    cross = answer["zeroing"][1]
    assert max(zip(cross["values"], cross["columns"], strict=True))[1] == "2"  # the token that step 2 copies


def test_patching_the_changed_token_brings_the_answer_back(runs):
    answer = ask(runs, "patching", position=2, replacement="7")
    assert answer["corrupted"] == ("4", "8", "7", "9")
    residual = answer["grids"][0]
    assert residual["columns"][3] == "2"
    assert residual["restored"][0][3] == pytest.approx(1, abs=1e-4)
    assert residual["is_restored"][0][3]
    assert not residual["is_restored"][0][1]


def test_ablated_heads_add_nothing(runs):
    answer = call(
        why_answer(runs), "why", {"step": 1, "method": "parts"} | shown(runs, ablate=("cross.2",), ablate_with="zero")
    )
    assert not [part for part in answer["parts"] if part["name"].startswith("cross.2.") and abs(part["logit"]) > 1e-5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 9}, "step=10 is not a step of this answer, which has 1 to 5"),
        ({"foil": "x"}, "foil='x' is not in the vocabulary"),
        ({"foil": "2"}, "foil='2' must be another token than the target"),
        ({"method": "magic"}, "invalid request"),
        ({"method": "patching", "position": 7}, "position 8 is not a token of this input, which has 4"),
        ({"method": "patching", "position": 0, "replacement": "x"}, "replacement='x' is not in the vocabulary"),
        ({"method": "patching", "position": 0}, "no other token at position 1 makes the model predict another token"),
        ({"run": "../x"}, "../x"),
        ({"tokens": []}, "invalid request"),
        ({"source": ["<BOS>", *"4" * 99, "<EOS>"]}, "101 tokens are more than 96, which this page explains"),
    ],
)
def test_what_cannot_be_explained_is_said_in_words(runs, change, message):
    assert message in ask(runs, **{"method": "parts"} | change)["error"]
