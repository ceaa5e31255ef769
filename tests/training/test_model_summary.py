"""The model summary counts every parameter, and its memory estimate grows as training memory does."""

import json

import pytest
import torch

from core.__main__ import main
from core.config import load_preset, preset_names
from core.models import build_model, count_parameters, outline_model
from core.tasks import build_task
from core.training.model_summary import activation_bytes, estimate_memory, parameter_shapes, parameters_by_module


def test_modules_and_shapes_add_up_to_all_parameters():
    for name in preset_names():
        preset = load_preset(name)
        model = outline_model(preset.model, build_task(preset.task))
        total = count_parameters(model)
        assert sum(parameters_by_module(model).values()) == total, name
        assert sum(torch.Size(shape).numel() for shape in parameter_shapes(model).values()) == total, name


def test_parameters_by_module_follow_the_formula_of_the_paper():
    preset = load_preset("digits-reversal")
    parts = parameters_by_module(outline_model(preset.model, build_task(preset.task)))
    attention, norm, feed_forward = 4 * (64 * 64 + 64), 2 * 64, 2 * 64 * 128 + 128 + 64
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    embedding = {"src_embedding": 13 * 64, "tgt_embedding": 13 * 64}
    layers = {
        f"{side}_layers.{index}": size
        for side, size in (("encoder", encoder), ("decoder", decoder))
        for index in (0, 1)
    }
    assert parts == embedding | layers | {"output": 13 * 64 + 13}


@pytest.mark.parametrize("family", ["transformer", "decoder-only", "gru"])
def test_activations_are_linear_in_the_batch_and_close_to_a_real_step(tiny, family):
    preset = tiny.with_changes({"model.family": family})
    one, two, four = (estimate_memory(preset, batch_size=size, length=8).activations for size in (1, 2, 4))
    assert four - two == pytest.approx(2 * (two - one), rel=0.05)
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).train()
    # The fused kernel saves a little more or less on a real device than on the meta device.
    assert four == pytest.approx(activation_bytes(model, torch.ones(4, 8, dtype=torch.int64)), rel=0.2)


def test_activations_grow_faster_than_the_length(tiny):
    long = tiny.with_changes({"model.max_seq_len": 512, "model.dropout": 0.1})  # dropout needs the attention weights
    short, twice, more = (estimate_memory(long, batch_size=1, length=length).activations for length in (128, 256, 512))
    assert more - twice > 2.5 * (twice - short)


def test_adam_keeps_two_moments_per_weight(tiny):
    memory = estimate_memory(tiny, batch_size=1, length=4)
    assert memory.weights == memory.gradients == memory.optimizer // 2
    assert memory.total == memory.weights * 4 + memory.activations


def test_the_describe_command_prints_the_summary(capsys):
    assert main(["describe", "--preset", "tiny", "--set", "model.norm=pre", "--json"]) == 0
    output = capsys.readouterr().out
    said = json.loads(output.splitlines()[-1])
    assert said["shapes"]["encoder_layers.0.self_attention.w_q.weight"] == [32, 32]
    assert said["parts"]["encoder_norm"] == 64
    assert f"{said['parameters']:,} parameters" in output
    assert {(row["batch_size"], row["length"]) for row in said["memory_bytes"]} == {
        (batch, length) for batch in (1, 8, 64) for length in (7, 19, 32)
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "0"], "--batch-size=0 must be from 1 to 4096"),
        (["--length", "33"], "--length=33 must be from 1 to 32"),
        (["--set", "model.d_model=31"], "model.d_model=31 must be divisible by model.num_heads=2"),
    ],
)
def test_impossible_sizes_are_refused(capsys, options, message):
    assert main(["describe", "--preset", "tiny", *options]) == 2
    assert message in capsys.readouterr().err
