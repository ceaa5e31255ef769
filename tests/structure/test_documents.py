"""The table on the source documents: its rules hold, and what it says of the documents' errors is computed here."""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from core.config import load_preset
from core.config.sections import TransformerConfig
from core.models.attention import MultiHeadAttention, masked_softmax
from core.models.embeddings import Embedding, Output
from core.models.kernels import Dropout
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.positions import sinusoidal_positions
from core.runs import DEFAULT_ROOT
from core.runs.shipped import shipped_folders
from core.teaching.bugs import new_state
from core.text.vocab import PAD_ID
from core.training.loss import smoothed_loss
from docs.documents import HEADER, REPOSITORY, TABLE, Row, problems, read_rows

CLOSE = {"atol": 1e-3, "rtol": 0.0}


# --- the table ---------------------------------------------------------------------------------------------------


def test_every_row_keeps_the_rules_and_names_what_exists():
    rows = read_rows()
    assert problems(rows) == []
    assert sum(row.is_claim for row in rows) > 90
    assert sum(not row.is_claim for row in rows) > 300
    assert sum("tests/" in item for row in rows for item in row.items) > 250


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "partly"}, "state='partly' must be one of"),
        ({"state": "differs"}, "state='differs' needs an explanation"),
        ({"document": "a book"}, "document='a book' must be one of"),
        ({"lines": "five"}, "lines='five' must be line numbers"),
        ({"lines": "5; words 600, 7–9"}, ""),
        ({"text": 'say "so"'}, "must have no double quotes"),
        ({"shown_by": ""}, "shown by must name a test"),
        ({"shown_by": "tests/models/test_attention.py::test_nothing"}, "there is no such test"),
        ({"shown_by": "tests/models/test_nothing.py::test_nothing"}, "there is no such test"),
        ({"shown_by": "preset nothing"}, "there is no such preset"),
        ({"shown_by": "core/nothing.py"}, "there is no such file"),
        ({"shown_by": "docs/results.md#nothing"}, "the page has no such heading"),
        ({"shown_by": "python -m core nothing"}, "there is no such command"),
        ({"shown_by": "python -m core describe --preset tiny --nothing"}, "unrecognized arguments: --nothing"),
        ({"shown_by": "python -m core describe --preset nothing"}, "nothing"),
        ({"shown_by": "python -m core describe --preset tiny --set training.nothing=1"}, "training.nothing"),
        ({"shown_by": "pytest -m slow -k no_such_test"}, "no test has 'no_such_test' in its name"),
        ({"shown_by": "pytest tests/nothing"}, "there is no tests/nothing"),
        ({"shown_by": "preset tiny; core/lab.py; pytest -k fresh"}, ""),
    ],
)
def test_a_cell_that_breaks_a_rule_is_named(change, message):
    row = Row("7", "words", "", "5", "A requirement", "works", "", "preset tiny")
    assert problems([row]) == []
    found = problems([replace(row, **change)])
    assert message in "; ".join(found)
    assert bool(found) == bool(message)


def test_ids_are_unique_and_the_rows_of_a_part_stand_together():
    one, other = (Row("7", name, "", "5", "A requirement", "works", "", "preset tiny") for name in ("words", "numbers"))
    assert problems([one, one]) == ["row 7: the id occurs 2 times"]
    apart = problems([one, replace(other, id="8"), replace(one, id="9")])
    assert apart == ["('words', ''): its rows must follow each other"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("id\tdocument\n", "line 1: the header"), ("\t".join(HEADER) + "\n7\twords\n", "line 2: 2 cells")],
)
def test_a_broken_table_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "documents.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_rows(path)


def test_the_table_names_no_path_of_a_machine():
    assert re.findall(r"/(?:tmp|work|home|root)\b|\bshared/", TABLE.read_text()) == []


COMMANDS = sorted({item for row in read_rows() for item in row.items if item.startswith("python -m core ")})
MAX_SECONDS = 1_800  # of one command; the longest trains five seeds


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs_on_copies_of_the_shipped_runs(command, tmp_path):
    for run in shipped_folders(DEFAULT_ROOT):
        shutil.copytree(run, tmp_path / "checkpoints" / run.name)
    words = [sys.executable, "-m", "core", "--checkpoints", "checkpoints", *shlex.split(command)[3:]]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}"
    assert done.stdout


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


def test_a_score_of_minus_100_hides_a_key_beside_a_score_of_0():
    weights = torch.tensor([0.0, -100.0]).softmax(dim=0)
    assert 0 < weights[1].item() < 1e-40


def test_minus_a_billion_is_minus_infinity_in_half_precision():
    assert torch.tensor(-1e9).half() == -math.inf
    assert torch.finfo(torch.half).max == 65504


def test_weights_after_dropout_do_not_sum_to_one():
    sums = F.dropout(torch.full((50, 10), 0.1), 0.5).sum(dim=-1)
    assert (sums - 1).abs().max() > 0.1


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


def test_three_monitors_of_the_design_document_do_not_work():
    with pytest.raises(TypeError):
        [].__setitem__("w_q", 1.0)  # a list of norms, indexed by name
    norms: dict[str, list[float]] = {}
    for norm in (1.0, 2.0):
        if "w_q" not in norms:
            norms["w_q"] = []
            norms["w_q"].append(norm)
    assert norms == {"w_q": [1.0]}
    states, w_out = torch.randn(3, 8), torch.randn(8, 13)
    assert_close((states @ w_out)[:, 5], states @ w_out[:, 5])  # the logits of token 5, from a column
