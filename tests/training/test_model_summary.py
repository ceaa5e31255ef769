"""The model summary counts every parameter; ``describe`` prints it with the memory that training takes."""

import pytest
import torch

from core.__main__ import main
from core.config import load_preset, preset_names
from core.models import count_parameters, outline_model, parameters_of
from core.tasks import build_task
from core.training.model_summary import layer_groups, parameter_shapes, parameters_by_module
from tests.support.command_output import last_json


def test_modules_and_shapes_add_up_to_all_parameters():
    for name in preset_names():
        preset = load_preset(name)
        task = build_task(preset.task)
        model = outline_model(preset.model, task)
        total = count_parameters(model)
        assert parameters_of(preset.model, task) == total, name
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


def test_the_describe_command_prints_the_summary(capsys):
    assert main(["describe", "--preset", "tiny", "--set", "model.norm=pre", "--json"]) == 0
    output = capsys.readouterr().out
    said = last_json(output)
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


def test_describe_counts_a_token_budget_by_the_longest_sequences(capsys):
    budget = ["--set", "training.group_by_length=true", "--set", "training.tokens_per_batch=1400"]
    assert main(["describe", "--preset", "tiny", *budget, "--shapes", "--json"]) == 0
    output = capsys.readouterr().out
    said = last_json(output)
    longest = load_preset("tiny").longest_sequence
    assert "memory to train with batches of 1,400 tokens and the longest sequences" in output
    assert {row["batch_size"] for row in said["memory_bytes"]} == {1, 8, 1400 // longest}
    assert said["shape_trace"][0]["shapes"][""] == [1400 // longest, longest]


def test_layers_that_are_alike_are_one_entry():
    values = {"tokens": 3, "encoder_layers.0": 5, "encoder_layers.1": 5, "encoder_layers.2": 6, "decoder_layers.0": 6}
    assert layer_groups(values) == [
        ("tokens", 3, 1),
        ("encoder_layers.0–1", 5, 2),
        ("encoder_layers.2", 6, 1),
        ("decoder_layers.0", 6, 1),
    ]
    shapes = {f"layers.{layer}.{name}": (layer > 1, name) for layer in range(4) for name in ("weight", "bias")}
    assert [name for name, _, _ in layer_groups(shapes)] == [
        "layers.0–1.weight",
        "layers.0–1.bias",
        "layers.2–3.weight",
        "layers.2–3.bias",
    ]
