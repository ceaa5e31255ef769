"""The way of a batch through a model: the tensors that are really there, in the order in which they come."""

import pytest

from core.__main__ import main
from core.config import load_preset, preset_names
from core.interpret.shape_trace import trace_shapes
from core.models import parameters_of
from core.tasks import build_task


def stage(preset, name):
    return next(each for each in trace_shapes(preset) if each.name == name)


def test_a_transformer_s_tensors_have_the_shapes_of_its_sizes(tiny):
    batch, source, target, width, heads = 8, 7, 6, 16, 2  # 2 to 5 digits, with BOS and EOS
    assert stage(tiny, "src").shapes == {"": (batch, source)}
    assert stage(tiny, "tgt_in").shapes == {"": (batch, target)}
    assert stage(tiny, "src_embedding").shapes == {"": (batch, source, width)}
    cross = stage(tiny, "decoder_layers.0.cross_attention")
    assert cross.shapes == {"": (batch, target, width), "weights": (batch, heads, target, source)}
    assert (cross.block, cross.layer) == ("cross", 1)
    assert stage(tiny, "logits").shapes == {"": (batch, target, 13)}


def test_tensors_come_in_their_order(tiny):
    names = [each.name for each in trace_shapes(tiny)]
    order = ["src", "src_embedding", "encoder_layers.0.self_attention", "encoder_layers.0", "tgt_embedding"]
    order += ["decoder_layers.0.self_attention", "decoder_layers.0.cross_attention", "output", "logits"]
    assert [name for name in names if name in order] == order


def test_a_decoder_only_model_reads_the_source_and_then_the_target(tiny):
    preset = tiny.with_changes({"model.family": "decoder-only"})
    both = [each for each in trace_shapes(preset) if each.name == "layers.0.self_attention"]
    assert [each.shapes[""][1] for each in both] == [7, 6]
    assert both[1].shapes["weights"] == (8, 2, 6, 13)  # what is read of it comes with what it looks at
    assert {each.block for each in both} == {"decoder"}


def test_a_recurrent_decoder_s_steps_are_counted(tiny_gru):
    attention = stage(tiny_gru, "decoder.attention")
    assert attention.calls == 6
    assert (attention.block, attention.layer) == ("cross", 1)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_its_way_and_all_its_parameters_are_on_it(name):
    preset = load_preset(name)
    outermost = {each.name: each.parameters for each in trace_shapes(preset) if each.depth == 0}
    layers = {
        each.name: each.parameters for each in trace_shapes(preset) if each.depth == 1 and each.kind.endswith("Layer")
    }
    assert sum((outermost | layers).values()) == parameters_of(preset.model, build_task(preset.task))


def test_describe_prints_it(capsys):
    assert main(["describe", "--preset", "tiny", "--shapes"]) == 0
    printed = capsys.readouterr().out
    assert "decoder_layers.0.cross_attention" in printed
    assert "weights 64 × 2 × 6 × 7" in printed
