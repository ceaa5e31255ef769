"""The estimate of training memory is what PyTorch allocates, part by part, and is compared with what there is."""

from typing import get_args
from unittest.mock import Mock, patch

import pytest
import torch

from benchmarks.memory import measure_update
from core.__main__ import main
from core.config import load_preset
from core.config.sections import Positions
from core.evaluation.accuracy import evaluate
from core.models import build_model, outline_model
from core.tasks import Batch, build_task, fixed_pairs
from core.training import memory
from core.training.loss import loss_of_logits, training_loss
from core.training.memory import (
    _evaluation_peak,
    _optimizer_bytes,
    _update_peak,
    activations_by_part,
    device_memory,
    estimate_memory,
    machine_memory,
    memory_warning,
    training_memory,
)
from core.training.optimizers import build_optimizer
from core.training.peak_memory import PeakMemory
from ui.forms.preset_form import memory_text


def meta_ids(batch_size, length):
    return torch.ones(batch_size, length, dtype=torch.int64, device="meta")


@pytest.mark.parametrize("family", ["transformer", "decoder-only", "encoder-only", "gru"])
def test_activations_are_linear_in_the_batch_and_close_to_a_real_step(tiny, family):
    preset = tiny.with_changes({"model.family": family})
    task, four = build_task(preset.task), estimate_memory(preset, batch_size=4, length=8).activations
    outline, sizes = outline_model(preset.model, task).train(), (1, 2)
    one, two = (sum(activations_by_part(outline, meta_ids(size, 8), preset.training).values()) for size in sizes)
    assert four - two == pytest.approx(2 * (two - one), rel=0.05)
    model = build_model(preset.model, task, torch.Generator().manual_seed(0)).train()
    real = sum(activations_by_part(model, torch.ones(4, 8, dtype=torch.int64), preset.training).values())
    assert four == pytest.approx(real, rel=0.2)  # on a CPU, few keys are padded


def test_activations_of_attention_grow_with_the_square_of_the_length_and_others_with_the_length(tiny):
    long = tiny.with_changes({"model.max_seq_len": 512, "model.dropout": 0.1})  # dropout needs the attention weights
    half, whole = (estimate_memory(long, batch_size=1, length=length).activations_by_part for length in (256, 512))
    assert whole["attention"] > 3 * half["attention"]
    assert whole["feed-forward"] == pytest.approx(2 * half["feed-forward"], rel=0.05)


def test_the_estimate_is_what_an_update_allocates():
    measured = measure_update("small", 2, 128)
    assert measured.estimated == pytest.approx(measured.allocated, rel=0.25)


@pytest.mark.parametrize(
    ("family", "changes", "precision"),
    [
        ("transformer", {"model.dropout": 0.1, "training.label_smoothing": 0.1}, "bfloat16"),
        ("decoder-only", {}, "float32"),
        ("encoder-only", {"training.label_smoothing": 0.1}, "float32"),
        ("gru", {}, "bfloat16"),
        *(("transformer", {"model.positions": each}, "float32") for each in get_args(Positions)),
    ],
)
def test_meta_tensors_tell_what_loss_and_backward_pass_and_evaluation_allocate(tiny, family, changes, precision):
    changes = {"model.family": family, "model.max_seq_len": 32, "training.precision": precision} | changes
    preset = tiny.with_changes(changes | {"training.validation_sequences": 40})
    task, generator = build_task(preset.task), torch.Generator().manual_seed(0)
    model, outline = build_model(preset.model, task, generator).train(), outline_model(preset.model, task).train()
    ids = torch.full((64, 21), 5)
    batch = Batch(ids[:, 1:], ids)
    with PeakMemory() as real:
        loss = training_loss(model, batch, preset.training, teacher_forcing_ratio=1, generator=generator)
        loss.backward()
    estimated = _update_peak(outline, meta_ids(64, 20), preset.training)
    assert estimated == pytest.approx(real.highest, rel=0.3 if family == "gru" and precision == "bfloat16" else 0.1)
    model.zero_grad()
    pairs = fixed_pairs(task, 40, split="validation")
    with PeakMemory() as real:
        evaluate(model, pairs)
    assert _evaluation_peak(preset, outline) == pytest.approx(real.highest, rel=0.3)


def test_copies_of_the_logits_in_a_smoothed_loss_are_counted(tiny):
    smoothed = tiny.with_changes({"training.label_smoothing": 0.1})
    logits = torch.empty(4, 50, 1_000, device="meta", requires_grad=True)
    with PeakMemory() as peak:
        loss_of_logits(logits, meta_ids(4, 50), smoothed.training).backward()
    copies = peak.highest / (logits.numel() * 4)
    assert 4 <= copies < 6  # log softmax, negated, joined without PAD, and gradients


