"""Switched bugs: each breaks what it says, in a run that is saved and resumed like any other, and nothing else."""

import math
from typing import get_args

import pytest
import torch

from core.config import ConfigError, parse_preset, preset_to_yaml, read_preset
from core.config.bugs import BUG_FAMILIES, BugName
from core.interpret.inspection import inspect
from core.models import forward_with_attention
from core.models.attention import MultiHeadAttention
from core.models.hooks import hooks
from core.models.layers import Layer
from core.runs.training_state import load_state
from core.tasks import fixed_pairs, training_batches
from core.teaching.bugs import BUGS, Bug, bug_of, new_state
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS, bug_notice
from core.text.vocab import EOS_ID, PAD_ID
from core.training.checkpoint import save_state
from core.training.loop import train

NAMES = get_args(BugName)


@pytest.fixture(scope="module")
def broken(tiny, tiny_gru):
    """Build the state of a run with a bug, in a model that can have it."""

    def build(bug: str, **changes):
        base = tiny if "transformer" in BUG_FAMILIES[bug] else tiny_gru
        return new_state(base.with_changes(changes).with_bug(bug))

    return build


def padded(state, extra: int = 3):
    """One short pair, and the same with PAD behind its source."""
    pair = fixed_pairs(state.task, 16, split="validation")[:1].trimmed()
    wider = torch.nn.functional.pad(pair.src, (0, extra), value=PAD_ID)
    return pair, wider


def test_every_bug_has_a_name_words_and_a_switch():
    assert set(NAMES) == set(BUG_FAMILIES) == set(BUG_DESCRIPTIONS) == set(BUGS) - {None}
    assert all(BUG_FAMILIES.values())


def test_without_a_bug_everything_is_handed_back_as_it_came(tiny):
    state, bug = new_state(tiny), bug_of(tiny)
    assert type(bug) is Bug
    assert bug.on_task(state.task) is state.task
    assert bug.on_model(state.model) is state.model
    assert bug.on_loss_function(state.loss_function) is state.loss_function
    assert bug.on_training(tiny.training) is tiny.training


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_run_trains_is_saved_resumed_and_looked_into_like_any_other(name, broken, tmp_path):
    state = broken(name)
    events = train(state)
    while state.step < 4:
        next(events)
    save_state(tmp_path / "last", state)
    again = load_state(tmp_path / "last", state.preset)
    for one in (state, again):
        list(train(one))
    for left, right in zip(state.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(left, right)
    seen = inspect(state.model.eval(), state.task, state.task.examples[0])
    assert seen.steps
    assert seen.maps.cross.shape[-1] == len(seen.symbols) + 2


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_keeps_its_bug_and_says_so(name, broken):
    preset = broken(name).preset
    again = read_preset(preset_to_yaml(preset), name="other")
    assert again == preset
    assert again.bug == name
    assert name in bug_notice(again)
    assert again.with_changes({"training.seed": 5}).bug == name
    assert bug_notice(again.with_bug(None)) == ""


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("encoder-over-pad", {}, "model.family='gru', not 'transformer'"),
        ("no-causal-mask", {"model.family": "gru"}, "not 'gru'"),
        ("no-positions", {"model.positions": "learned"}, "not 'learned'"),
        ("heads-alike", {"model.num_heads": 1}, "not 1"),
    ],
)
def test_a_bug_needs_something_to_break(tiny, name, changes, said):
    with pytest.raises(ConfigError, match=said):
        tiny.with_changes(changes).with_bug(name)


def test_an_unknown_bug_is_refused(tiny):
    with pytest.raises(ConfigError, match="bug='typo'"):
        parse_preset(tiny.model_dump() | {"bug": "typo"})


@pytest.mark.parametrize("family", ["transformer", "decoder-only"])
@pytest.mark.parametrize(("bug", "moves"), [(None, False), ("no-causal-mask", True)])
def test_without_a_causal_mask_the_future_moves_the_past(tiny, family, bug, moves):
    model = new_state(tiny.with_changes({"model.family": family}).with_bug(bug)).model.eval()
    src, tgt = torch.tensor([[1, 5, 6, 2, 0]]), torch.tensor([[1, 7, 8, 9]])
    other = torch.tensor([[1, 7, 8, 4]])
    before, after = (model(src, each)[:, :3] for each in (tgt, other))
    assert torch.allclose(before, after, atol=1e-6) is not moves
    assert torch.allclose(model(torch.tensor([[1, 5, 6, 2, 0, 0]]), tgt)[:, :3], before, atol=1e-5)  # PAD hidden


@pytest.mark.parametrize("name", [None, "pad-attended-to"])
@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_pad_attended_to_gets_weight_and_moves_logits(tiny, tiny_gru, name, family):
    state = new_state((tiny_gru if family == "gru" else tiny).with_bug(name))
    pair, wider = padded(state)
    model = state.model.eval()
    logits = [model(src, pair.tgt_in) for src in (pair.src, wider)]
    weights = forward_with_attention(model, wider, pair.tgt_in)[1].cross[..., -3:]
    assert torch.allclose(*logits, atol=1e-6) is (name is None)
    assert bool((weights > 0).all()) is (name is not None)


def test_an_encoder_over_pad_hands_on_another_state(broken, tiny_gru):
    for state, same in ((broken("encoder-over-pad"), False), (new_state(tiny_gru), True)):
        pair, wider = padded(state)
        finals = [state.model.eval().encode(src).final for src in (pair.src, wider)]
        assert torch.allclose(*finals, atol=1e-6) is same


