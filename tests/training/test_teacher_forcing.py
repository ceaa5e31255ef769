"""How much of the truth a model reads in training: all of it, some, or none."""

from itertools import islice

import pytest
import torch
from torch.testing import assert_close

from core.evaluation.accuracy import sequence_loss
from core.models import Seq2Seq
from core.runs.training_state import load_state
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID
from core.training.checkpoint import save_state
from core.training.loop import EvaluationEvent, StepEvent, train
from core.training.loss import stepwise_logits
from tests.training.test_loop import assert_same, essence

FAMILIES = pytest.mark.parametrize("family", ["transformer", "gru"])


@pytest.fixture
def preset_of(tiny, tiny_gru):
    """A preset by the family of its model, without dropout."""
    return {"transformer": tiny, "gru": tiny_gru.with_changes({"model.dropout": 0.0})}.__getitem__


def inputs_read(model: Seq2Seq, batch, is_true, monkeypatch) -> torch.Tensor:
    """The tokens (B, T) that the decoder was given, step by step."""
    tokens, decode = [], model.decode
    monkeypatch.setattr(model, "decode", lambda token, *rest: tokens.append(token) or decode(token, *rest))
    stepwise_logits(model, batch, is_true)
    return torch.cat(tokens, dim=1)


@FAMILIES
def test_reading_nothing_but_the_truth_step_by_step_equals_the_one_call(preset_of, family):
    state = new_state(preset_of(family))
    batch = state.task.sample(8, split="train", generator=state.generator)
    expected, _ = state.model(batch.src, batch.tgt_in)
    logits = stepwise_logits(state.model, batch, torch.ones_like(batch.tgt_in, dtype=torch.bool))
    assert_close(logits, expected, atol=1e-5, rtol=0)


@FAMILIES
def test_reading_nothing_of_the_truth_is_writing_freely(preset_of, family, monkeypatch):
    state = new_state(preset_of(family))
    batch = state.task.sample(8, split="train", generator=state.generator)
    none = torch.zeros_like(batch.tgt_in, dtype=torch.bool)
    choices = stepwise_logits(state.model, batch, none).argmax(dim=-1)
    read = inputs_read(state.model, batch, none, monkeypatch)
    assert (read[:, 0] == BOS_ID).all()
    assert torch.equal(read[:, 1:], choices[:, :-1])


def test_each_sequence_reads_the_truth_where_it_is_told_to(preset_of, monkeypatch):
    state = new_state(preset_of("gru"))
    batch = state.task.sample(8, split="train", generator=state.generator)
    is_true = torch.rand(batch.tgt_in.shape) < 0.5
    logits = stepwise_logits(state.model, batch, is_true)
    read = inputs_read(state.model, batch, is_true, monkeypatch)
    expected = torch.where(is_true[:, 1:], batch.tgt_in[:, 1:], logits.argmax(dim=-1)[:, :-1])
    assert torch.equal(read[:, 1:], expected)


def test_gradients_are_those_of_the_tokens_read_as_if_they_had_been_given(preset_of, monkeypatch):
    state = new_state(preset_of("gru"))
    batch = state.task.sample(8, split="train", generator=state.generator)
    is_true = torch.rand(batch.tgt_in.shape) < 0.5
    read = inputs_read(state.model, batch, is_true, monkeypatch)
    monkeypatch.undo()
    gradients = []
    for logits in (stepwise_logits(state.model, batch, is_true), state.model(batch.src, read)[0]):
        state.model.zero_grad()
        sequence_loss(logits, batch.tgt_out).backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in state.model.named_parameters()})
    assert_close(gradients[0], gradients[1], atol=1e-6, rtol=0)


def test_full_teacher_forcing_is_one_call_that_draws_nothing(preset_of, monkeypatch):
    monkeypatch.setattr("core.training.loss.stepwise_logits", None)
    for name in ("transformer", "gru"):
        state = new_state(preset_of(name))
        again = new_state(preset_of(name))
        list(islice(train(state), 2))
        again.task.sample(8, split="train", generator=again.generator)
        assert torch.equal(state.generator.get_state(), again.generator.get_state())


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.5])
def test_the_share_of_true_tokens_is_the_one_asked_for(preset_of, ratio, monkeypatch):
    shares = []
    monkeypatch.setattr(
        "core.training.loss.stepwise_logits",
        lambda model, batch, is_true: shares.append(is_true.float().mean().item()) or model(batch.src, batch.tgt_in)[0],
    )
    changes = {"training.teacher_forcing_ratio": ratio, "training.batch_size": 500, "training.steps": 2}
    list(train(new_state(preset_of("gru").with_changes(changes))))
    assert shares == pytest.approx([ratio] * 2, abs=0.03)


@FAMILIES
def test_scheduled_sampling_reads_less_of_the_truth_every_step(preset_of, family, monkeypatch):
    shares = []
    monkeypatch.setattr(
        "core.training.loss.stepwise_logits",
        lambda model, batch, is_true: shares.append(is_true.float().mean().item()) or model(batch.src, batch.tgt_in)[0],
    )
    changes = {"teacher_forcing_ratio": 0.2, "teacher_forcing_schedule": "linear", "batch_size": 1000, "steps": 5}
    preset = preset_of(family).with_changes({f"training.{key}": value for key, value in changes.items()})
    list(train(new_state(preset)))
    assert shares == pytest.approx([0.8, 0.6, 0.4, 0.2], abs=0.03)  # and the first, all true, in one call


@FAMILIES
def test_scheduled_sampling_learns(preset_of, family):
    changes = {"teacher_forcing_ratio": 0.0, "teacher_forcing_schedule": "linear", "steps": 60, "evaluate_every": 60}
    changes |= {"batch_size": 32}
    preset = preset_of(family).with_changes({f"training.{key}": value for key, value in changes.items()})
    events = list(train(new_state(preset)))
    first, last = (event.evaluation.loss for event in events if isinstance(event, EvaluationEvent))
    assert last < first - 0.15


@FAMILIES
def test_half_of_the_truth_is_enough_to_learn_from(preset_of, family):
    changes = {
        "training.teacher_forcing_ratio": 0.5,
        "training.steps": 60,
        "training.evaluate_every": 60,
        "training.batch_size": 32,
    }
    events = list(train(new_state(preset_of(family).with_changes(changes))))
    first, last = (event.evaluation.loss for event in events if isinstance(event, EvaluationEvent))
    assert last < first - 0.15


@FAMILIES
def test_a_run_with_every_kind_of_draw_continues_bit_for_bit(tiny, tiny_gru, family, tmp_path):
    changes = {"model.dropout": 0.2, "training.teacher_forcing_ratio": 0.5, "training.optimizer": "adam-by-hand"}
    preset = {"transformer": tiny, "gru": tiny_gru}[family].with_changes(changes)
    straight, paused = new_state(preset), new_state(preset)
    expected = list(train(straight))
    events = []
    for event in train(paused):
        events.append(event)
        if isinstance(event, StepEvent) and event.step == 3:
            break
    torch.rand(3)  # what others draw meanwhile changes nothing
    save_state(tmp_path / "last.safetensors", paused)
    loaded = load_state(tmp_path / "last.safetensors", preset)
    assert_same(loaded, paused)
    events += train(loaded)
    assert essence(events) == essence(expected)
    assert_same(loaded, straight)
