"""Gradient norms and update sizes by part equal those computed by hand, and measuring them changes no training."""

import math

import numpy as np
import pytest
import torch

from core.config import Preset
from core.models import build_model
from core.tasks import build_task
from core.teaching.bugs import new_state
from core.training import loop
from core.training.loop import EvaluationEvent, StepEvent, train
from core.training.update_norms import UpdateMeasurement, gradient_norms, parameter_parts, update_sizes

FAMILIES = {
    "transformer": {"model.norm": "pre"},
    "gru": {"model.family": "gru", "model.num_layers": 2},
    "decoder-only": {"model.family": "decoder-only", "model.norm": "pre"},
    "encoder-only": {"model.family": "encoder-only", "model.norm": "pre"},
}
PARTS = {
    "transformer": {"embeddings", "encoder.1", "decoder.1", "output"},
    "gru": {"embeddings", "encoder.1", "encoder.2", "decoder.1", "decoder.2", "attention", "output"},
    "decoder-only": {"embeddings", "decoder.1", "output"},
    "encoder-only": {"embeddings", "encoder.1", "output"},
}


def preset_of(family: str, tiny: Preset, tiny_gru: Preset) -> Preset:
    one_layer = (
        {} if family == "gru" else {"transformer": {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1}}
    )
    base = tiny_gru if family == "gru" else tiny
    return base.with_changes(FAMILIES[family] | one_layer.get(family, {}))


def norm64(tensors) -> float:
    return math.sqrt(sum(np.square(each.detach().numpy().astype(np.float64)).sum() for each in tensors))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_is_in_one_part(family, tiny, tiny_gru):
    preset = preset_of(family, tiny, tiny_gru)
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0))
    parts = parameter_parts(model)
    listed = [id(each) for of_part in parts.values() for each in of_part]
    assert sorted(listed) == sorted(map(id, model.parameters()))
    assert PARTS[family] <= parts.keys()
    assert all(part.split(".")[0] in {"embeddings", "encoder", "decoder", "attention", "output"} for part in parts)


def test_norms_at_the_end_of_pre_norm_stacks_belong_to_what_follows(tiny):
    preset = tiny.with_changes({"model.norm": "pre"})
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0))
    parts = {part: set(map(id, of_part)) for part, of_part in parameter_parts(model).items()}
    last = f"encoder.{len(model.encoder_layers)}"
    assert {id(each) for each in model.encoder_norm.parameters()} < parts[last]
    assert {id(each) for each in model.decoder_norm.parameters()} < parts["output"]


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_equal_those_computed_in_float64(family, tiny, tiny_gru, monkeypatch):
    """The gradients and the weights of the third update are copied during the measurement and compared in numpy."""
    preset = preset_of(family, tiny, tiny_gru).with_changes(
        {"training.evaluate_every": 3, "training.steps": 3, "training.max_gradient_norm": 0.01}
    )
    state, copies = new_state(preset), {}

    def copying(model):
        for name, parameter in model.named_parameters():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            copies[name] = (parameter.detach().clone(), grad)
        return UpdateMeasurement(model)

    monkeypatch.setattr(loop, "UpdateMeasurement", copying)
    for event in train(state):
        if isinstance(event, StepEvent):
            assert (state.update_norms is None) == (event.step < 3)  # only where an evaluation follows
    after = dict(state.model.named_parameters())
    names = {id(parameter): name for name, parameter in after.items()}
    for part, of_part in parameter_parts(state.model).items():
        of = [names[id(each)] for each in of_part]
        assert state.update_norms.gradient_norm[part] == pytest.approx(norm64(copies[each][1] for each in of), rel=1e-5)
        change = norm64(after[each].detach().double() - copies[each][0].double() for each in of)
        expected = change / norm64(copies[each][0] for each in of)
        assert state.update_norms.update_size[part] == pytest.approx(expected, rel=1e-5)
    total = math.sqrt(sum(norm**2 for norm in state.update_norms.gradient_norm.values()))
    assert total == pytest.approx(state.last_gradient_norm, rel=1e-5) != pytest.approx(0.01)  # before clipping


def test_a_part_without_gradients_or_weights_has_no_norm():
    zero = torch.nn.Parameter(torch.zeros(3))
    assert gradient_norms({"output": [zero]}) == {"output": 0.0}
    assert update_sizes({"output": [zero.detach()]}, {"output": [torch.ones(3)]}) == {"output": None}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_training_is_the_same_without_the_measurement(family, tiny, tiny_gru, monkeypatch):
    preset = preset_of(family, tiny, tiny_gru).with_changes({"training.evaluate_every": 2, "training.steps": 8})

    def trained():
        state = new_state(preset)
        losses = [
            event.loss if isinstance(event, StepEvent) else event.evaluation.loss
            for event in train(state)
            if isinstance(event, StepEvent | EvaluationEvent)
        ]
        return losses, state

    losses, measured = trained()
    monkeypatch.setattr(loop, "UpdateMeasurement", lambda model: None)
    without, plain = trained()
    assert measured.update_norms is not None
    assert plain.update_norms is None
    assert [each.hex() for each in losses] == [each.hex() for each in without]
    for one, other in zip(measured.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)
