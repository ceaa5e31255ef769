"""Adam by hand equals PyTorch's, embeddings may have a rate of their own, decay spares biases; gradient clipping."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from core.config import ConfigError
from core.config.training import TrainingConfig
from core.evaluation.accuracy import sequence_loss
from core.teaching.bugs import new_state
from core.training import without_compiler
from core.training.loop import StepEvent, train
from core.training.muon import Muon
from core.training.optimizers import Adam, build_optimizer, clip_each_gradient, clip_gradients, set_learning_rate

ROOT = Path(__file__).parents[2]


def config(**changes) -> TrainingConfig:
    return TrainingConfig(**({"steps": 10, "warmup_steps": 4, "learning_rate": 0.8} | changes))


def parameters(*gradients: list[float]) -> list[torch.nn.Parameter]:
    """Zero parameters with these gradients."""
    parameters = []
    for gradient in gradients:
        parameter = torch.nn.Parameter(torch.zeros(len(gradient)))
        parameter.grad = torch.tensor(gradient)
        parameters.append(parameter)
    return parameters


def test_large_gradients_are_scaled_together():
    params = parameters([3.0, 0.0], [0.0, 4.0])
    assert clip_gradients(params, 1.0) == pytest.approx(5.0)
    assert_close(params[0].grad, torch.tensor([0.6, 0.0]), atol=1e-5, rtol=0)
    assert_close(params[1].grad, torch.tensor([0.0, 0.8]), atol=1e-5, rtol=0)


def test_each_gradient_can_be_scaled_by_itself():
    params = parameters([3.0, 0.0], [0.0, 0.4])
    assert clip_each_gradient(params, 1.0) == pytest.approx((3**2 + 0.4**2) ** 0.5)
    assert_close(params[0].grad, torch.tensor([1.0, 0.0]), atol=1e-5, rtol=0)
    assert_close(params[1].grad, torch.tensor([0.0, 0.4]), atol=0, rtol=0)
    assert not math.isfinite(clip_each_gradient(parameters([5.0], [math.nan]), 1.0))


def test_small_gradients_are_unchanged():
    params = parameters([0.3, 0.4])
    assert clip_gradients(params, 1.0) == pytest.approx(0.5)
    assert_close(params[0].grad, torch.tensor([0.3, 0.4]), atol=0, rtol=0)


def test_a_non_finite_gradient_shows_in_the_norm_and_changes_no_other():
    params = parameters([1.0], [math.nan])
    assert not math.isfinite(clip_gradients(params, 0.5))
    assert params[0].grad == 1.0


def test_clipping_equals_pytorchs():
    mine, theirs = parameters([3.0, -1.0], [0.0, 4.0]), parameters([3.0, -1.0], [0.0, 4.0])
    assert clip_gradients(mine, 1.0) == torch.nn.utils.clip_grad_norm_(theirs, 1.0).item()
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(one.grad, other.grad)


# --- Adam -------------------------------------------------------------------------------------------------------


def train_with(preset, optimizer_of) -> dict[str, torch.Tensor]:
    """Weights after 30 updates in float64, in which rounding cannot hide a mistake."""
    state = new_state(preset)
    model = state.model.double().eval()
    optimizer = optimizer_of(model.parameters())
    for step in range(30):
        batch = state.task.sample(8, split="train", generator=state.generator)
        optimizer.zero_grad()
        sequence_loss(model(batch.src, batch.tgt_in), batch.tgt_out).backward()
        optimizer.param_groups[0]["lr"] = 0.01 * (30 - step) / 30
        optimizer.step()
    return model.state_dict()


def test_adam_by_hand_equals_pytorchs_over_30_steps(tiny):
    by_hand = train_with(tiny, lambda parameters: Adam(parameters, lr=0.01))
    reference = train_with(tiny, lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    start = new_state(tiny).model.state_dict()
    assert_close(by_hand, reference, atol=1e-6, rtol=0)
    assert any((by_hand[name] - start[name]).abs().max() > 0.1 for name in start)


def test_adam_skips_parameters_without_gradient_and_stores_only_tensors():
    params = [*parameters([1.0, 2.0]), torch.nn.Parameter(torch.ones(3))]
    optimizer = Adam(params, lr=0.1)
    optimizer.step()
    optimizer.step()
    assert (params[1] == 1).all()
    assert set(optimizer.state) == {params[0]}
    assert all(isinstance(value, torch.Tensor) for value in optimizer.state[params[0]].values())
    assert optimizer.state[params[0]]["step"] == 2


def test_the_preset_selects_the_optimizer():
    model = torch.nn.Linear(1, 1)
    assert type(build_optimizer(config(), model)) is without_compiler.Adam
    assert type(build_optimizer(config(optimizer="adamw"), model)) is without_compiler.AdamW
    assert type(build_optimizer(config(optimizer="muon", muon_learning_rate=0.02), model)) is Muon
    by_hand = build_optimizer(config(optimizer="adam-by-hand"), model)
    assert type(by_hand) is Adam
    assert by_hand.param_groups[0]["lr"] == 0.8


@pytest.mark.parametrize(
    ("optimizer", "default"), [("adam", 0.999), ("adamw", 0.999), ("adam-by-hand", 0.999), ("muon", 0.99)]
)
def test_adam_beta2_is_the_decay_rate_of_squared_gradients(optimizer, default):
    muon = {"muon_learning_rate": 0.02} if optimizer == "muon" else {}
    for beta2 in (0.0, 0.9):
        bias = torch.nn.Parameter(torch.zeros(1))
        built = build_optimizer(config(optimizer=optimizer, adam_beta2=beta2, **muon), torch.nn.ParameterList([bias]))
        bias.grad = torch.ones(1)
        built.step()
        moments = [state for key, state in built.state[bias].items() if key in ("exp_avg_sq", "second_moment")]
        assert_close(moments, [torch.full((1,), 1 - (beta2 or default))])


# --- learning rate of embeddings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adam-by-hand", "muon"])
@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_only_embeddings_have_a_learning_rate_of_their_own(tiny, tiny_gru, family, optimizer):
    preset = (tiny if family == "transformer" else tiny_gru).with_changes(
        {
            "training.optimizer": optimizer,
            "training.muon_learning_rate": 0.02 if optimizer == "muon" else 0.0,
            "training.learning_rate": 0.01,
            "training.embedding_learning_rate": 0.001,
        }
    )
    state = new_state(preset)
    set_learning_rate(state.optimizer, 0.005)  # half of the peak, by the schedule
    names = {parameter: name for name, parameter in state.model.named_parameters()}
    rates = {names[each]: group["lr"] for group in state.optimizer.param_groups for each in group["params"]}
    assert set(rates) == set(names.values())
    assert {name for name, rate in rates.items() if rate == pytest.approx(0.0005)} == {
        "src_embedding.tokens.weight",
        "tgt_embedding.tokens.weight",
    }
    assert {rate for name, rate in rates.items() if "norm" in name or "bias" in name} == {0.005}


def test_an_equal_rate_of_embeddings_trains_as_no_rate_does(tiny):
    muon = {"training.optimizer": "muon", "training.muon_learning_rate": 0.02, "training.learning_rate": 0.01}
    rates = [tiny.with_changes(muon | {"training.embedding_learning_rate": rate}) for rate in (0.0, 0.01, 0.001)]
    plain, equal, low = ([e.loss for e in train(new_state(each)) if isinstance(e, StepEvent)] for each in rates)
    assert plain == equal
    assert plain[0] == low[0]
    assert plain[-1] != low[-1]


# --- weight decay -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_weight_decay_applies_to_matrices_not_to_biases_and_norms(tiny, tiny_gru, family):
    preset = tiny if family == "transformer" else tiny_gru
    state = new_state(preset.with_changes({"training.optimizer": "adamw", "training.weight_decay": 0.1}))
    names = {id(parameter): name for name, parameter in state.model.named_parameters()}
    decayed, others = ({names[id(each)] for each in group["params"]} for group in state.optimizer.param_groups)
    assert [group["weight_decay"] for group in state.optimizer.param_groups] == [0.1, 0.0]
    assert decayed | others == set(names.values())
    assert others == {name for name in names.values() if "norm" in name or "bias" in name}
    assert {"src_embedding.tokens.weight", "output.weight"} <= decayed


def test_weight_decay_is_decoupled_from_the_gradient():
    settings = config(optimizer="adamw", weight_decay=0.1, warmup_steps=0)
    matrix, bias = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    optimizer = build_optimizer(settings, torch.nn.ParameterList([matrix, bias]))
    for parameter in (matrix, bias):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert_close(matrix.detach(), torch.full((2, 2), 1 - 0.8 * 0.1))
    assert (bias == 1).all()


@pytest.mark.parametrize("optimizer", ["adam", "adam-by-hand"])
def test_weight_decay_is_refused_where_it_would_have_no_effect(tiny, optimizer):
    with pytest.raises(
        ConfigError, match=rf"training.weight_decay=0.1 must be 0 with training.optimizer='{optimizer}'"
    ):
        tiny.with_changes({"training.optimizer": optimizer, "training.weight_decay": 0.1})


@pytest.mark.parametrize(
    ("ours", "pytorchs"), [(without_compiler.Adam, torch.optim.Adam), (without_compiler.AdamW, torch.optim.AdamW)]
)
def test_without_the_compiler_updates_and_state_are_pytorchs_bit_for_bit(ours, pytorchs):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(7, 5) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    optimizers = [kind(layer.parameters(), lr=0.1) for kind, layer in zip((ours, pytorchs), layers, strict=True)]
    for inputs in torch.randn(4, 3, 7):
        for layer, optimizer in zip(layers, optimizers, strict=True):
            optimizer.zero_grad()
            layer(inputs).square().sum().backward()
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
    for one, other in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_does_not_import_pytorchs_compiler():
    program = """if True:
        import sys
        from core.config import load_preset
        from core.teaching.bugs import new_state
        from core.training.loop import train
        tiny = load_preset("tiny").with_changes({"training.steps": 2, "training.warmup_steps": 1})
        muon = {"training.optimizer": "muon", "training.muon_learning_rate": 0.02}
        for changes in ({"training.optimizer": "adamw"}, {"training.optimizer": "adam"}, muon):
            state = new_state(tiny.with_changes(changes))
            list(train(state))
            state.optimizer.load_state_dict(state.optimizer.state_dict())
        print("torch._dynamo" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False"]
