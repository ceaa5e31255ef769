"""Fixed sets are the same for every run; an epoch shows each of its pairs once, in an order of its own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import load_preset
from core.tasks import Batch, Epochs, FreshBatches, build_task, fixed_pairs, training_batches
from core.teaching.bugs import new_state
from core.training.loop import EvaluationEvent, StepEvent, train


def numbered(count: int) -> Batch:
    rows = torch.arange(count)[:, None]
    return Batch(rows, rows)


def rows_of(batches: Epochs, steps: int) -> list[int]:
    unused = torch.Generator()
    return torch.cat([batches.at(step, unused).src for step in range(1, steps + 1)]).flatten().tolist()


@given(count=st.integers(1, 12), size=st.integers(1, 30), seed=st.integers(0, 2**31 - 1), epochs=st.integers(1, 4))
def test_every_epoch_shows_every_pair_once(count, size, seed, epochs):
    steps = -(-count * epochs // size)
    shown = rows_of(Epochs(numbered(count), size, seed=seed), steps)
    assert len(shown) == steps * size
    for epoch in range(epochs):
        assert sorted(shown[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_the_order_depends_on_seed_and_epoch_only_and_changes_with_both():
    whole = rows_of(Epochs(numbered(50), 7, seed=3), 22)
    later = Epochs(numbered(50), 7, seed=3)  # as after a resume: begins at step 9
    assert torch.cat([later.at(step, None).src for step in range(9, 23)]).flatten().tolist() == whole[8 * 7 :]
    assert whole[:50] != whole[50:100]
    assert rows_of(Epochs(numbered(50), 7, seed=4), 22) != whole


def test_a_batch_larger_than_the_set_goes_through_it_more_than_once():
    assert sorted(rows_of(Epochs(numbered(3), 7, seed=0), 3)) == sorted([0, 1, 2] * 7)


def test_a_run_trains_on_its_fixed_set_and_on_fresh_data_without_one(tiny):
    task = build_task(tiny.task)
    batches = training_batches(task, sequences=100, batch_size=8, seed=0)
    known = {tuple(row) for row in fixed_pairs(task, 100, split="train").src.tolist()}
    assert len(known) == 100
    assert {tuple(row) for step in range(1, 14) for row in batches.at(step, None).src.tolist()} == known
    assert isinstance(training_batches(task, sequences=0, batch_size=8, seed=0), FreshBatches)


def test_the_two_words_presets_learn_and_are_tested_on_the_same_sentences():
    presets = [load_preset(f"words-reversal-{model}") for model in ("gru", "transformer", "gru-as-reported")]
    for split, count in (("train", 8_000), ("validation", 1_000), ("test", 1_000)):
        sets = [fixed_pairs(build_task(preset.task), count, split=split) for preset in presets]
        assert [len(pairs) for pairs in sets] == [count] * 3
        assert torch.equal(sets[0].src, sets[1].src)
        assert torch.equal(sets[0].src, sets[2].src)
    for preset in presets:
        config = preset.training
        assert (config.training_sequences, config.validation_sequences) == (8_000, 1_000)
        assert config.steps * config.batch_size == 30 * 8_000
        assert config.evaluate_every * config.batch_size == 8_000


def test_an_evaluation_tells_the_mean_training_loss_since_the_one_before(tiny):
    losses: list[float] = []
    told = []
    for event in train(new_state(tiny)):
        if isinstance(event, StepEvent):
            losses.append(event.loss)
        elif isinstance(event, EvaluationEvent):
            told.append((event.train_loss, sum(losses) / len(losses) if losses else None))
            losses.clear()
    assert [one for one, _ in told] == pytest.approx([other for _, other in told])
    assert told[0] == (None, None)
