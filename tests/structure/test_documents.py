"""The page on the source documents: its rows name what exists, and what it says of their errors is computed here."""

import ast
import json
import math
import re
import shlex
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from core.__main__ import command_parser
from core.cli.arguments import preset_from
from core.config import load_preset
from core.config.sections import TransformerConfig
from core.models.attention import MultiHeadAttention, masked_softmax
from core.models.embeddings import Embedding, Output
from core.models.kernels import Dropout
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.positions import sinusoidal_positions
from core.runs import DEFAULT_ROOT
from core.teaching.bugs import new_state
from core.text.vocab import PAD_ID
from core.training.loss import smoothed_loss
from tests.structure.test_docs import REPOSITORY, check_pytest

PAGE = REPOSITORY / "docs/documents.md"
STATE = re.compile(r"works|(?:differs|out of scope) \(.+\)")
CLOSE = {"atol": 1e-3, "rtol": 0.0}


# --- the page ---------------------------------------------------------------------------------------------------


def rows(pattern: str) -> list[list[str]]:
    """The cells of all table rows with a matching first cell."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if re.fullmatch(pattern, row[0])]


def requirements() -> list[list[str]]:
    return rows(r"\d+")


def claims() -> list[list[str]]:
    return rows(r"C\d+")


def spans(pattern: str) -> list[str]:
    """What a pattern finds in the last column of all tables."""
    return [match for row in [*requirements(), *claims()] for match in re.findall(pattern, row[-1])]


def test_rows_are_numbered_without_gaps():
    assert [row[0] for row in requirements()] == [str(number) for number in range(1, len(requirements()) + 1)]
    assert [row[0] for row in claims()] == [f"C{number}" for number in range(1, len(claims()) + 1)]
    assert {len(row) for row in [*requirements(), *claims()]} == {5}


def test_every_requirement_has_one_of_three_states_and_lines():
    assert [row for row in requirements() if not STATE.fullmatch(row[3])] == []
    assert [row for row in requirements() if not re.fullmatch(r"\d+(?:–\d+)?(?:, \d+(?:–\d+)?)*", row[2])] == []


def test_the_counts_at_the_top_are_those_of_the_rows():
    counts = {state: sum(row[3].startswith(state) for row in requirements()) for state in ("works", "differs", "out")}
    stated = dict(rows(r"works|differs|out of scope"))
    assert {state: int(count) for state, count in stated.items()} == {
        "works": counts["works"],
        "differs": counts["differs"],
        "out of scope": counts["out"],
    }


def test_every_row_is_shown_by_something():
    shown = re.compile(r"`[^`]+`|\]\(results\.md")
    assert [row for row in [*requirements(), *claims()] if not shown.search(row[-1])] == []


@cache
def defined_in(path: str) -> set[str]:
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_exists():
    named = spans(r"`(tests/[\w/]+\.py)::(\w+)`")
    assert len(named) > 100
    assert [f"{path}::{name}" for path, name in named if name not in defined_in(path)] == []


def test_every_preset_and_module_that_is_named_exists():
    presets = {path.stem for path in (REPOSITORY / "presets").glob("*.yaml")}
    assert set(spans(r"preset `([\w-]+)`")) - presets == set()
    assert [path for path in spans(r"`(\w+/[\w/.-]+)`") if not (REPOSITORY / path).exists()] == []


def test_every_command_that_is_named_is_valid():
    commands = {command for command in spans(r"`((?:python|pytest) [^`]+)`")}
    for command in commands:
        words = shlex.split(command)
        if words[0] == "pytest":
            check_pytest(words, REPOSITORY)
            continue
        assert words[:3] == ["python", "-m", "core"], command
        options = command_parser(words[3]).parse_args(words[4:])
        if getattr(options, "preset", None):
            preset_from(options)


def test_the_page_names_no_path_of_a_machine():
    assert re.findall(r"/(?:tmp|work|home|root)\b|\bshared/", PAGE.read_text()) == []


# --- figures ----------------------------------------------------------------------------------------------------


def shipped_metrics(column: str) -> list[dict]:
    lines = (DEFAULT_ROOT / "digits-reversal-shipped/metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if column in row]


def test_at_a_loss_of_1_33_hardly_any_output_is_right():
    evaluations = shipped_metrics("validation_loss")
    before = [row for row in evaluations if row["validation_loss"] > 1.33][-1]
    after = next(row for row in evaluations if row["validation_loss"] < 1.33)
    assert (before["step"], after["step"]) == (25, 50)
    assert before["exact_match"] == 0
    assert after["exact_match"] < 0.05
    assert evaluations[-1]["exact_match"] == 1


def test_gradient_norms_above_ten_occur_in_a_training_that_ends_well():
    norms = sorted(row["gradient_norm"] for row in shipped_metrics("gradient_norm"))
    assert (round(norms[0], 3), round(norms[-1]), round(norms[len(norms) // 2], 1)) == (0.006, 15, 0.4)


def test_the_printed_output_of_numbers_is_not_the_reversal():
    printed = [5, 11, 11, 11, 11, 9, 3, 7, 12, 5, 5, 5, 5, 5]
    answer = [5, 12, 7, 3, 9, 11][::-1]
    assert printed[: len(answer)] != answer
    assert printed[4:10] == answer  # after four tokens that are wrong


def test_scores_of_random_vectors_have_a_spread_of_the_root_of_their_width():
    scores = (torch.randn(100_000, 64) * torch.randn(100_000, 64)).sum(dim=1)
    assert scores.std().item() == pytest.approx(8, rel=0.02)
    assert (scores / math.sqrt(64)).std().item() == pytest.approx(1, rel=0.02)


def test_the_worked_examples_of_positions_and_embeddings_are_right():
    positions = sinusoidal_positions(2, 4)
    assert_close(positions, torch.tensor([[0, 1, 0, 1], [0.841, 0.540, 0.010, 1.000]]), **CLOSE)
    embedding = Embedding(1, 4, Dropout(0.0), positions)
    embedding.tokens.weight.data = torch.tensor([[0.2, -0.3, 0.1, 0.4]])
    assert_close(embedding(torch.tensor([[0]]))[0, 0], torch.tensor([0.4, 0.4, 0.2, 1.8]))


def test_counts_of_the_base_size():
    config = TransformerConfig(d_model=512, num_heads=8, d_ff=2048, num_encoder_layers=6, num_decoder_layers=6)
    with torch.device("meta"):
        layers = nn.ModuleList([*(EncoderLayer(config) for _ in range(6)), *(DecoderLayer(config) for _ in range(6))])
    matrix, bias = 30_000 * 512, 30_000  # an embedding or an output layer
    in_layers = sum(parameter.numel() for parameter in layers.parameters())
    untied, output_tied, all_tied = (in_layers + count * matrix + bias for count in (3, 2, 1))
    assert (round(1 - output_tied / untied, 2), round(1 - all_tied / untied, 2)) == (0.17, 0.34)
    estimated = matrix + 512 * 512 + 12 * (4 * 512**2 + 2 * 512 * 2048)  # with a table of 512 learned positions
    assert (round(estimated / 1e6, 1), round(all_tied / 1e6, 1)) == (53.4, 59.5)
    assert sum(isinstance(module, MultiHeadAttention) for module in layers.modules()) == 18
    assert 32 * 8 * 512 * 512 == 67_108_864
    assert 67_108_864 * 4 == 256 * 2**20


def test_the_parameters_of_attention_are_biased_and_independent_of_the_heads():
    counts = {sum(each.numel() for each in MultiHeadAttention(512, heads).parameters()) for heads in (1, 8)}
    assert counts == {1_050_624}
    assert 4 * 512**2 == 1_048_576


# --- errors -----------------------------------------------------------------------------------------------------


def test_unit_queries_and_keys_give_weights_of_0_67_and_0_33():
    unit = torch.eye(2)
    weights = masked_softmax(unit @ unit.T / math.sqrt(2), None)
    assert_close(weights, torch.tensor([[0.670, 0.330], [0.330, 0.670]]), **CLOSE)
    outputs = weights @ torch.tensor([[2.0, 3.0], [4.0, 5.0]])
    assert_close(outputs, torch.tensor([[2.66, 3.66], [3.34, 4.34]]), **CLOSE)


def test_an_even_dimension_is_a_sine():
    position = sinusoidal_positions(6, 512)[5, 64].item()
    angle = 5 / 10_000 ** (64 / 512)
    assert position == pytest.approx(math.sin(angle))
    assert round(position, 3) == 1.0
    assert round(math.cos(angle), 3) == -0.01


def test_smoothing_spreads_its_mass_over_all_tokens_but_pad():
    smoothing, size, target = 0.1, 6, 4
    logits = torch.zeros(1, 1, size, requires_grad=True)
    smoothed_loss(logits, torch.tensor([[target]]), smoothing).backward()
    distribution = logits.softmax(dim=-1) - logits.grad  # the gradient of cross-entropy is p - q
    expected = torch.full((size,), smoothing / (size - 1))
    expected[target] += 1 - smoothing
    expected[PAD_ID] = 0
    assert_close(distribution[0, 0], expected)


def test_a_causal_mask_is_true_where_attention_is_allowed():
    layer = DecoderLayer(TransformerConfig(d_model=8, num_heads=2, d_ff=8))
    allowed, hidden = torch.ones(4, 4).tril().bool(), torch.ones(4, 4).triu(diagonal=1).bool()
    assert torch.equal(allowed, ~hidden)
    x, attention = torch.randn(1, 4, 8), layer.self_attention
    changed = torch.cat([x[:, :3], x[:, 3:] + 1], dim=1)
    before, after = (attention(each, attention.keys_values(each), allowed) for each in (x, changed))
    assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_a_query_without_a_key_gets_zeros():
    scores = torch.tensor([[0.3, -0.2, 0.1]])
    assert torch.equal(masked_softmax(scores, torch.zeros(1, 3).bool()), torch.zeros(1, 3))


def test_zeroing_weights_after_the_softmax_leaves_sums_below_one():
    scores, mask = torch.randn(5, 5), torch.ones(5, 5).tril().bool()
    assert (scores.softmax(dim=-1) * mask).sum(dim=-1)[:-1].max() < 1
    assert_close(masked_softmax(scores, mask).sum(dim=-1), torch.ones(5))


def test_the_softmax_overflows_only_without_its_shift_and_above_88():
    assert math.exp(100) == pytest.approx(2.7e43, rel=0.01)
    assert torch.tensor([20.0, 88.0]).exp().isfinite().all()
    assert torch.tensor(89.0).exp().isinf()
    assert_close(masked_softmax(torch.tensor([100.0, 99.0]), None), torch.tensor([1.0, 0.0]).softmax(dim=-1))


def test_the_gradient_of_a_sharp_softmax_vanishes():
    def slope(score: float) -> float:
        scores = torch.tensor([score, 0.0], requires_grad=True)
        scores.softmax(dim=-1)[0].backward()
        return scores.grad[0].item()

    assert slope(0.0) == pytest.approx(0.25)
    assert slope(10.0) < 1e-4


def test_a_larger_divisor_makes_attention_flatter():
    scores = torch.randn(1000, 10) * math.sqrt(64)
    of_head, of_model = (masked_softmax(scores / math.sqrt(width), None) for width in (64, 512))
    assert of_model.max(dim=-1).values.mean() < of_head.max(dim=-1).values.mean()


def test_a_padding_mask_without_its_axes_is_an_error():
    scores, is_pad = torch.zeros(2, 3, 5, 5), torch.zeros(2, 5).bool()
    with pytest.raises(RuntimeError, match="must match"):
        scores.masked_fill(is_pad, 0.0)
    assert scores.masked_fill(is_pad[:, None, None], 0.0).shape == scores.shape


def test_a_softmax_of_weights_is_nearly_uniform():
    weights = F.one_hot(torch.tensor(3), 10).float()
    assert weights.softmax(dim=-1).max().item() == pytest.approx(0.23, abs=0.005)


def test_a_seed_changes_outputs_through_dropout_only():
    def outputs(dropout: float) -> list[torch.Tensor]:
        generator = torch.Generator()
        attention, x = MultiHeadAttention(16, 2, dropout, generator), torch.randn(1, 5, 16)
        return [attention(x, attention.keys_values(x)) for seed in (42, 123) if generator.manual_seed(seed)]

    assert torch.equal(*outputs(0.0))
    assert not torch.allclose(*outputs(0.1))


def test_two_checks_of_the_design_document_cannot_run():
    with pytest.raises(IndexError):
        torch.eye(2)[0, 0, 1]  # weights of queries (2, 2)
    with pytest.raises(RuntimeError):
        torch.zeros(1, 4, 4)[0, 0].triu(diagonal=1)  # weights of queries (1, 4, d_model)


def test_the_bias_of_the_keys_gets_no_gradient_but_rounding():
    attention, x = MultiHeadAttention(16, 2), torch.randn(3, 5, 16)
    attention(x, attention.keys_values(x)).square().sum().backward()
    norms = {name: parameter.grad.norm().item() for name, parameter in attention.named_parameters()}
    assert norms.pop("w_k.bias") < 1e-4
    assert min(norms.values()) > 1e-2


def test_dropout_before_and_after_a_relu_are_the_same():
    x, kept = torch.randn(100), (torch.rand(100) > 0.1) / 0.9
    assert torch.equal(F.relu(x * kept), F.relu(x) * kept)
    assert not torch.allclose(F.gelu(x * kept), F.gelu(x) * kept)


def test_embeddings_start_as_large_as_positions():
    model = new_state(load_preset("digits-reversal")).model
    embedding = next(module for module in model.modules() if isinstance(module, Embedding))
    tokens = embedding.tokens.weight[PAD_ID + 1 :] * embedding.scale
    assert embedding.scale == math.sqrt(64)
    assert tokens.std().item() == pytest.approx(1, abs=0.1)
    assert embedding.positions.square().mean().sqrt().item() == pytest.approx(0.71, abs=0.01)


def test_a_tied_output_is_not_scaled():
    embedding, output, states = Embedding(13, 8, Dropout(0.0)), Output(8, 13, is_tied=True), torch.randn(2, 3, 8)
    assert_close(output(states, embedding), F.linear(states, embedding.tokens.weight, output.bias))


def test_a_layer_ends_with_mean_zero_and_variance_one():
    layer = EncoderLayer(TransformerConfig(d_model=64, num_heads=4, d_ff=128))
    states = layer(torch.randn(2, 5, 64) * 7 + 3, torch.ones(2, 1, 1, 5).bool())
    assert_close(states.mean(dim=-1), torch.zeros(2, 5))
    assert_close(states.var(dim=-1, unbiased=False), torch.ones(2, 5), **CLOSE)


def test_the_first_padding_mask_of_numbers_cannot_run():
    mask = np.zeros((2, 3))
    with pytest.raises(TypeError):
        mask.reshape(mask.shape, 1, 1, mask.shape)
    assert mask.reshape(mask.shape[0], 1, 1, mask.shape[1]).shape == (2, 1, 1, 3)
