"""The bugs: each breaks what its description says and nothing else, in a run that is saved and resumed as usual."""

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch

from core.config import BUG_FAMILIES, BugName, ConfigError, Preset, parse_preset, preset_to_yaml, read_preset
from core.interpret.inspection import inspect
from core.models import AttentionMaps, Seq2Seq, forward_with_attention
from core.models.attention import MultiHeadAttention
from core.models.hooks import hooks
from core.models.layers import EncoderLayer
from core.runs.training_state import load_state
from core.tasks import fixed_pairs, training_batches
from core.teaching.bugs import BUGS, Bug, bug_of, new_state
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS, bug_notice
from core.text.vocab import EOS_ID, PAD_ID
from core.training.checkpoint import save_state
from core.training.loop import StepEvent, train
from core.training.state import TrainingState

NAMES = get_args(BugName)
QUICK = {"training.steps": 2, "training.warmup_steps": 1, "training.evaluate_every": 2}


@pytest.fixture(scope="module")
def broken_preset(tiny: Preset, tiny_gru: Preset) -> Callable[[BugName], Preset]:
    """Return a preset with a bug, of a family that the bug applies to."""
    return lambda bug: (tiny if "transformer" in BUG_FAMILIES[bug] else tiny_gru).with_bug(bug)


@pytest.fixture(scope="module")
def broken(broken_preset: Callable[[BugName], Preset]) -> Callable[..., TrainingState]:
    """Return the initial state of a run with a bug."""
    return lambda bug, **changes: new_state(broken_preset(bug).with_changes(changes))


