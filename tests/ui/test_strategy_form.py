"""Decoding strategies: controls, validation, the address, and comparison."""

import pytest

from core.config import ConfigError
from core.generation import GREEDY, Beam, Sample, Strategy
from core.server import Runs
from core.server.access import VisitorRuns
from tests.serving import SHIPPED
from tests.ui.addresses import address_of
from ui import page
from ui.components.answer import FAILED
from ui.forms import strategy_form
from ui.interventions import NO_INTERVENTIONS
from ui.tabs import decode


def filled(strategy: Strategy) -> list:
    return [update["value"] for update in strategy_form.controls_for(strategy)]


STRATEGIES = [GREEDY, Beam(beam_size=3, n_best=2, repetition_penalty=1.5), Sample(temperature=0.7, top_k=4, seed=9)]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.kind)
def test_a_strategy_survives_controls_and_address(strategy):
    values = filled(strategy)
    assert strategy_form.strategy_in(strategy.kind, values) == strategy
    as_floats = [float(value) for value in values]  # a number field gives 3.0 for 3
    assert strategy_form.strategy_in(strategy.kind, as_floats) == strategy
    query = strategy_form.as_query(strategy.kind, "9 2", values)
    assert query["prefix"] == "9 2"
    in_address = {name: value for name, value in query.items() if value}  # the page removes empty parameters
    assert strategy_form.from_query(in_address) == strategy
    shown = [update["visible"] for update in strategy_form.controls_for(strategy)]
    assert shown == [update["visible"] for update in strategy_form.visible_settings(strategy.kind)]
    names = [each.field for each, visible in zip(strategy_form.settings(), shown, strict=True) if visible]
    assert sorted(names) == sorted(strategy.model_dump(exclude={"kind"}))


@pytest.mark.parametrize(
    "spec",
    [
        {"strategy": "guess"},
        {"strategy": "beam", "beam_size": "many"},
        {"strategy": "beam", "beam_size": "1000"},
        {"strategy": "sample", "seed": "{a: [b]}"},
        {"strategy": "sample", "top_p": "*x"},
        {"strategy": "<script>"},
    ],
    ids=str,
)
def test_an_invalid_strategy_in_the_address_becomes_greedy(runs: Runs, spec):
    assert strategy_form.from_query(spec) == GREEDY
    opened = page._open(VisitorRuns(runs), spec)
    assert opened["kind"] == "greedy"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("beam_size", None, "beam_size is empty"),
        ("beam_size", 0, "beam_size=0 should be greater than or equal to 1"),
        ("beam_size", 2.5, "beam_size=2.5"),
        ("n_best", 5, "n_best=5 must not be above beam_size=4"),
        ("length_penalty", -1, "length_penalty=-1"),
    ],
)
def test_an_invalid_strategy_setting_is_explained(runs: Runs, field, value, message):
    values = filled(Beam())
    places = [(each.family, each.field) for each in strategy_form.settings()]
    values[places.index(("beam", field))] = value
    with pytest.raises(ConfigError):
        strategy_form.strategy_in("beam", values)
    decoded, updates = decode.decode(runs, SHIPPED, "4829", "beam", "", *values)
    notice, answer, tree = (updates[name] for name in ("message", "answer", "tree"))
    assert (decoded, answer, tree) == (None, FAILED, None)
    assert notice["problem"]
    assert message in notice["text"]
    assert set(strategy_form.as_query("beam", "", values).values()) == {""}  # the address gets none of it


def test_beam_search_shows_its_n_best_hypotheses_and_its_tree(runs: Runs):
    _, updates = decode.decode(runs, SHIPPED, "4829", "beam", "", *filled(Beam(n_best=3)))
    answer, tree = updates["answer"], updates["tree"]
    assert answer["n_best"][0]["output"] == answer["output"] == list("9284")
    assert len(answer["n_best"]) == 3
    scores = [ranked["score"] for ranked in answer["n_best"]]
    assert scores == sorted(scores, reverse=True)
    won = [node for node in tree["nodes"] if node["winning"]]
    assert [node["token"] for node in won] == [*"9284", "<EOS>"]
    for node in tree["nodes"]:
        assert node["parent"] is None or tree["nodes"][node["parent"]]["step"] == node["step"] - 1


def test_prefix_tokens_are_marked_and_the_model_continues(runs: Runs):
    decoded, updates = decode.decode(runs, SHIPPED, "4829", "greedy", "7 7", *filled(GREEDY))
    answer, tree = updates["answer"], updates["tree"]
    assert answer["output"][:2] == ["7", "7"]
    assert [step["forced"] for step in answer["steps"][:3]] == [True, True, False]
    assert answer["steps"][0]["probability"] < 0.5
    assert tree is None
    assert decoded.inspection.log_prob < -5


def test_all_strategies_decode_the_same_input(runs: Runs):
    values = filled(Sample(temperature=5.0, seed=3))
    updates = decode.compare(runs, SHIPPED, NO_INTERVENTIONS, "4829", "", *values)
    message, shown = updates["strategies_message"], updates["strategies"]
    assert message == {"text": ""}  # clears the error of an earlier comparison
    assert [row["label"].split(",")[0] for row in shown["rows"]] == ["greedy", "beam", "sample"]
    assert shown["rows"][2]["label"] == "sample, temperature 5, seed 3"
    assert shown["rows"][0]["output"] == list("9284")
    assert shown["rows"][2]["output"] != list("9284")
    assert shown["rows"][2]["log_prob"] < shown["rows"][0]["log_prob"]
    updates = decode.compare(runs, SHIPPED, NO_INTERVENTIONS, "x", "", *values)
    message, shown = updates["strategies_message"], updates["strategies"]
    assert message["problem"]
    assert shown is None


def test_the_address_restores_the_strategy(runs: Runs):
    values = filled(Beam(beam_size=2))
    opened = page._open(
        VisitorRuns(runs), address_of(page._decode(runs, SHIPPED, "4829", NO_INTERVENTIONS, "beam", "9", *values))
    )
    assert (opened["kind"], opened["prefix"]) == ("beam", "9")
    assert [opened[name]["value"] for name in strategy_form._names()] == values