def test_tensors_are_counted_while_they_exist_and_views_are_not():
    with PeakMemory() as peak:
        first = torch.ones(1_000)
        view = first[:500].view(50, 10)
        second = first + 1  # both: 8,000 bytes
        del first
        third = second * 2  # the view holds the first
        assert peak.highest == 12_000
        del view, second
        torch.cat([third, third[:500]]).add_(1)  # 4,000 and 6,000
    assert peak.highest == 12_000


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adam-by-hand", "muon"])
def test_the_optimizer_has_the_estimated_size(tiny, optimizer):
    rate = {"training.muon_learning_rate": 0.02} if optimizer == "muon" else {}
    preset = tiny.with_changes({"training.optimizer": optimizer} | rate)
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0))
    built = build_optimizer(preset.training, model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    built.step()
    kept = [each for state in built.state.values() for each in state.values() if isinstance(each, torch.Tensor)]
    size = sum(each.numel() * each.element_size() for each in kept if each.ndim)  # without step counters
    assert _optimizer_bytes(preset, model) == size


@pytest.mark.parametrize(
    ("family", "parts"),
    [
        ("transformer", {"attention", "feed-forward", "embeddings"}),
        ("decoder-only", {"attention", "feed-forward", "embeddings"}),
        ("encoder-only", {"attention", "feed-forward", "embeddings"}),
        ("gru", {"attention", "recurrent layers", "embeddings"}),
    ],
)
def test_the_parts_add_up(tiny, family, parts):
    estimate = estimate_memory(tiny.with_changes({"model.family": family}), batch_size=4, length=8)
    assert set(estimate.weights_by_part) == set(estimate.activations_by_part) == parts | {memory.OTHER}
    assert sum(estimate.weights_by_part.values()) == estimate.weights
    assert sum(estimate.activations_by_part.values()) == estimate.activations
    assert estimate.allocated == 4 * estimate.weights + estimate.activations + estimate.temporary  # two moments of Adam
    assert estimate.total == estimate.allocated + estimate.overhead


def test_settings_that_take_no_memory_are_estimated_once(tiny):
    other = {"steps": 9, "learning_rate": 0.1, "schedule": "polynomial", "decay_power": 2.0, "warmup_steps": 3}
    other |= {"adam_beta2": 0.9, "weight_decay": 0.1, "evaluate_every": 2, "patience": 1, "seed": 5}
    other |= {"embedding_learning_rate": 0.01, "muon_learning_rate": 0.01}
    assert set(memory.TAKE_NO_MEMORY) == set(other)
    first = training_memory(tiny.with_changes({"model.d_ff": 40}))
    again = tiny.with_changes({"model.d_ff": 40})
    again = again.model_copy(update={"name": "other", "training": again.training.model_copy(update=other)})
    with patch.object(memory, "outline_model", Mock(wraps=memory.outline_model)) as counted:
        assert training_memory(again) == first
        assert not counted.called
    assert memory._estimate.__wrapped__(again, tiny.training.batch_size, again.longest_sequence, None) == first


def test_a_preset_is_estimated_with_its_longest_sequences(tiny):
    longest = max(tiny.task.longest_source, tiny.task.longest_answer) + 2
    batch_size = tiny.training.batch_size
    assert training_memory(tiny) == estimate_memory(tiny, batch_size=batch_size, length=longest)


def test_no_batch_within_a_token_budget_takes_more_than_is_estimated(tiny):
    budget = 100  # which the longest sequences do not fill
    changes = {"training.group_by_length": True, "training.tokens_per_batch": budget}
    estimated = training_memory(tiny.with_changes(changes)).activations
    possible = [estimate_memory(tiny, batch_size=budget // length, length=length).activations for length in range(4, 8)]
    assert max(possible) <= estimated < 1.2 * max(possible)


def test_training_and_describing_more_than_the_machine_has_warns(monkeypatch, tmp_path, capsys):
    preset, limit = load_preset("tiny"), tmp_path / "memory.max"
    large = preset.with_changes({"training.batch_size": 4_096, "training.steps": 1, "training.warmup_steps": 0})
    assert memory_warning(preset, "cpu") == memory_warning(large, "cpu") == ""
    monkeypatch.setattr(memory, "_CGROUP_LIMIT", limit)
    limit.write_text("80000000\n")
    assert memory_warning(preset, "cpu") == ""
    assert "and this machine has 0.1 GB: lower training.batch_size=4,096" in memory_warning(large, "cpu")
    size = "--set=training.batch_size=4096"
    arguments = ["--checkpoints", str(tmp_path / "runs"), "train", "--preset", "tiny", size]
    assert main([*arguments, "--set=training.steps=1", "--set=training.warmup_steps=0"]) == 0
    assert "warning: training takes about" in capsys.readouterr().err
    assert main(["describe", "--preset", "tiny", "--batch-size", "4096", "--length", "12"]) == 0
    assert "warning: more than this machine has, in all: 4096 × 12 tokens takes" in capsys.readouterr().out


def test_sequences_above_1024_tokens_are_warned_of(capsys):
    tiny, gru = load_preset("tiny"), load_preset("digits-reversal-gru")
    assert memory_warning(tiny.with_changes({"model.max_seq_len": 1_024}), "cpu") == ""
    assert memory_warning(gru.with_changes({"model.max_seq_len": 2_048}), "cpu") == ""  # no attention among its tokens
    warning = "model.max_seq_len=1,025 is above 1,024: memory and time of attention grow with the square"
    assert warning in memory_warning(tiny.with_changes({"model.max_seq_len": 1_025}), "cpu")
    assert main(["describe", "--preset", "tiny", "--length", "8", "--set", "model.max_seq_len=1025"]) == 0
    assert f"warning: {warning}" in capsys.readouterr().out


def test_more_than_the_machine_has_is_warned_of(monkeypatch, tmp_path):
    assert machine_memory() > 10**8
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUP_LIMIT", limit)
    limit.write_text("500000000\n")
    assert machine_memory() == 500_000_000
    assert device_memory("cpu") == device_memory("mps") == 500_000_000
    assert memory_text(7_200_000, 500_000_000) == "7 MB of memory"
    assert memory_text(1_500_000_000, 500_000_000) == "1.5 GB of memory ⚠ there are 500 MB"
    limit.write_text("max\n")
    assert machine_memory() > 10**8
