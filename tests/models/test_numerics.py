"""Edge cases in both precisions give finite losses and gradients."""

import math

import pytest
import torch

from core.tasks import Batch
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from core.training.loss import training_loss
from core.training.state import TrainingState

SYMBOLS = 10


def framed(*rows: int, width: int) -> torch.Tensor:
    """Sequences with that many symbols between BOS and EOS, padded to a width."""
    made = torch.full((len(rows), width), PAD_ID)
    made[:, 0] = BOS_ID
    for row, length in enumerate(rows):
        made[row, 1 : length + 1] = torch.arange(length) % SYMBOLS + 3
        made[row, length + 1] = EOS_ID
    return made


def pairs(*rows: int, width: int) -> Batch:
    return Batch(framed(*rows, width=width), framed(*rows, width=width))


EDGES = {
    "nothing but BOS and EOS": pairs(0, 0, 0, width=16),
    "one of them empty": pairs(0, 5, 14, width=16),
    "length 1": pairs(1, width=3),
    "length 1 behind much padding": pairs(1, 1, width=16),
    "maximum length": pairs(14, 14, width=16),
    "one sequence": pairs(5, width=7),
    "a source without a single token": Batch(torch.full((2, 6), PAD_ID), framed(2, 4, width=6)),
    "a target without EOS": Batch(framed(3, 3, width=5), framed(3, 3, width=5)[:, :-1]),
}


@pytest.fixture(params=["transformer", "gru", "decoder-only", "encoder-only"])
def state(tiny, tiny_gru, request) -> TrainingState:
    if request.param == "gru":
        return new_state(tiny_gru)
    return new_state(tiny.with_changes({"model.family": request.param, "model.dropout": 0.1, "model.max_seq_len": 16}))


def assert_finite(state: TrainingState, batch: Batch, *, precision: str, teacher_forcing_ratio: float) -> None:
    config = state.preset.training.model_copy(update={"precision": precision})
    loss = training_loss(
        state.model, batch, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=state.generator
    )
    loss.backward()
    assert math.isfinite(loss.item())
    for name, parameter in state.model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_edge_cases_give_finite_losses_and_gradients(state, precision):
    for batch in EDGES.values():
        for teacher_forcing_ratio in (1.0, 0.5):
            assert_finite(state, batch, precision=precision, teacher_forcing_ratio=teacher_forcing_ratio)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_large_logits_give_finite_losses_and_gradients(state, precision, smoothing):
    with torch.no_grad():
        state.model.output.weight.mul_(1e10)
    config = state.preset.training.model_copy(update={"label_smoothing": smoothing})
    state.preset = state.preset.model_copy(update={"training": config})
    assert_finite(state, pairs(3, 14, 0, width=16), precision=precision, teacher_forcing_ratio=1.0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_large_attention_scores_give_finite_losses_and_gradients(state, precision):
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            if any(part in name for part in ("w_q", "w_k", "w_h", "w_s", "attention.v")):
                parameter.mul_(1e4)
    assert_finite(state, pairs(3, 14, 0, width=16), precision=precision, teacher_forcing_ratio=1.0)
