"""The model diagram: modules, shapes, parameters and links."""

import pytest

from core.config import Preset, load_preset
from core.server.access import VisitorRuns
from ui.components.component import RunRequest
from ui.components.model_diagram import diagram_of, run_diagram


def parts_of(name: str) -> list[dict]:
    return [part for column in diagram_of(load_preset(name))["columns"] for part in column["parts"]]


def test_the_modules_of_a_transformer_have_labels_shapes_and_links():
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


def test_shared_layers_come_after_both_embeddings():
    labels = [part["label"] for part in parts_of("digits-reversal-decoder-only")]
    assert labels[:5] == [
        "encoder input (source ids)",
        "source embedding",
        "decoder input (shifted right)",
        "target embedding",
        "layer 1",
    ]


def test_an_encoder_only_model_has_no_decoder():
    encoder, output = diagram_of(load_preset("masked-digits"))["columns"]
    assert [part["label"] for part in encoder["parts"]] == [
        "encoder input (source ids)",
        "source embedding",
        "encoder layer 1",
        "encoder layer 2",
    ]
    assert [each["block"] for each in encoder["parts"][2]["inner"]] == ["encoder", None]
    assert (output["title"], [part["label"] for part in output["parts"]]) == ("Output", ["output projection", "logits"])


def test_a_recurrent_model_has_one_attention_link():
    links = [each for part in parts_of("digits-reversal-gru") for each in part["inner"] if each["block"]]
    assert [(each["block"], each["layer"]) for each in links] == [("cross", 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.tie_embeddings": "all", "model.norm": "pre"},
        {"model.family": "decoder-only", "model.tie_embeddings": "output"},
        {"model.family": "encoder-only"},
        {"model.family": "gru", "model.num_layers": 2},
    ],
    ids=str,
)
def test_the_modules_add_up_to_the_parameters(tiny: Preset, changes: dict):
    diagram = diagram_of(tiny.with_changes(changes))
    parts = [part["parameters"] for column in diagram["columns"] for part in column["parts"]]
    assert sum(parts) == diagram["parameters"]


def test_a_runs_diagram_counts_its_parameters(runs):
    assert run_diagram(VisitorRuns(runs), RunRequest(run="digits-reversal-shipped"))["parameters"] == 169_933


def test_recurrent_layers_of_either_side_are_listed_once():
    for name in ("digits-reversal-lstm", "digits-reversal-rnn"):
        encoder, decoder = (next(p for p in parts_of(name) if p["label"] == side) for side in ("encoder", "decoder"))
        assert [each["label"] for each in encoder["inner"]] == ["encoder layer 1"]
        assert [each["label"] for each in decoder["inner"]] == ["attention over the source", "decoder layer 1"]
