"""Epochs use each pair once; batches of similar lengths have little padding."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError, load_preset
from core.tasks import Batch, Epochs, FreshBatches, FreshByLength, build_task, fixed_pairs, training_batches
from core.text.vocab import PAD_ID
from core.training.loop import batches_of
from core.training.state import new_state
from tests.support.batches import numbered_pairs

UNUSED = torch.Generator()


def row_numbers(batches: Epochs, steps: range) -> list[int]:
    """Which pairs the batches of these steps hold, from 0."""
    return [int(row) - 1 for step in steps for row in batches.at(step, UNUSED).src[:, 0]]


def padding_share(batch: Batch) -> float:
    return (batch.src == PAD_ID).float().mean().item()


def test_a_run_trains_on_its_fixed_set_or_on_fresh_data(tiny):
    task = build_task(tiny.task)
    batches = training_batches(task, sequences=100, batch_size=8, seed=0)
    fixed = {tuple(row) for row in fixed_pairs(task, 100, split="train").src.tolist()}
    assert len(fixed) == 100
    assert {tuple(row) for step in range(1, 14) for row in batches.at(step, UNUSED).src.tolist()} == fixed
    assert isinstance(training_batches(task, sequences=0, batch_size=8, seed=0), FreshBatches)


# --- epochs, in random order and grouped by length


@pytest.mark.parametrize("group_by_length", [False, True])
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=20),
    size=st.integers(1, 30),
    seed=st.integers(0, 2**31 - 1),
    epochs=st.integers(1, 4),
)
def test_every_epoch_uses_every_pair_once(group_by_length, lengths, size, seed, epochs):
    count = len(lengths)
    steps = -(-count * epochs // size)
    batches = Epochs(numbered_pairs(lengths), size, seed=seed, group_by_length=group_by_length)
    rows = row_numbers(batches, range(1, steps + 1))
    assert len(rows) == steps * size
    for epoch in range(epochs):
        assert sorted(rows[epoch * count : (epoch + 1) * count]) == list(range(count))


@pytest.mark.parametrize("group_by_length", [False, True])
def test_the_order_of_an_epoch_depends_on_seed_and_epoch_only(group_by_length):
    pairs = numbered_pairs([1 + number % 5 for number in range(50)])

    def epochs(seed: int) -> Epochs:
        return Epochs(pairs, 7, seed=seed, group_by_length=group_by_length)

    rows = row_numbers(epochs(3), range(1, 23))
    assert row_numbers(epochs(3), range(9, 23)) == rows[8 * 7 :]  # as after a resume at step 8
    assert rows[:50] != rows[50:100]
    assert row_numbers(epochs(4), range(1, 23)) != rows


def test_grouped_batches_of_an_epoch_have_similar_lengths_in_random_order(tiny):
    pairs = fixed_pairs(build_task(tiny.task), 500, split="train")
    batches = Epochs(pairs, 32, seed=0, group_by_length=True)
    spreads, widths = [], []
    for step in range(1, 79):  # five epochs of 15.6 batches
        batch = batches.at(step, UNUSED)
        if (step * 32) // 500 == ((step - 1) * 32) // 500:
            spreads.append(int((batch.lengths().amax(dim=0) - batch.lengths().amin(dim=0)).max()))
            widths.append(batch.src.shape[1])
    assert max(spreads) <= 2
    assert sum(spread == 0 for spread in spreads) > len(spreads) / 2
    assert widths[:15] != sorted(widths[:15])
    assert widths[:15] != widths[15:30]


def test_grouped_sources_of_equal_length_are_sorted_by_target_length():
    src, tgt = (numbered_pairs([1 + number // apart % 5 for number in range(60)]).src for apart in (1, 5))
    batches = Epochs(Batch(src, tgt), 6, seed=0, group_by_length=True)
    lengths = [batches.at(step, UNUSED).lengths() for step in range(1, 11)]
    assert all(len(each[:, 0].unique()) <= 2 for each in lengths)
    expected = sorted(tuple(row) for each in lengths for row in each.tolist())
    sorted_batches = sorted([tuple(row) for row in each.tolist()] for each in lengths)
    assert [row for batch in sorted_batches for row in batch] == expected


def test_ungrouped_batches_are_not_trimmed(tiny):
    pairs = fixed_pairs(build_task(tiny.task), 50, split="train")
    assert all(Epochs(pairs, 4, seed=0).at(step, UNUSED).src.shape[1] == 7 for step in range(1, 20))


# --- fresh batches grouped by length


@pytest.fixture
def fresh(tiny) -> FreshByLength:
    return FreshByLength(build_task(tiny.task), 32, seed=0)


def first_batches(batches: FreshByLength, numbers: range) -> list[Batch]:
    return [batches.at(number, UNUSED) for number in numbers]


def test_fresh_batches_have_similar_lengths_and_little_padding(fresh):
    batches = first_batches(fresh, range(1, 49))
    assert all(len(batch) == 32 for batch in batches)
    assert all((batch.lengths().amax(dim=0) - batch.lengths().amin(dim=0)).max() <= 1 for batch in batches)
    plain, generator = FreshBatches(fresh.task, 32), torch.Generator().manual_seed(0)
    plain_padding = sum(padding_share(plain.at(1, generator)) for _ in range(50)) / 50
    assert sum(map(padding_share, batches)) / 48 < 0.25 * plain_padding
    widths = [batch.src.shape[1] for batch in batches]
    assert widths[:16] != sorted(widths[:16])
    assert widths[:16] != widths[16:32]


def test_fresh_batches_have_uniform_lengths(fresh):
    lengths = torch.cat([batch.lengths()[:, 0] for batch in first_batches(fresh, range(1, 161))]) - 2
    # 5,120 sequences: a standard error of 0.006.
    shares = [(lengths == length).float().mean().item() for length in range(2, 6)]
    assert shares == pytest.approx([0.25] * 4, abs=0.025)
    assert sum(shares) == pytest.approx(1)


def test_a_curriculum_begins_with_short_sequences_and_ends_with_uniform_lengths(fresh):
    batches = FreshByLength(fresh.task, 32, seed=0, curriculum=64)
    longest = [
        int(torch.cat([each.lengths() for each in first_batches(batches, pool)]).max()) - 2
        for pool in (range(1, 17), range(17, 33), range(33, 49))
    ]
    assert longest == [2, 3, 4]  # the shortest 10, 32 and 55 % of lengths uniform in 2 to 5
    assert all(len(batch) == 32 for batch in first_batches(batches, range(1, 65)))
    after = zip(first_batches(batches, range(65, 81)), first_batches(fresh, range(65, 81)), strict=True)
    assert all(one.src.equal(other.src) for one, other in after)


def test_a_curriculum_counts_updates_and_needs_drawn_sequences(fresh, tiny):
    settings = {"training.group_by_length": True, "training.curriculum_steps": 40, "training.steps": 40}
    state = new_state(tiny.with_changes(settings | {"training.gradient_accumulation_steps": 2}))
    assert batches_of(state).curriculum == 80
    with pytest.raises(ConfigError, match=r"training\.curriculum_steps=40 must be 0"):
        tiny.with_changes(settings | {"training.training_sequences": 20})
    with pytest.raises(ConfigError, match=r"training\.curriculum_steps must be 0"):
        batches_of(new_state(load_preset("scan").with_changes(settings | {"training.steps": 800})))


def test_a_fresh_batch_depends_on_seed_and_number_only(fresh):
    numbers = range(14, 20)  # from the first pool into the second
    batches = first_batches(fresh, range(1, 33))
    resumed = first_batches(FreshByLength(fresh.task, 32, seed=0), numbers)
    assert all(torch.equal(one.src, batches[number - 1].src) for one, number in zip(resumed, numbers, strict=True))
    again = first_batches(fresh, range(3, 4))  # back in the first pool
    assert torch.equal(again[0].tgt, batches[2].tgt)
    other = first_batches(FreshByLength(fresh.task, 32, seed=1), range(1, 33))
    assert not any(one.src.equal(two.src) for one, two in zip(batches, other, strict=True))
    assert not any(one.src.equal(two.src) for one, two in zip(batches[:16], batches[16:], strict=True))


def test_runs_with_other_seeds_train_on_other_fresh_batches(fresh):
    settings = {"sequences": 0, "batch_size": 32, "group_by_length": True}
    runs = [training_batches(fresh.task, **settings, seed=seed) for seed in (0, 0, 1)]
    first, second, other = (batches.at(1, UNUSED).src for batches in runs)
    assert torch.equal(first, second)
    assert torch.equal(first, fresh.at(1, UNUSED).src)
    assert not first.equal(other)


def test_grouped_fresh_batches_leave_the_generator_of_the_run_unchanged(fresh):
    generator = torch.Generator().manual_seed(7)
    before = generator.get_state()
    fresh.at(1, generator)
    assert torch.equal(generator.get_state(), before)


def test_every_sequence_of_a_pool_is_trained_on(fresh, monkeypatch):
    drawn, sample = [], fresh.task.sample

    def recording(*arguments, **settings):
        drawn.append(sample(*arguments, **settings))
        return drawn[-1]

    monkeypatch.setattr(fresh.task, "sample", recording)
    batches = first_batches(fresh, range(1, 17))
    width = drawn[0].src.shape[1]
    rows = [tuple(row) for each in batches for row in F.pad(each.src, (0, width - each.src.shape[1])).tolist()]
    assert len(drawn) == 1
    assert sorted(rows) == sorted(map(tuple, drawn[0].src.tolist()))


def test_grouped_fresh_batches_are_of_the_training_split(fresh):
    width = fresh.task.max_length + 2
    rows = set()
    for batch in first_batches(fresh, range(1, 21)):
        rows |= {tuple(row) for row in F.pad(batch.src, (0, width - batch.src.shape[1])).tolist()}
    held_out = fixed_pairs(fresh.task, 300, split="test")
    assert not rows & {tuple(row) for row in held_out.src.tolist()}
