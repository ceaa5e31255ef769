"""Gradient accumulation over several batches, or parts of one, equals one large batch, up to rounding in float64."""

from itertools import islice

import pytest
import torch
from torch.testing import assert_close

from core.__main__ import main
from core.tasks import Batch, Epochs
from core.teaching.bugs import new_state
from core.training.loop import EvaluationEvent, StepEvent, _parts, train
from core.training.loss import training_loss
from core.training.state import TrainingState

EPOCHS = {"training.training_sequences": 40, "training.max_gradient_norm": 1000.0}


def make_one_update(preset, batch_size: int, accumulation_steps: int) -> tuple[StepEvent, TrainingState]:
    """Make one update in float64; its gradients, not clipped, stay in ``parameter.grad``."""
    state = new_state(
        preset.with_changes(
            {"training.batch_size": batch_size, "training.gradient_accumulation_steps": accumulation_steps}
        )
    )
    state.model.double()
    *_, event = islice(train(state), 2)
    return event, state


@pytest.mark.parametrize(("family", "smoothing"), [("transformer", 0.2), ("gru", 0.0)])
def test_gradients_of_four_batches_equal_those_of_one_four_times_as_large(tiny, tiny_gru, family, smoothing):
    preset = {"transformer": tiny, "gru": tiny_gru}[family].with_changes(
        EPOCHS | {"model.dropout": 0.0, "training.label_smoothing": smoothing}
    )
    (large, one_batch), (small, accumulated) = make_one_update(preset, 20, 1), make_one_update(preset, 5, 4)
    assert small.loss == pytest.approx(large.loss, rel=1e-6)
    assert small.gradient_norm == pytest.approx(large.gradient_norm, rel=1e-6)
    for one, other in zip(one_batch.model.parameters(), accumulated.model.parameters(), strict=True):
        assert one.grad.abs().max() > 0 or one.ndim == 1
        assert_close(other.grad, one.grad, atol=1e-12, rtol=1e-6)


@pytest.mark.parametrize(("family", "smoothing"), [("transformer", 0.2), ("gru", 0.0)])
@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_gradients_of_a_batch_in_parts_equal_those_of_the_whole(
    tiny, tiny_gru, monkeypatch, family, smoothing, accumulation_steps
):
    preset = {"transformer": tiny, "gru": tiny_gru}[family].with_changes(
        EPOCHS | {"model.dropout": 0.0, "training.label_smoothing": smoothing}
    )
    whole, one_batch = make_one_update(preset, 10, accumulation_steps)
    sizes, loss = [], training_loss

    def counting(model, batch, *rest, **settings):
        sizes.append(len(batch))
        return loss(model, batch, *rest, **settings)

    monkeypatch.setattr("core.training.state.training_loss", counting)
    length = preset.longest_sequence
    in_parts = preset.with_changes({"training.micro_batch_tokens": 4 * length + 1})
    divided, accumulated = make_one_update(in_parts, 10, accumulation_steps)
    assert sizes == [4, 4, 2] * accumulation_steps
    assert divided.loss == pytest.approx(whole.loss, rel=1e-6)
    for one, other in zip(one_batch.model.parameters(), accumulated.model.parameters(), strict=True):
        assert one.grad.abs().max() > 0 or one.ndim == 1
        assert_close(other.grad, one.grad, atol=1e-8, rtol=1e-6)  # without smoothing, the loss is in float32


@pytest.mark.parametrize(("tokens", "sizes"), [(0, [10]), (70, [10]), (69, [5, 5]), (21, [3, 3, 3, 1]), (5, [1] * 10)])
def test_parts_of_a_batch_have_at_most_so_many_tokens_and_all_its_rows(tokens, sizes):
    batch = Batch(torch.arange(60).view(10, 6), torch.arange(80).view(10, 8))  # decoder input of 7 tokens
    parts = _parts(batch, tokens)
    assert [len(part) for part in parts] == sizes
    assert torch.equal(torch.cat([part.src for part in parts]), batch.src)
    assert torch.equal(torch.cat([part.tgt for part in parts]), batch.tgt)


def test_the_batches_of_that_comparison_have_different_numbers_of_tokens(tiny, monkeypatch):
    counts, at = [], Epochs.at

    def counting(self, number, generator):
        batch = at(self, number, generator)
        counts.append(int((batch.tgt_out != 0).sum()))
        return batch

    monkeypatch.setattr(Epochs, "at", counting)
    make_one_update(tiny.with_changes(EPOCHS), 5, 4)
    assert len(counts) == 4
    assert len(set(counts)) > 1


@pytest.mark.parametrize("group_by_length", [False, True])
def test_sequences_and_tokens_of_all_batches_are_counted(tiny, monkeypatch, group_by_length):
    tokens = []
    monkeypatch.setattr(
        "core.training.loop._count_tokens", lambda batch: tokens.append((batch.tgt_out != 0).sum()) or tokens[-1]
    )
    changes = {"training.gradient_accumulation_steps": 3, "training.group_by_length": group_by_length}
    state = new_state(tiny.with_changes(changes))
    before = 0.0
    for event in train(state):
        assert state.sequences_seen == state.step * 3 * 8
        if isinstance(event, StepEvent):
            of_step = sum(int(count) for count in tokens[-3:])
            assert event.tokens_per_second == pytest.approx(of_step / (state.seconds - before))
        before = state.seconds


def test_every_pair_is_used_once_per_epoch(tiny, monkeypatch):
    used, at = [], Epochs.at

    def recording(self, number, generator):
        batch = at(self, number, generator)
        used.extend(tuple(row) for row in batch.src.tolist())
        return batch

    monkeypatch.setattr(Epochs, "at", recording)
    list(
        train(
            new_state(tiny.with_changes({"training.training_sequences": 48, "training.gradient_accumulation_steps": 3}))
        )
    )
    epochs = [used[start : start + 48] for start in range(0, len(used), 48)]
    assert len(epochs) == 4  # 8 updates of 24
    assert all(len(set(epoch)) == 48 for epoch in epochs)


def test_the_command_line_counts_epochs_by_sequences(root, capsys):
    arguments = ["--checkpoints", str(root), "train", "--preset", "tiny", "--device", "cpu"]
    changes = {
        "steps": 10,
        "warmup_steps": 2,
        "batch_size": 5,
        "gradient_accumulation_steps": 4,
        "training_sequences": 100,
        "evaluate_every": 5,
    }
    for key, value in (changes | {"validation_sequences": 8}).items():
        arguments += ["--set", f"training.{key}={value}"]
    assert main(arguments) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "epoch" in line]
    assert [line.split()[3] for line in lines] == ["0.00", "1.00", "2.00"]


def test_the_mean_training_loss_is_the_mean_over_updates(tiny):
    losses = []
    for event in train(new_state(tiny.with_changes({"training.gradient_accumulation_steps": 2}))):
        if isinstance(event, StepEvent):
            losses.append(event.loss)
        elif isinstance(event, EvaluationEvent) and event.step:
            assert event.train_loss == pytest.approx(torch.tensor(losses).mean().item(), rel=1e-5)
            losses.clear()
