"""The training loss: label smoothing computed by hand, and bfloat16 that trains as well as float32."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from core.evaluation.accuracy import evaluate, sequence_loss
from core.tasks import fixed_pairs
from core.teaching.bugs import new_state
from core.text.vocab import PAD_ID
from core.training.loop import EvaluationEvent, StepEvent, train
from core.training.loss import smoothed_loss, training_loss

FAMILIES = pytest.mark.parametrize("family", ["transformer", "gru"])


@pytest.fixture
def preset_of(tiny, tiny_gru):
    return {"transformer": tiny, "gru": tiny_gru.with_changes({"model.dropout": 0.0})}.__getitem__


def test_label_smoothing_by_hand():
    # Two tokens that count, in a vocabulary of PAD and three others.
    logits = torch.tensor([[[0.0, 1.0, 2.0, 3.0], [9.0, 0.0, 0.0, 1.0], [5.0, 6.0, 7.0, 8.0]]])
    tgt_out = torch.tensor([[3, 1, PAD_ID]])

    def nll(scores: list[float], token: int) -> float:
        return math.log(sum(math.exp(score) for score in scores)) - scores[token]

    by_hand = 0.0
    for scores, target in (([0.0, 1.0, 2.0, 3.0], 3), ([9.0, 0.0, 0.0, 1.0], 1)):
        by_hand += 0.9 * nll(scores, target) + sum(0.1 / 3 * nll(scores, token) for token in (1, 2, 3))
    assert smoothed_loss(logits, tgt_out, 0.1).item() == pytest.approx(by_hand / 2, rel=1e-6)


def test_pad_gets_no_probability_mass_and_pad_positions_do_not_count():
    logits = torch.randn(2, 5, 7, dtype=torch.float64)
    tgt_out = torch.tensor([[4, 5, 2, 0, 0], [6, 2, 0, 0, 0]])
    changed = logits.clone()
    changed[tgt_out == PAD_ID] = 100.0
    assert smoothed_loss(changed, tgt_out, 0.3) == smoothed_loss(logits, tgt_out, 0.3)
    logits.requires_grad_()
    smoothed_loss(logits, tgt_out, 0.3).backward()
    # The gradient is (softmax - target) / N, and the target probability of PAD is 0.
    counted = tgt_out != PAD_ID
    softmax = logits.detach().softmax(dim=-1)
    assert_close(logits.grad[counted][:, PAD_ID], softmax[counted][:, PAD_ID] / counted.sum())


def test_no_smoothing_is_plain_cross_entropy():
    logits, tgt_out = torch.randn(3, 4, 7, dtype=torch.float64), torch.randint(0, 7, (3, 4))
    assert_close(smoothed_loss(logits, tgt_out, 0.0), sequence_loss(logits, tgt_out))


def test_smoothing_equals_pytorchs_where_pad_is_impossible():
    logits, tgt_out = torch.randn(6, 5, dtype=torch.float64), torch.randint(0, 5, (6,))
    pytorchs = torch.nn.functional.cross_entropy(logits, tgt_out, label_smoothing=0.2)
    impossible = torch.nn.functional.pad(logits, (1, 0), value=-math.inf)[None]
    assert_close(smoothed_loss(impossible, tgt_out[None] + 1, 0.2), pytorchs)


def test_the_validation_loss_is_not_smoothed(tiny):
    state = new_state(tiny.with_changes({"training.label_smoothing": 0.5}))
    validation = fixed_pairs(state.task, 16, split="validation")
    for event in train(state):
        if isinstance(event, EvaluationEvent):
            with torch.no_grad():
                logits = state.model.eval()(validation.src, validation.tgt_in)
            plain = sequence_loss(logits, validation.tgt_out).item()
            state.model.train()
            assert event.evaluation.loss == pytest.approx(plain, rel=1e-5)


def test_the_training_loss_is_smoothed(tiny):
    preset = tiny.with_changes({"training.label_smoothing": 0.5})
    state, same = new_state(preset), new_state(preset)
    loss = next(event.loss for event in train(state) if isinstance(event, StepEvent))
    batch = same.task.sample(8, split="train", generator=same.generator)
    logits = same.model(batch.src, batch.tgt_in)
    assert loss == pytest.approx(smoothed_loss(logits, batch.tgt_out, 0.5).item(), rel=1e-6)
    assert loss != pytest.approx(sequence_loss(logits, batch.tgt_out).item(), rel=1e-3)


# --- bfloat16 ---------------------------------------------------------------------------------------------------


@FAMILIES
def test_bfloat16_is_close_and_keeps_loss_weights_and_gradients_in_float32(preset_of, family):
    losses = {}
    for precision in ("float32", "bfloat16"):
        state = new_state(preset_of(family).with_changes({"training.precision": precision}))
        batch = state.task.sample(8, split="train", generator=state.generator)
        loss = training_loss(
            state.model, batch, state.preset.training, teacher_forcing_ratio=1.0, generator=state.generator
        )
        loss.backward()
        assert loss.dtype == torch.float32
        assert all(each.dtype == each.grad.dtype == torch.float32 for each in state.model.parameters())
        losses[precision] = loss.item()
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["bfloat16"] != losses["float32"]  # bfloat16 is really used


@pytest.mark.parametrize(("family", "teacher_forcing_ratio"), [("transformer", 1.0), ("gru", 0.5)])
def test_training_in_bfloat16_learns_like_float32(preset_of, family, teacher_forcing_ratio):
    changes = {
        "training.steps": 24,
        "training.evaluate_every": 24,
        "training.batch_size": 16,
        "training.teacher_forcing_ratio": teacher_forcing_ratio,
    }
    last = {}
    for precision in ("float32", "bfloat16"):
        state = new_state(preset_of(family).with_changes(changes | {"training.precision": precision}))
        events = list(train(state))
        steps = [event for event in events if isinstance(event, StepEvent)]
        assert len(steps) == 24
        assert all(math.isfinite(event.loss) and math.isfinite(event.gradient_norm) for event in steps)
        first, last[precision] = (event.evaluation.loss for event in events if isinstance(event, EvaluationEvent))
        assert last[precision] < first - 0.15
    assert last["bfloat16"] == pytest.approx(last["float32"], rel=0.1)


def test_a_model_trained_in_bfloat16_is_evaluated_in_float32(tiny):
    state = new_state(tiny.with_changes({"training.precision": "bfloat16"}))
    evaluations = [event.evaluation for event in train(state) if isinstance(event, EvaluationEvent)]
    on_training = {"train_token_accuracy": None, "train_exact_match": None}
    assert evaluate(state.model, fixed_pairs(state.task, 16, split="validation")) == replace(
        evaluations[-1], **on_training
    )
