"""Statistics of gradients by parameter: against NumPy, with Q, K and V apart, and on the batches of a training."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from core import lab
from core.config import load_preset
from core.storage.errors import InputError
from core.teaching.bugs import new_state
from core.training.batch_gradients import measure_gradients
from core.training.gradient_statistics import parameter_pieces
from core.training.loop import StepEvent, train

SMALL = {"training.batch_size": 8, "training.validation_sequences": 8, "training.evaluate_every": 100}


class Conv1D(nn.Module):
    """The layer of GPT-2, whose weight is (inputs, outputs)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, 3 * width)), nn.Parameter(torch.randn(3 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class OfTransformers(nn.ModuleDict):
    """As if transformers had defined it."""

    __module__ = "transformers.models.gpt_bigcode.modeling_gpt_bigcode"


def joined(attention: str, layer: nn.Module, kind: type[nn.ModuleDict] = nn.ModuleDict) -> nn.Module:
    return nn.ModuleDict({"block": kind({attention: layer})})


def test_statistics_are_those_of_numpy():
    layer = nn.Linear(5, 3)
    layer(torch.randn(4, 5)).relu().square().sum().backward()
    layer.weight.grad[0] = 0
    row, expected = lab.gradients(layer).loc["weight"], layer.weight.grad.double().numpy()
    assert row["norm"] == pytest.approx(math.sqrt((expected**2).sum()))
    for name in ("mean", "std", "min", "max"):
        assert row[name] == pytest.approx(getattr(np, name)(expected), rel=1e-5)
    assert row["zeros"] == pytest.approx(np.mean(expected == 0))
    assert row["zeros"] >= 1 / 3


def test_a_parameter_without_gradient_has_no_figures_and_a_frozen_one_no_row():
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).requires_grad_(True)
    layers[0].bias.requires_grad_(False)
    layers[0](torch.ones(1, 2)).sum().backward()
    table = lab.gradients(layers)
    assert list(table.index) == ["0.weight", "1.weight", "1.bias"]
    assert table["norm"].isna().tolist() == [False, True, True]


def test_what_is_no_module_is_refused():
    with pytest.raises(InputError, match=r"model is a generator; it must be an nn.Module"):
        lab.gradients(nn.Linear(2, 2).parameters())


def test_the_thirds_of_a_joined_weight_equal_the_gradients_of_three_layers():
    """The same computation by three linear layers, which need no split."""
    whole, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 4, 8)
    whole(x, x, x)[0].square().sum().backward()
    parts = nn.ModuleDict({each: nn.Linear(8, 8) for each in ("q_proj", "k_proj", "v_proj")})
    for layer, weight, bias in zip(
        parts.values(), whole.in_proj_weight.chunk(3), whole.in_proj_bias.chunk(3), strict=True
    ):
        layer.weight.data, layer.bias.data = weight.data.clone(), bias.data.clone()
    query, key, value = (layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in parts.values())
    z = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    whole.out_proj.requires_grad_(False)(z).square().sum().backward()
    of_whole, of_parts = lab.gradients(whole), lab.gradients(parts)
    for projection, name in (("Q", "q_proj"), ("K", "k_proj"), ("V", "v_proj")):
        assert of_parts.loc[f"{name}.weight", "projection"] == projection
        expected = of_parts.loc[f"{name}.weight", "norm":"zeros"].astype(float)
        found = of_whole.loc[f"in_proj_weight[{projection}]", "norm":"zeros"].astype(float)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "thirds"),
    [
        (joined("c_attn", Conv1D(4)), 6),
        (joined("c_attn", nn.Linear(4, 12)), 6),
        (joined("qkv", nn.Linear(4, 12, bias=False)), 3),
        (joined("qkv", nn.Linear(4, 8)), 0),  # grouped queries
        (joined("query_key_value", nn.Linear(4, 12)), 0),  # ordered by heads
        (joined("c_attn", nn.Linear(4, 12), OfTransformers), 0),  # likewise
        (joined("c_attn", Conv1D(4), OfTransformers), 6),
        (joined("qkv_proj", nn.Linear(4, 12)), 0),  # CodeGen's holds Q, V and K in each of its quarters
        (joined("in_proj", nn.Linear(4, 12)), 0),  # LFM2's holds gates
        (joined("mlp", nn.Linear(4, 12)), 0),
    ],
)
def test_joined_layers_are_split_only_if_they_hold_q_k_and_v_in_this_order(module, thirds):
    assert sum(piece.index is not None for piece in parameter_pieces(module)) == thirds


def test_each_third_of_gpt2s_layer_has_its_own_columns():
    layer = Conv1D(4)
    model = joined("c_attn", layer)
    layer(torch.randn(3, 4))[:, 4:8].sum().backward()  # the keys only
    norms = lab.gradients(model)["norm"]
    assert norms["block.c_attn.weight[K]"] == pytest.approx(layer.weight.grad.norm().item())
    assert norms[["block.c_attn.weight[Q]", "block.c_attn.weight[V]", "block.c_attn.bias[Q]"]].tolist() == [0, 0, 0]


def test_a_value_head_without_queries_and_keys_is_no_projection():
    assert [piece.projection for piece in parameter_pieces(nn.ModuleDict({"value_head": nn.Linear(2, 1)}))] == ["", ""]


def test_the_first_batch_has_the_gradient_of_the_first_update():
    preset = load_preset("tiny").with_changes(SMALL | {"training.max_gradient_norm": 1000})
    first = next(event for event in train(new_state(preset)) if isinstance(event, StepEvent))
    state = new_state(preset)
    before = {name: each.clone() for name, each in state.model.state_dict().items()}
    measured = measure_gradients(state, 1)
    total = math.sqrt(sum((each.mean.norm or 0) ** 2 for each in measured))
    assert total == pytest.approx(first.gradient_norm, rel=1e-5)
    assert all(torch.equal(each, before[name]) for name, each in state.model.state_dict().items())
    assert all(each.grad is None for each in state.model.parameters())
    assert {each.mean.projection for each in measured} == {"", "Q", "K", "V"}


def test_spread_over_batches_equals_that_of_each_batch():
    preset = load_preset("tiny").with_changes(SMALL)
    together, state = measure_gradients(new_state(preset), 3), new_state(preset)
    norms = [[each.mean.norm for each in measure_gradients(state, 1)] for _ in range(3)]  # the generator goes on
    np.testing.assert_allclose([each.mean.norm for each in together], np.mean(norms, axis=0), rtol=1e-5)
    np.testing.assert_allclose([each.norm_std for each in together], np.std(norms, axis=0), rtol=1e-3, atol=1e-7)
    cosines = {each.mean.parameter: each.cosine for each in together}
    assert cosines["output.bias"] > 0.5  # the frequencies of the tokens, alike in all batches
    assert all(-1 <= cosine <= 1 for cosine in cosines.values() if cosine is not None)
    assert measure_gradients(new_state(preset), 1)[0].cosine is None
