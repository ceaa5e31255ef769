"""The shape trace: the tensors of a real batch, in the order in which the model computes them."""

import pytest

from core.__main__ import main
from core.config import Preset
from core.interpret.shape_trace import TensorTrace, _axes, named_shape, trace_shapes
from core.models import parameters_of
from core.tasks import build_task


@pytest.fixture(scope="module")
def traces(tiny: Preset) -> dict[str, TensorTrace]:
    """The trace of the tiny Transformer, by name."""
    return {each.name: each for each in trace_shapes(tiny)}


def test_tensors_have_the_shapes_of_the_preset(traces):
    batch, source, target, width, heads = 8, 7, 6, 16, 2  # 2 to 5 digits, with BOS and EOS
    assert traces["src"].shapes == {"": (batch, source)}
    assert traces["tgt_in"].shapes == {"": (batch, target)}
    assert traces["src_embedding"].shapes == {"": (batch, source, width)}
    cross = traces["decoder_layers.0.cross_attention"]
    assert cross.shapes == {"": (batch, target, width), "weights": (batch, heads, target, source)}
    assert (cross.block, cross.layer) == ("cross", 1)
    assert traces["decoder_layers.0.cross_attention.hook_q"].shapes == {"": (batch, heads, target, width // heads)}
    assert traces["decoder_layers.0.self_attention.hook_mask"].shapes == {"": (target, target)}
    assert traces["decoder_layers.0.hook_resid_post"].shapes == {"": (batch, target, width)}
    assert traces["logits"].shapes == {"": (batch, target, 13)}


def test_tensors_come_in_the_order_of_the_forward_pass(traces):
    order = ["src", "src_embedding", "encoder_layers.0.hook_resid_pre", "encoder_layers.0.self_attention"]
    order += ["encoder_layers.0", "tgt_embedding", "decoder_layers.0.self_attention"]
    order += ["decoder_layers.0.cross_attention.hook_pattern", "decoder_layers.0.cross_attention", "output", "logits"]
    assert [name for name in traces if name in order] == order


def test_a_decoder_only_model_reads_the_source_and_then_the_target(tiny):
    preset = tiny.with_changes({"model.family": "decoder-only"})
    both = [each for each in trace_shapes(preset) if each.name == "layers.0.self_attention"]
    assert [each.shapes[""][1] for each in both] == [7, 6]
    assert both[1].shapes["weights"] == (8, 2, 6, 13)  # the target attends to the source as well
    assert {each.block for each in both} == {"decoder"}


def test_the_steps_of_a_recurrent_decoder_are_counted(tiny_gru):
    attention = next(each for each in trace_shapes(tiny_gru) if each.name == "decoder.attention")
    assert attention.calls == 6
    assert (attention.block, attention.layer) == ("cross", 1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.positions": "vo-rope", "model.tie_embeddings": "all"},
        {"model.family": "decoder-only", "model.norm": "pre"},
        {"model.family": "encoder-only", "model.positions": "learned"},
        {"model.family": "gru", "model.cell": "lstm"},
        {"model.family": "gru", "model.cell": "stack-rnn"},
        {"model.family": "gru", "model.attention_type": "location-sensitive"},
        {"model.family": "gru", "model.attention_type": "last-token"},
        {"model.family": "gru", "model.attention_type": "none"},
    ],
    ids=str,
)
def test_the_trace_contains_all_parameters(tiny, changes):
    preset = tiny.with_changes(changes)
    parts = {
        each.name: each.parameters
        for each in trace_shapes(preset)
        if each.depth == 0 or (each.depth == 1 and each.kind.endswith("Layer"))
    }
    assert sum(parts.values()) == parameters_of(preset.model, build_task(preset.task))


def test_axes_have_the_names_of_the_docstrings(tiny, tiny_gru):
    named = {
        (each.name, key): named_shape(shape, each.axes[key])
        for each in trace_shapes(tiny)
        for key, shape in each.shapes.items()
    }
    assert named["src", ""] == "(B=8, S=7)"
    assert named["decoder_layers.0.cross_attention.hook_k", ""] == "(B=8, H=2, S=7, K=8)"
    assert named["decoder_layers.0.cross_attention", ""] == "(B=8, T=6, D=16)"
    assert named["decoder_layers.0.cross_attention", "weights"] == "(B=8, H=2, Tq=6, Tk=7)"
    assert named["encoder_layers.0.feed_forward.hook_post", ""] == "(B=8, S=7, F=32)"
    assert named["logits", ""] == "(B=8, T=6, V=13)"
    recurrent = {each.name: each for each in trace_shapes(tiny_gru.with_changes({"model.cell": "lstm"}))}
    assert recurrent["decoder.hook_state"].axes[""] == ("L", "B", "2D")
    assert recurrent["src_embedding"].axes[""] == ("B", "S", "E")
    stack = {each.name: each for each in trace_shapes(tiny_gru.with_changes({"model.cell": "stack-rnn"}))}
    assert stack["decoder.hook_state"].axes[""] == ("L", "B", "N")
    assert (recurrent["src"].dtype, recurrent["logits"].dtype) == ("int64", "float32")


@pytest.mark.parametrize("family", ["transformer", "decoder-only", "encoder-only", "gru"])
def test_every_tensor_of_the_lab_has_named_axes_of_their_sizes(tiny, family):
    for each in trace_shapes(tiny.with_changes({"model.family": family})):
        for key, shape in each.shapes.items():
            assert len(each.axes[key]) == len(shape), each


def test_a_tensor_of_another_shape_has_no_names():
    """A plugin's module may reshape its input; a wrong name would be worse than none."""
    sizes = {"B": 8, "S": 7, "T": 6, "D": 16, "H": 2, "K": 8, "F": 32, "V": 13}
    assert _axes("layers.0.feed_forward", (8, 7, 16), "S", sizes) == ("B", "S", "D")
    assert _axes("layers.0.feed_forward", (8, 16, 7), "S", sizes) == ()
    assert _axes("layers.0.feed_forward", (2, 2, 2, 2, 2), "S", sizes) == ()
    assert named_shape((8, 16, 7), ()) == "(8, 16, 7)"


def test_describe_prints_the_trace(capsys):
    assert main(["describe", "--preset", "tiny", "--shapes"]) == 0
    printed = capsys.readouterr().out
    assert "decoder_layers.0.cross_attention" in printed
    assert "float32  (B=64, T=6, D=32)   weights (B=64, H=2, Tq=6, Tk=7)" in printed
