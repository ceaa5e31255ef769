"""Guided alignment: a head learns the gold alignment, and pairs without one are refused."""

import math

import pytest
import torch

from core.config import ConfigError, Preset
from core.interpret.recorded_outputs import decode_recorded, score_recorded_heads
from core.storage.errors import InputError
from core.tasks import fixed_pairs
from core.teaching.bugs import new_state
from core.training.guided_alignment import GUIDED_HEAD, AlignmentGuide, guided_layer
from core.training.loop import StepEvent, train

BRIEF = {"training.steps": 100, "training.warmup_steps": 10, "training.evaluate_every": 100}
DEEP = {"model.num_decoder_layers": 2, "training.batch_size": 32}


def alignment_error(preset: Preset) -> float:
    """Train, and return the alignment error rate of the guided head."""
    state = new_state(preset)
    list(train(state))
    layer = guided_layer(preset.model.num_decoder_layers)
    recorded = decode_recorded(state.model.eval(), state.task, fixed_pairs(state.task, 200, split="validation"))
    scores = score_recorded_heads(recorded.steps)
    return next(each for each in scores if (each.layer, each.head) == (layer, GUIDED_HEAD)).aer


def test_the_guided_head_aligns_and_its_error_halves(tiny: Preset):
    preset = tiny.with_changes(BRIEF | DEEP)
    plain = alignment_error(preset)
    guided = alignment_error(preset.with_changes({"training.guided_alignment": 1.0}))
    assert guided <= plain / 2


def test_the_term_is_the_log_of_the_attention_on_the_gold_tokens(tiny: Preset):
    state = new_state(tiny.with_changes(DEEP))
    batch = fixed_pairs(state.task, 5, split="train")
    guide = AlignmentGuide(state.model, state.task)
    with guide.watching():
        state.model(batch.src, batch.tgt_in)
    pattern = guide._pattern
    total = 0.0
    for row in range(5):
        symbols = state.task.src_vocab.decode(batch.src[row].tolist()[1:])
        symbols = symbols[: symbols.index("<EOS>")]
        for step in range(len(symbols)):  # reversed digits, after BOS in column 0
            total -= math.log(pattern[row, step, len(symbols) - step].item())
    tokens = int((batch.tgt_out != 0).sum())
    assert guide.loss(batch).item() == pytest.approx(total / tokens, rel=1e-5)


def test_micro_batches_have_the_same_gradient(tiny: Preset):
    preset = tiny.with_changes(
        BRIEF | DEEP | {"training.guided_alignment": 0.5, "training.steps": 11, "model.dropout": 0}
    )
    losses = []
    for tokens in (0, 64):
        state = new_state(preset.with_changes({"training.micro_batch_tokens": tokens}))
        losses.append([event.loss for event in train(state) if isinstance(event, StepEvent)])
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-4, atol=1e-5)


def test_pairs_without_a_gold_alignment_and_models_without_attention_are_refused(tiny: Preset, tiny_gru: Preset):
    with pytest.raises(ConfigError, match="only a Transformer with full or windowed attention"):
        tiny_gru.with_changes({"training.guided_alignment": 1.0})
    with pytest.raises(ConfigError, match=r"training\.teacher_forcing_ratio=0\.5"):
        tiny.with_changes({"training.guided_alignment": 1.0, "training.teacher_forcing_ratio": 0.5})
    adding = tiny.with_changes({"task.family": "addition", "task.max_digits": 2, "training.guided_alignment": 1.0})
    with pytest.raises(InputError, match="the training pairs have no gold alignment"):
        next(train(new_state(adding)))