def test_unshifted_targets_are_what_the_decoder_reads(broken):
    state = broken("targets-not-shifted", **{"training.training_sequences": 64})
    config = state.preset.training
    fixed = training_batches(state.task, sequences=64, batch_size=8, seed=0, group_by_length=True)
    fresh = training_batches(state.task, sequences=0, batch_size=8, seed=0)
    for batches in (fixed, fresh):
        batch = batches.at(3, state.generator)
        assert torch.equal(batch.tgt_in, batch.tgt_out)
    assert (batch.tgt_out == EOS_ID).any(dim=1).all()
    assert config == broken("targets-not-shifted", **{"training.training_sequences": 64}).preset.training


def test_targets_without_eos_have_everything_else(broken, tiny):
    with_bug, without = (
        fixed_pairs(state.task, 8, split="train") for state in (broken("no-eos-in-targets"), new_state(tiny))
    )
    assert torch.equal(with_bug.tgt, without.tgt.masked_fill(without.tgt == EOS_ID, PAD_ID))
    assert torch.equal(with_bug.src, without.src)


def test_a_loss_over_pad_is_the_mean_over_all_places(broken, tiny):
    state = broken("pad-in-the-loss")
    batch = state.task.sample(8, split="train", generator=state.generator)
    logits = state.model(batch.src, batch.tgt_in)
    by_hand = -logits.log_softmax(-1).gather(-1, batch.tgt_out[..., None]).mean()
    given = {"teacher_forcing_ratio": 1.0, "generator": state.generator}
    assert state.loss_function(state.model, batch, tiny.training, **given).item() == pytest.approx(
        by_hand.item(), abs=1e-6
    )
    assert new_state(tiny).loss_function(state.model, batch, tiny.training, **given).item() != pytest.approx(
        by_hand.item()
    )


def test_scores_are_not_scaled(broken, tiny):
    states = [broken("no-score-scaling"), new_state(tiny)]
    x = torch.randn(2, 4, 16)
    maps = []
    for state in states:
        attention = next(each for each in state.model.modules() if isinstance(each, MultiHeadAttention))
        with hooks({attention.hook_pattern.name: maps.append}):
            attention(x, attention.keys_values(x))
    assert torch.allclose(maps[0], (maps[1].log() * math.sqrt(8)).softmax(-1), atol=1e-6)


def test_embeddings_lose_their_scale_or_their_positions(broken, tiny):
    ids = torch.tensor([[5, 5]])
    right, unscaled, placeless = (
        state.model.src_embedding(ids)[0]
        for state in (new_state(tiny), broken("no-embedding-scaling"), broken("no-positions"))
    )
    assert torch.equal(placeless[0], placeless[1])
    positions = right - placeless
    assert torch.allclose((unscaled - positions) * 4, placeless, atol=1e-5)


def test_softmax_over_queries_makes_columns_sum_to_1(broken):
    state = broken("softmax-over-queries")
    pair, wider = padded(state)
    maps = forward_with_attention(state.model.eval(), wider, pair.tgt_in)[1]
    sums = maps.cross.sum(dim=-2)
    assert torch.allclose(sums[..., :-3], torch.ones(()), atol=1e-6)
    assert not sums[..., -3:].any()  # PAD stays hidden
    assert not maps.decoder.triu(1).any()


def test_without_residuals_nothing_passes_by_a_sublayer(broken, tiny):
    for state, passes in ((broken("no-residual"), False), (new_state(tiny), True)):
        layer = next(each for each in state.model.modules() if isinstance(each, Layer))
        silent = {sublayer.hook_out.name: torch.zeros_like for sublayer in (layer.self_attention, layer.feed_forward)}
        with hooks(silent):
            outputs = [layer(torch.randn(1, 3, 16), torch.ones(1, 1, 1, 3, dtype=torch.bool)) for _ in range(2)]
        assert torch.equal(*outputs) is not passes


def test_heads_that_begin_alike_stay_alike(broken):
    state = broken("heads-alike")
    list(train(state))
    pair, _ = padded(state)
    maps = forward_with_attention(state.model.eval(), pair.src, pair.tgt_in)[1]
    for each in (maps.encoder, maps.decoder, maps.cross):
        assert torch.allclose(each[:, :, 0], each[:, :, 1], atol=1e-6)


def test_a_false_picture_changes_nothing_else(broken, tiny):
    wrong, right = broken("self-plotted-as-cross"), new_state(tiny)
    for one, other in zip(train(wrong), train(right), strict=True):
        assert getattr(one, "loss", None) == getattr(other, "loss", None)
    pair, _ = padded(wrong)
    maps = forward_with_attention(wrong.model.eval(), pair.src, pair.tgt_in)[1]
    width = min(maps.decoder.shape[-1], maps.cross.shape[-1])
    assert torch.equal(maps.cross[..., :width], maps.decoder[..., :width])
    assert not torch.equal(forward_with_attention(right.model.eval(), pair.src, pair.tgt_in)[1].cross, maps.cross)


def test_the_learning_rate_is_far_too_high_from_the_first_step(broken):
    rates = [
        event.learning_rate for event in train(broken("learning-rate-too-high")) if hasattr(event, "learning_rate")
    ]
    assert rates == [0.3] * 8
