"""With gradient checkpointing, layers are computed twice: the gradients are the same, and less is kept for them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from core.config import ConfigError, Preset
from core.graphs.graph import weights_of
from core.graphs.training_step import training_step_graph
from core.models import build_model, outline_model
from core.models.hooks import hook_names, hooks
from core.models.layers import EncoderLayer
from core.models.positions import NO_POSITIONS
from core.models.recomputation import recompute_layers
from core.tasks import Batch, build_task
from core.teaching.bugs import new_state
from core.training.checkpoint import restore_state, save_state
from core.training.loop import StepEvent, train
from core.training.loss import training_loss
from core.training.memory import OTHER, _update_peak, activations_by_part, estimate_memory
from core.training.peak_memory import PeakMemory
from core.training.state import TrainingState

ON = {"training.gradient_checkpointing": True}
DROPOUT = {"model.dropout": 0.2, "model.activation_dropout": 0.1}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "decoder-only": {"model.family": "decoder-only"},
    "encoder-only": {"model.family": "encoder-only"},
    "pre-norm, rope": {"model.norm": "pre", "model.positions": "rope"},
    "vo-rope, stretched": {"model.positions": "vo-rope", "model.position_stretch": 2.0},
    "linear": {"model.attention": "linear"},
    "half forced": {"training.teacher_forcing_ratio": 0.5},
    "smoothed, bfloat16": {"training.label_smoothing": 0.1, "training.precision": "bfloat16"},
    "in parts": {"training.micro_batch_tokens": 16, "training.gradient_accumulation_steps": 2},
    "guided": {"training.guided_alignment": 0.5},
    "bug": {},
}


def steps_of(state: TrainingState, count: int) -> list[StepEvent]:
    """Make some updates."""
    events = (event for event in train(state) if isinstance(event, StepEvent))
    return [next(events) for _ in range(count)]


def gradients_of(state: TrainingState) -> dict[str, torch.Tensor]:
    return {name: each.grad for name, each in state.model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_those_without_it(tiny: Preset, name: str):
    preset = tiny.with_changes(DROPOUT | MODELS[name]).with_bug("no-residual" if name == "bug" else None)
    states = [new_state(preset), new_state(preset.with_changes(ON))]
    plain, again = (steps_of(state, 2) for state in states)
    assert [each.loss for each in again] == pytest.approx([each.loss for each in plain], rel=1e-6)
    assert [each.gradient_norm for each in again] == pytest.approx([each.gradient_norm for each in plain], rel=1e-5)
    first, second = (gradients_of(state) for state in states)
    assert first.keys() == second.keys()
    for key, gradient in first.items():
        torch.testing.assert_close(second[key], gradient, rtol=1e-5, atol=1e-6)
    assert torch.equal(states[0].generator.get_state(), states[1].generator.get_state())


def test_a_resumed_run_repeats_the_updates(tiny: Preset, tmp_path: Path):
    preset = tiny.with_changes(DROPOUT | ON)
    state = new_state(preset)
    steps_of(state, 2)
    save_state(tmp_path / "state.safetensors", state)
    losses = [each.loss for each in steps_of(state, 3)]
    resumed = restore_state(tmp_path / "state.safetensors", new_state(preset))
    assert [each.loss for each in steps_of(resumed, 3)] == losses


@pytest.mark.parametrize("family", ["transformer", "decoder-only", "encoder-only"])
def test_layers_keep_their_inputs_only(tiny: Preset, family: str):
    """Counted with ``saved_tensors_hooks``: beside the layers' inputs, only tensors outside of layers are kept."""
    sizes = {"model.family": family, "model.max_seq_len": 32} | DROPOUT
    deep = {"num_encoder_layers": 4, "num_decoder_layers": 4} if family == "transformer" else {"num_layers": 8}
    preset = tiny.with_changes(sizes | {f"model.{name}": value for name, value in deep.items()})
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).train()
    ids = torch.full((8, 24), 5)
    plain = activations_by_part(model, ids, preset.training)
    recompute_layers(model)
    kept = activations_by_part(model, ids, preset.training)
    assert kept.get("feed-forward", 0) == 0 < plain["feed-forward"]
    assert sum(kept.values()) < sum(plain.values()) / 5
    assert kept[OTHER] >= 8 * ids.numel() * preset.model.d_model * 4  # the inputs of eight layers


