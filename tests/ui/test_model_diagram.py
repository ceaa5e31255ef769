"""The diagram of a model: its parts in order, with their sizes, and which attention each link opens."""

import pytest

from core.config import load_preset, preset_names
from ui.components.model_diagram import diagram_of, model_diagram_value


def parts_of(name: str) -> list[dict]:
    return [part for column in diagram_of(load_preset(name))["columns"] for part in column["parts"]]


def test_a_transformer_s_parts_have_names_sizes_and_links():
    parts = parts_of("tiny")
    assert [part["label"] for part in parts] == [
        "encoder input (source ids)",
        "source embedding",
        "encoder layer 1",
        "decoder input (shifted right)",
        "target embedding",
        "decoder layer 1",
        "output projection",
        "logits",
    ]
    inner = parts[5]["inner"]
    assert [each["label"] for each in inner] == ["self-attention", "cross-attention", "feed-forward"]
    assert [(each["block"], each["layer"]) for each in inner] == [("decoder", 1), ("cross", 1), (None, None)]
    assert inner[1]["weights"] == "64 × 2 × 6 × 7"
    assert parts[5]["parameters"] == sum(each["parameters"] for each in inner) + 3 * 64  # and three norms


def test_layers_that_read_source_and_target_stand_behind_the_embedding_of_both():
    labels = [part["label"] for part in parts_of("digits-reversal-decoder-only")]
    assert labels[:5] == [
        "encoder input (source ids)",
        "source embedding",
        "decoder input (shifted right)",
        "target embedding",
        "layer 1",
    ]


def test_a_recurrent_model_s_attention_is_its_one_link():
    links = [each for part in parts_of("digits-reversal-gru") for each in part["inner"] if each["block"]]
    assert [(each["block"], each["layer"]) for each in links] == [("cross", 1)]


@pytest.mark.parametrize("name", preset_names())
def test_the_parts_of_every_preset_hold_all_its_parameters(name):
    diagram = diagram_of(load_preset(name))
    assert sum(part["parameters"] for column in diagram["columns"] for part in column["parts"]) == diagram["parameters"]


def test_without_a_run_there_is_no_diagram(runs):
    assert model_diagram_value(runs, None) == {"columns": []}
    assert model_diagram_value(runs, "digits-reversal-shipped")["parameters"] == 169_933