def padded(state: TrainingState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A short source, the same with three PAD appended, and the decoder input."""
    pair = fixed_pairs(state.task, 16, split="validation")[:1].trimmed()
    return pair.src, torch.nn.functional.pad(pair.src, (0, 3), value=PAD_ID), pair.tgt_in


def maps_of(model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor) -> AttentionMaps:
    return forward_with_attention(model.eval(), src, tgt_in)[1]


def test_every_bug_has_families_a_description_and_an_implementation():
    assert set(NAMES) == set(BUG_FAMILIES) == set(BUG_DESCRIPTIONS) == set(BUGS) - {None}
    assert all(BUG_FAMILIES.values())


def test_without_a_bug_nothing_is_changed(tiny):
    state, bug = new_state(tiny), bug_of(tiny)
    assert type(bug) is Bug
    assert bug.on_task(state.task) is state.task
    assert bug.on_model(state.model) is state.model
    assert bug.on_loss_function(state.loss_function) is state.loss_function
    assert bug.on_training(tiny.training) is tiny.training


@pytest.mark.parametrize("name", ["no-causal-mask", "targets-not-shifted", "learning-rate-too-high"])
def test_a_broken_run_is_saved_resumed_and_inspected_like_any_other(name, broken, tmp_path):
    state = broken(name, **QUICK)
    events = train(state)
    while state.step < 1:
        next(events)
    save_state(tmp_path / "last", state)
    resumed = load_state(tmp_path / "last", state.preset)
    for each in (state, resumed):
        list(train(each))
    for left, right in zip(state.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(left, right)
    inspection = inspect(state.model.eval(), state.task, state.task.examples[0])
    assert inspection.steps
    assert inspection.maps.cross.shape[-1] == len(inspection.symbols) + 2


def test_a_preset_keeps_its_bug_and_reports_it(broken_preset):
    for name in NAMES:
        preset = broken_preset(name)
        again = read_preset(preset_to_yaml(preset), name="other")
        assert (again, again.bug) == (preset, name)
        assert name in bug_notice(again)
        assert again.with_changes({"training.seed": 5}).bug == name
        assert bug_notice(again.with_bug(None)) == ""


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("encoder-over-pad", {}, "model.family='gru', not 'transformer'"),
        ("no-causal-mask", {"model.family": "gru"}, "not 'gru'"),
        ("no-positions", {"model.positions": "learned"}, "not 'learned'"),
        ("heads-alike", {"model.num_heads": 1}, "not 1"),
    ],
)
def test_a_bug_is_refused_where_it_does_not_apply(tiny, name, changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny.with_changes(changes).with_bug(name)


def test_an_unknown_bug_is_refused(tiny):
    with pytest.raises(ConfigError, match="bug='typo'"):
        parse_preset(tiny.model_dump() | {"bug": "typo"})


@pytest.mark.parametrize("family", ["transformer", "decoder-only"])
@pytest.mark.parametrize(("bug", "changes"), [(None, False), ("no-causal-mask", True)])
def test_without_a_causal_mask_later_tokens_change_earlier_logits(tiny, family, bug, changes):
    model = new_state(tiny.with_changes({"model.family": family}).with_bug(bug)).model.eval()
    src, tgt = torch.tensor([[1, 5, 6, 2, 0]]), torch.tensor([[1, 7, 8, 9]])
    before, after = (model(src, each)[:, :3] for each in (tgt, torch.tensor([[1, 7, 8, 4]])))
    assert torch.allclose(before, after, atol=1e-6) is not changes
    assert torch.allclose(model(torch.tensor([[1, 5, 6, 2, 0, 0]]), tgt)[:, :3], before, atol=1e-5)  # PAD is masked


@pytest.mark.parametrize("name", [None, "pad-attended-to"])
@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_pad_attended_to_gets_weight_and_changes_logits(tiny, tiny_gru, name, family):
    state = new_state((tiny_gru if family == "gru" else tiny).with_bug(name))
    src, with_pad, tgt_in = padded(state)
    model = state.model.eval()
    assert torch.allclose(model(src, tgt_in), model(with_pad, tgt_in), atol=1e-6) is (name is None)
    assert bool((maps_of(model, with_pad, tgt_in).cross[..., -3:] > 0).all()) is (name is not None)


def test_an_encoder_over_pad_has_another_final_state(broken, tiny_gru):
    for state, is_same in ((broken("encoder-over-pad"), False), (new_state(tiny_gru), True)):
        src, with_pad, _ = padded(state)
        finals = [state.model.eval().encode(each).final for each in (src, with_pad)]
        assert torch.allclose(*finals, atol=1e-6) is is_same


def test_unshifted_targets_are_also_the_decoder_input(broken):
    state = broken("targets-not-shifted", **{"training.training_sequences": 64})
    fixed = training_batches(state.task, sequences=64, batch_size=8, seed=0, group_by_length=True)
    fresh = training_batches(state.task, sequences=0, batch_size=8, seed=0)
    for batches in (fixed, fresh):
        batch = batches.at(3, state.generator)
        assert torch.equal(batch.tgt_in, batch.tgt_out)
        assert (batch.tgt_out == EOS_ID).any(dim=1).all()


def test_targets_without_eos_are_otherwise_unchanged(broken, tiny):
    with_bug, without = (
        fixed_pairs(state.task, 8, split="train") for state in (broken("no-eos-in-targets"), new_state(tiny))
    )
    assert torch.equal(with_bug.tgt, without.tgt.masked_fill(without.tgt == EOS_ID, PAD_ID))
    assert torch.equal(with_bug.src, without.src)


def test_a_loss_over_pad_is_the_mean_over_all_positions(broken, tiny):
    state = broken("pad-in-the-loss")
    batch = state.task.sample(8, split="train", generator=state.generator)
    expected = -state.model(batch.src, batch.tgt_in).log_softmax(-1).gather(-1, batch.tgt_out[..., None]).mean().item()
    settings = {"teacher_forcing_ratio": 1.0, "generator": state.generator}
    losses = [
        each.loss_function(state.model, batch, tiny.training, **settings).item() for each in (state, new_state(tiny))
    ]
    assert losses[0] == pytest.approx(expected, abs=1e-6)
    assert losses[1] != pytest.approx(expected)


def test_scores_are_not_scaled(broken, tiny):
    x, patterns = torch.randn(2, 4, 16), []
    for state in (broken("no-score-scaling"), new_state(tiny)):
        attention = next(each for each in state.model.modules() if isinstance(each, MultiHeadAttention))
        with hooks({attention.hook_pattern.name: patterns.append}):
            attention(x, attention.keys_values(x))
    assert torch.allclose(patterns[0], (patterns[1].log() * math.sqrt(8)).softmax(-1), atol=1e-6)


def test_embeddings_lose_their_scale_or_their_positions(broken, tiny):
    ids = torch.tensor([[5, 5]])
    correct, unscaled, without_positions = (
        state.model.src_embedding(ids)[0]
        for state in (new_state(tiny), broken("no-embedding-scaling"), broken("no-positions"))
    )
    assert torch.equal(without_positions[0], without_positions[1])
    positions = correct - without_positions
    assert torch.allclose((unscaled - positions) * 4, without_positions, atol=1e-5)


def test_softmax_over_queries_makes_columns_sum_to_1(broken):
    state = broken("softmax-over-queries")
    _, with_pad, tgt_in = padded(state)
    maps = maps_of(state.model, with_pad, tgt_in)
    sums = maps.cross.sum(dim=-2)
    assert torch.allclose(sums[..., :-3], torch.ones(()), atol=1e-6)
    assert not sums[..., -3:].any()  # PAD stays masked
    assert not maps.decoder.triu(1).any()


def test_without_residuals_the_input_does_not_bypass_sublayers(broken, tiny):
    for state, bypasses in ((broken("no-residual"), False), (new_state(tiny), True)):
        layer = next(each for each in state.model.modules() if isinstance(each, EncoderLayer))
        outputs = [layer.self_attention.hook_out.name, layer.feed_forward.hook_out.name]
        with hooks(dict.fromkeys(outputs, torch.zeros_like)):
            one, other = (layer(torch.randn(1, 3, 16), torch.ones(1, 1, 1, 3, dtype=torch.bool)) for _ in range(2))
        assert torch.equal(one, other) is not bypasses


def test_identically_initialized_heads_stay_identical(broken):
    state = broken("heads-alike")
    list(train(state))
    src, _, tgt_in = padded(state)
    maps = maps_of(state.model, src, tgt_in)
    for each in (maps.encoder, maps.decoder, maps.cross):
        assert torch.allclose(each[:, :, 0], each[:, :, 1], atol=1e-6)


def test_misreported_attention_changes_nothing_else(broken, tiny):
    wrong, correct = broken("self-plotted-as-cross"), new_state(tiny)
    losses = [[event.loss for event in train(state) if isinstance(event, StepEvent)] for state in (wrong, correct)]
    assert losses[0] == losses[1]
    src, _, tgt_in = padded(wrong)
    maps, correct_maps = (maps_of(state.model, src, tgt_in) for state in (wrong, correct))
    width = min(maps.decoder.shape[-1], maps.cross.shape[-1])
    assert torch.equal(maps.cross[..., :width], maps.decoder[..., :width])
    assert not torch.equal(correct_maps.cross, maps.cross)


def test_the_learning_rate_is_excessive_from_the_first_step(broken):
    events = list(train(broken("learning-rate-too-high")))
    assert [event.learning_rate for event in events if isinstance(event, StepEvent)] == [0.3] * 8