@pytest.mark.parametrize(
    "changes",
    [{}, {"model.family": "decoder-only"}, {"training.precision": "bfloat16"}],
    ids=["", "decoder-only", "16"],
)
def test_the_estimate_of_memory_is_what_an_update_allocates(tiny: Preset, changes: dict[str, Any]):
    preset = tiny.with_changes(DROPOUT | ON | {"model.max_seq_len": 32} | changes)
    task, generator = build_task(preset.task), torch.Generator().manual_seed(0)
    model, outline = build_model(preset.model, task, generator).train(), outline_model(preset.model, task).train()
    for each in (model, outline):
        recompute_layers(each)
    ids = torch.full((64, 21), 5)
    with PeakMemory() as real:
        loss = training_loss(
            model, Batch(ids[:, 1:], ids), preset.training, teacher_forcing_ratio=1, generator=generator
        )
        loss.backward()
    estimated = _update_peak(outline, torch.ones(64, 20, dtype=torch.int64, device="meta"), preset.training)
    assert estimated == pytest.approx(real.highest, rel=0.1)


def test_the_estimate_of_a_preset_is_smaller_with_it(tiny: Preset):
    large = tiny.with_changes(DROPOUT | {"model.num_encoder_layers": 4, "model.num_decoder_layers": 4})
    plain, again = (estimate_memory(each, batch_size=64, length=16) for each in (large, large.with_changes(ON)))
    assert again.activations < plain.activations / 5
    assert again.allocated < plain.allocated / 2
    assert (again.weights, again.optimizer) == (plain.weights, plain.optimizer)


def test_hooks_of_the_call_are_those_of_the_second_computation(tiny: Preset):
    """A hook that changes a tensor counts for the gradient, though its block has ended before the backward pass."""
    preset = tiny.with_changes(DROPOUT)
    states = [new_state(preset), new_state(preset.with_changes(ON))]
    batch = build_task(preset.task).sample(4, split="train", generator=torch.Generator().manual_seed(1))
    for state in states:
        pattern = next(name for name in hook_names(state.model) if name.endswith("hook_pattern"))
        state.model.train()
        with hooks({pattern: lambda weights: weights * 0.5}):
            logits = state.model(batch.src, batch.tgt_in)
        logits.square().sum().backward()
    first, second = (gradients_of(state) for state in states)
    for key, gradient in first.items():
        torch.testing.assert_close(second[key], gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_graph_of_a_training_step_is_that_without_it(tiny: Preset):
    batch = build_task(tiny.task).sample(4, split="train", generator=torch.Generator().manual_seed(1))
    losses = []
    for preset in (tiny, tiny.with_changes(ON)):
        state = new_state(preset)
        graph = training_step_graph(state.model, preset.training, batch)
        values = weights_of(state.model) | {"src": batch.src, "tgt": batch.tgt}
        values |= {name: torch.tensor(1e-3, dtype=torch.float64) for name in ("step", "learning_rate")}
        values["step"] = torch.tensor(1.0, dtype=torch.float64)
        for name in set(graph.inputs) - values.keys():
            values[name] = torch.zeros_like(values[name.rpartition(".")[0]])
        losses.append(graph.run(values))
    assert losses[0].keys() == losses[1].keys()
    for name, tensor in losses[0].items():
        torch.testing.assert_close(losses[1][name], tensor, msg=name)


def test_a_recurrent_model_has_no_layers_to_compute_again(tiny: Preset):
    with pytest.raises(ConfigError, match=r"gradient_checkpointing=True must be False with model\.family='gru'"):
        tiny.with_changes({"model.family": "gru"} | ON)


def test_a_layer_can_be_called_by_names(tiny: Preset):
    model = new_state(tiny).model
    layer = next(each for each in model.modules() if isinstance(each, EncoderLayer)).train()
    x = torch.randn(2, 3, tiny.model.d_model, requires_grad=True)
    mask = torch.ones(2, 1, 1, 3, dtype=torch.bool)
    outputs = [layer(x, mask, NO_POSITIONS)]
    recompute_layers(model)
    outputs.append(layer(x=x, mask=mask, positions=NO_POSITIONS))
    gradients = [torch.autograd.grad(output.square().sum(), x)[0] for output in outputs]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*gradients)
