"""Teacher forcing: how much of the target the decoder reads in training, and when it reads its own predictions."""

from itertools import islice

import pytest
import torch
from torch.testing import assert_close

from core.evaluation.accuracy import sequence_loss
from core.evaluation.stepwise import stepwise_logits
from core.models import Seq2Seq
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID
from core.training.loop import EvaluationEvent, train

FAMILIES = pytest.mark.parametrize("family", ["transformer", "gru"])


@pytest.fixture
def preset_of(tiny, tiny_gru):
    """A preset by the family of its model, without dropout."""
    return {"transformer": tiny, "gru": tiny_gru.with_changes({"model.dropout": 0.0})}.__getitem__


def decoder_inputs(model: Seq2Seq, batch, is_forced, monkeypatch) -> torch.Tensor:
    """The tokens (B, T) that the decoder reads, step by step."""
    tokens, decode = [], model.decode
    monkeypatch.setattr(model, "decode", lambda token, *rest: tokens.append(token) or decode(token, *rest))
    stepwise_logits(model, batch, is_forced)
    return torch.cat(tokens, dim=1)


@FAMILIES
def test_full_forcing_step_by_step_equals_the_single_forward_pass(preset_of, family):
    state = new_state(preset_of(family))
    batch = state.task.sample(8, split="train", generator=state.generator)
    expected = state.model(batch.src, batch.tgt_in)
    logits = stepwise_logits(state.model, batch, torch.ones_like(batch.tgt_in, dtype=torch.bool))
    assert_close(logits, expected, atol=1e-5, rtol=0)


@FAMILIES
def test_no_forcing_is_free_running_decoding(preset_of, family, monkeypatch):
    state = new_state(preset_of(family))
    batch = state.task.sample(8, split="train", generator=state.generator)
    none = torch.zeros_like(batch.tgt_in, dtype=torch.bool)
    predictions = stepwise_logits(state.model, batch, none).argmax(dim=-1)
    read = decoder_inputs(state.model, batch, none, monkeypatch)
    assert (read[:, 0] == BOS_ID).all()
    assert torch.equal(read[:, 1:], predictions[:, :-1])


def test_the_decoder_reads_the_target_exactly_where_forced(preset_of, monkeypatch):
    state = new_state(preset_of("gru"))
    batch = state.task.sample(8, split="train", generator=state.generator)
    is_forced = torch.rand(batch.tgt_in.shape) < 0.5
    logits = stepwise_logits(state.model, batch, is_forced)
    read = decoder_inputs(state.model, batch, is_forced, monkeypatch)
    expected = torch.where(is_forced[:, 1:], batch.tgt_in[:, 1:], logits.argmax(dim=-1)[:, :-1])
    assert torch.equal(read[:, 1:], expected)


def test_gradients_equal_those_of_reading_the_same_tokens_as_input(preset_of, monkeypatch):
    state = new_state(preset_of("gru"))
    batch = state.task.sample(8, split="train", generator=state.generator)
    is_forced = torch.rand(batch.tgt_in.shape) < 0.5
    read = decoder_inputs(state.model, batch, is_forced, monkeypatch)
    monkeypatch.undo()
    gradients = []
    for logits in (stepwise_logits(state.model, batch, is_forced), state.model(batch.src, read)):
        state.model.zero_grad()
        sequence_loss(logits, batch.tgt_out).backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in state.model.named_parameters()})
    assert_close(gradients[0], gradients[1], atol=1e-6, rtol=0)


def test_full_teacher_forcing_is_one_forward_pass_and_draws_nothing(preset_of, monkeypatch):
    monkeypatch.setattr("core.training.loss.stepwise_logits", None)
    for name in ("transformer", "gru"):
        state = new_state(preset_of(name))
        again = new_state(preset_of(name))
        list(islice(train(state), 2))
        again.task.sample(8, split="train", generator=again.generator)
        assert torch.equal(state.generator.get_state(), again.generator.get_state())


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.5])
def test_the_fraction_of_forced_tokens_is_the_configured_ratio(preset_of, ratio, monkeypatch):
    fractions = []
    monkeypatch.setattr(
        "core.training.loss.stepwise_logits",
        lambda model, batch, is_forced: (
            fractions.append(is_forced.float().mean().item()) or model(batch.src, batch.tgt_in)
        ),
    )
    changes = {"training.teacher_forcing_ratio": ratio, "training.batch_size": 500, "training.steps": 2}
    list(train(new_state(preset_of("gru").with_changes(changes))))
    assert fractions == pytest.approx([ratio] * 2, abs=0.03)


@FAMILIES
def test_scheduled_sampling_forces_fewer_tokens_every_step(preset_of, family, monkeypatch):
    fractions = []
    monkeypatch.setattr(
        "core.training.loss.stepwise_logits",
        lambda model, batch, is_forced: (
            fractions.append(is_forced.float().mean().item()) or model(batch.src, batch.tgt_in)
        ),
    )
    changes = {"teacher_forcing_ratio": 0.2, "teacher_forcing_schedule": "linear", "batch_size": 1000, "steps": 5}
    preset = preset_of(family).with_changes({f"training.{key}": value for key, value in changes.items()})
    list(train(new_state(preset)))
    assert fractions == pytest.approx(
        [0.8, 0.6, 0.4, 0.2], abs=0.03
    )  # the first step, fully forced, is one forward pass


@pytest.mark.parametrize(("family", "ratio", "schedule"), [("transformer", 0.0, "linear"), ("gru", 0.5, "constant")])
def test_partial_teacher_forcing_learns(preset_of, family, ratio, schedule):
    changes = {"teacher_forcing_ratio": ratio, "teacher_forcing_schedule": schedule}
    changes |= {"steps": 12, "evaluate_every": 12, "batch_size": 16}
    preset = preset_of(family).with_changes({f"training.{key}": value for key, value in changes.items()})
    events = list(train(new_state(preset)))
    first, last = (event.evaluation.loss for event in events if isinstance(event, EvaluationEvent))
    assert last < first - 0.15
