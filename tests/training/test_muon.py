"""Muon: orthogonalization, parity with torch.optim.Muon, which parameters it updates; and initialization gains."""

import pytest
import torch
from torch.testing import assert_close

from core.config import ConfigError
from core.models import count_parameters
from core.teaching.bugs import new_state
from core.training.loop import StepEvent, train
from core.training.muon import Muon, orthogonalize
from core.training.optimizers import build_optimizer, layer_matrices, set_learning_rate

MUON = {"training.optimizer": "muon", "training.muon_learning_rate": 0.02}


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("shape", [(16, 16), (8, 32), (32, 8), (1, 16)])
def test_orthogonalize_sets_singular_values_to_about_one_and_keeps_the_vectors(shape):
    result = orthogonalize(draw(3, *shape))
    for before, after in zip(draw(3, *shape), result, strict=True):
        left, values, right = torch.linalg.svd(before, full_matrices=False)
        singular_values = left.T @ after @ right.T  # diagonal if the singular vectors are unchanged
        assert_close(singular_values, singular_values.diagonal().diag(), atol=1e-4, rtol=0)
        assert singular_values.diagonal()[values > 0.1 * values.max()].min() > 0.6
        assert singular_values.diagonal().max() < 1.3


def test_a_bfloat16_update_is_close_and_its_momentum_stays_float32():
    moved = []
    for dtype in (None, torch.bfloat16):
        matrix = torch.nn.Parameter(torch.zeros(24, 40))
        optimizer = Muon([matrix], [torch.nn.Parameter(torch.zeros(3))], lr=0.1, matrix_lr=0.1, dtype=dtype)
        matrix.grad = draw(24, 40)
        optimizer.step()
        moved.append((matrix.detach(), optimizer.state[matrix]["momentum_buffer"]))
    (exact, mean), (rounded, mean_of_rounded) = moved
    assert torch.equal(mean, mean_of_rounded)
    assert rounded.dtype is torch.float32
    assert 0 < (rounded - exact).norm() < 0.02 * exact.norm()


def test_a_gradient_of_zeros_changes_nothing():
    matrix = torch.nn.Parameter(draw(4, 4))
    start = matrix.detach().clone()
    matrix.grad = torch.zeros_like(matrix)
    Muon([matrix], [torch.nn.Parameter(draw(2))], lr=0.1, matrix_lr=0.1).step()
    assert torch.equal(matrix.detach(), start)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has it from 2.9 on")
@pytest.mark.parametrize("shape", [(16, 16), (8, 32), (32, 8)])
def test_matrices_move_as_with_torch_muon(shape):
    """PyTorch's computes in bfloat16, which has two or three digits."""
    ours, theirs = (torch.nn.Parameter(draw(*shape)) for _ in range(2))
    other = torch.nn.Parameter(draw(5))
    mine = Muon([ours], [other], lr=0.01, matrix_lr=0.02, momentum=0.9)
    reference = torch.optim.Muon([theirs], lr=0.02, momentum=0.9, weight_decay=0.0)
    start = ours.detach().clone()
    for step in range(5):
        for each in (ours, theirs):
            each.grad = draw(*shape).roll(5 * step)  # another direction every step
        mine.step()
        reference.step()
    moved, expected = ours.detach() - start, theirs.detach() - start
    assert (moved - expected).norm() < 0.02 * expected.norm()


def test_all_other_parameters_move_as_with_torch_adam():
    ours, theirs = (torch.nn.Parameter(draw(7)) for _ in range(2))
    mine = Muon([torch.nn.Parameter(draw(3, 3))], [ours], lr=0.01, matrix_lr=0.02)
    reference = torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99), fused=True)
    for step in range(5):
        for each in (ours, theirs):
            each.grad = draw(7) + step
        mine.step()
        reference.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("family", ["transformer", "gru", "decoder-only", "encoder-only"])
def test_layer_matrices_exclude_embeddings_and_output(tiny, tiny_gru, family):
    preset = tiny_gru if family == "gru" else tiny.with_changes({"model.family": family, "model.positions": "learned"})
    model = new_state(preset).model
    matrices, others = layer_matrices(model)
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert sum(each.numel() for each in (*matrices, *others)) == count_parameters(model)
    assert all(each.ndim == 2 for each in matrices)
    assert not [names[each] for each in matrices if "embedding" in names[each] or names[each].startswith("output")]
    left = {names[each] for each in others if each.ndim == 2}
    assert all("embedding" in name or name.startswith("output") for name in left), left


def test_both_learning_rates_follow_the_schedule(tiny):
    preset = tiny.with_changes(MUON | {"training.learning_rate": 0.005})
    state = new_state(preset)
    rates = []
    for event in train(state):
        if isinstance(event, StepEvent):
            of_matrices, of_others = (group["lr"] for group in state.optimizer.param_groups)
            assert of_others == event.learning_rate
            rates.append(of_matrices / of_others)
    assert rates == pytest.approx([4.0] * preset.training.steps)


def test_parameters_without_a_gradient_do_not_change(tiny):
    config = tiny.with_changes(MUON).training
    model = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
    optimizer = build_optimizer(config, model)
    before = [each.detach().clone() for each in model.parameters()]
    model[0](torch.ones(1, 4)).sum().backward()
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    moved = [not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True)]
    assert moved == [True, True, False, False]


def test_muon_learning_rate_is_required_with_muon_and_refused_without(tiny):
    with pytest.raises(ConfigError, match=r"training.muon_learning_rate=0.0 must be above 0 with training.optimizer="):
        tiny.with_changes({"training.optimizer": "muon"})
    with pytest.raises(ConfigError, match=r"training.muon_learning_rate=0.02 must be 0 with training.optimizer='adam'"):
        tiny.with_changes({"training.muon_learning_rate": 0.02})


# --- initialization gains ---------------------------------------------------------------------------------------


def test_embedding_gain_scales_initial_embeddings_only(tiny):
    plain, small = (new_state(tiny.with_changes({"model.embedding_gain": gain})).model for gain in (1.0, 0.25))
    for (name, one), other in zip(plain.named_parameters(), small.parameters(), strict=True):
        assert_close(other, one * 0.25 if "embedding" in name else one, atol=0, rtol=1e-6)


def test_sublayer_gain_scales_output_projections_only(tiny):
    plain, small = (new_state(tiny.with_changes({"model.sublayer_gain": gain})).model for gain in (1.0, 0.1))
    for (name, one), other in zip(plain.named_parameters(), small.named_parameters(), strict=True):
        assert_close(other[1], one * 0.1 if name.endswith(("w_o.weight", "narrow.weight")) else one, atol=0, rtol=1e-6)


def test_sublayers_with_zero_gain_still_learn(tiny):
    state = new_state(tiny.with_changes({"model.sublayer_gain": 0.0}))
    before = {name: each.detach().clone() for name, each in state.model.named_parameters()}
    list(train(state))
    assert not [name for name, each in state.model.named_parameters() if torch.equal(each, before[name])]
