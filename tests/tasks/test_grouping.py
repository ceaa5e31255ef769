"""Batches of like lengths: less padding, every length as often, every pair once an epoch."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from core.tasks import Batch, Epochs, FreshBatches, FreshByLength, build_task, fixed_pairs, training_batches
from core.text.vocab import PAD_ID


def pairs_of(lengths: list[int]) -> Batch:
    """Pairs of these lengths, each of a symbol of its own, so that they can be told apart."""
    rows = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        rows[row, :length] = row + 1
    return Batch(rows, rows)


def shown(batches: Epochs, steps: int) -> list[int]:
    return [int(row) - 1 for step in range(1, steps + 1) for row in batches.at(step, None).src[:, 0]]


def padding(batch: Batch) -> float:
    return (batch.src == PAD_ID).float().mean().item()


def test_trimming_takes_only_columns_that_are_pad_in_all_rows():
    batch = pairs_of([2, 3, 1, 5])
    assert batch[:3].trimmed().src.tolist() == [[1, 1, 0], [2, 2, 2], [3, 0, 0]]
    assert batch.trimmed().src.shape == (4, 5)
    sides = Batch(batch.src[:1], batch.tgt[3:]).trimmed()
    assert (sides.src.shape, sides.tgt.shape) == ((1, 2), (1, 5))


# --- fresh batches ----------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(tiny) -> FreshByLength:
    return FreshByLength(build_task(tiny.task), 32, seed=0)


def taken(batches: FreshByLength, numbers: range) -> list[Batch]:
    return [batches.at(number, torch.Generator()) for number in numbers]


def test_fresh_batches_have_like_lengths_in_random_order_and_hardly_any_padding(fresh):
    batches = taken(fresh, range(1, 49))
    assert all(len(batch) == 32 for batch in batches)
    assert all((batch.lengths().amax(dim=0) - batch.lengths().amin(dim=0)).max() <= 1 for batch in batches)
    plain, generator = FreshBatches(fresh.task, 32), torch.Generator().manual_seed(0)
    assert sum(map(padding, batches)) / 48 < 0.25 * sum(padding(plain.at(1, generator)) for _ in range(50)) / 50
    widths = [batch.src.shape[1] for batch in batches]
    assert widths[:16] != sorted(widths[:16])
    assert widths[:16] != widths[16:32]


def test_every_length_is_as_likely_as_any_other(fresh):
    lengths = torch.cat([batch.lengths()[:, 0] for batch in taken(fresh, range(1, 161))]) - 2
    # 5,120 sequences: a standard error of 0.006.
    shares = [(lengths == length).float().mean().item() for length in range(2, 6)]
    assert shares == pytest.approx([0.25] * 4, abs=0.025)
    assert sum(shares) == pytest.approx(1)


def test_a_fresh_batch_depends_on_seed_and_number_only(fresh):
    numbers = range(14, 20)  # from the first sixteen into the next
    whole = taken(fresh, range(1, 33))
    later = taken(FreshByLength(fresh.task, 32, seed=0), numbers)  # as after a resume
    assert all(torch.equal(one.src, whole[number - 1].src) for one, number in zip(later, numbers, strict=True))
    again = taken(fresh, range(3, 4))  # back among the first
    assert torch.equal(again[0].tgt, whole[2].tgt)
    other = taken(FreshByLength(fresh.task, 32, seed=1), range(1, 33))
    assert not any(one.src.equal(each.src) for one, each in zip(whole, other, strict=True))
    assert not any(one.src.equal(each.src) for one, each in zip(whole[:16], whole[16:], strict=True))


def test_runs_of_other_seeds_train_on_other_fresh_batches(fresh):
    settings = {"sequences": 0, "batch_size": 32, "group_by_length": True}
    runs = [training_batches(fresh.task, **settings, seed=seed) for seed in (0, 0, 1)]
    same, again, other = (each.at(1, torch.Generator()).src for each in runs)
    assert torch.equal(same, again)
    assert torch.equal(same, fresh.at(1, torch.Generator()).src)
    assert not same.equal(other)


def test_drawing_fresh_batches_of_like_lengths_leaves_the_runs_generator_alone(fresh):
    generator = torch.Generator().manual_seed(7)
    before = generator.get_state()
    fresh.at(1, generator)
    assert torch.equal(generator.get_state(), before)


def test_all_that_was_drawn_for_sixteen_batches_is_trained_on(fresh, monkeypatch):
    drawn, sample = [], fresh.task.sample

    def watched(*arguments, **settings):
        drawn.append(sample(*arguments, **settings))
        return drawn[-1]

    monkeypatch.setattr(fresh.task, "sample", watched)
    batches = taken(fresh, range(1, 17))
    width = drawn[0].src.shape[1]
    rows = [tuple(row) for each in batches for row in F.pad(each.src, (0, width - each.src.shape[1])).tolist()]
    assert len(drawn) == 1
    assert sorted(rows) == sorted(map(tuple, drawn[0].src.tolist()))


def test_grouped_training_data_is_of_the_training_split(fresh):
    width = fresh.task.max_length + 2
    seen = set()
    for batch in taken(fresh, range(1, 21)):
        seen |= {tuple(row) for row in F.pad(batch.src, (0, width - batch.src.shape[1])).tolist()}
    held_out = fixed_pairs(fresh.task, 300, split="test")
    assert not seen & {tuple(row) for row in held_out.src.tolist()}


# --- epochs -----------------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=20),
    size=st.integers(1, 30),
    seed=st.integers(0, 2**31 - 1),
    epochs=st.integers(1, 4),
)
def test_every_epoch_shows_every_pair_once(lengths, size, seed, epochs):
    count = len(lengths)
    rows = shown(Epochs(pairs_of(lengths), size, seed=seed, group_by_length=True), -(-count * epochs // size))
    for epoch in range(epochs):
        assert sorted(rows[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_the_order_depends_on_seed_and_epoch_only_and_changes_with_both():
    pairs = pairs_of([1 + number % 5 for number in range(50)])
    whole = shown(Epochs(pairs, 7, seed=3, group_by_length=True), 22)
    later = Epochs(pairs, 7, seed=3, group_by_length=True)  # as after a resume: begins at step 9
    assert [int(row) - 1 for step in range(9, 23) for row in later.at(step, None).src[:, 0]] == whole[8 * 7 :]
    assert whole[:50] != whole[50:100]
    assert shown(Epochs(pairs, 7, seed=4, group_by_length=True), 22) != whole


def test_batches_inside_an_epoch_are_of_like_lengths_in_random_order_whatever_the_epoch_before_left_over(tiny):
    pairs = fixed_pairs(build_task(tiny.task), 500, split="train")
    batches = Epochs(pairs, 32, seed=0, group_by_length=True)
    spreads, widths = [], []
    for step in range(1, 79):  # five epochs of 15.6 batches
        batch = batches.at(step, None)
        if (step * 32) // 500 == ((step - 1) * 32) // 500:
            spreads.append(int((batch.lengths().amax(dim=0) - batch.lengths().amin(dim=0)).max()))
            widths.append(batch.src.shape[1])
    assert max(spreads) <= 2
    assert sum(spread == 0 for spread in spreads) > len(spreads) / 2
    assert widths[:15] != sorted(widths[:15])
    assert widths[:15] != widths[15:30]


def test_sources_of_one_length_stand_together_and_in_the_order_of_their_answers_lengths():
    src, tgt = (pairs_of([1 + number // apart % 5 for number in range(60)]).src for apart in (1, 5))
    lengths = [
        Epochs(Batch(src, tgt), 6, seed=0, group_by_length=True).at(step, None).lengths() for step in range(1, 11)
    ]
    assert all(len(each[:, 0].unique()) <= 2 for each in lengths)
    in_order = sorted(tuple(row) for each in lengths for row in each.tolist())
    batches = sorted([tuple(row) for row in each.tolist()] for each in lengths)
    assert [row for batch in batches for row in batch] == in_order


def test_without_grouping_nothing_is_trimmed(tiny):
    pairs = fixed_pairs(build_task(tiny.task), 50, split="train")
    assert all(Epochs(pairs, 4, seed=0).at(step, None).src.shape[1] == 7 for step in range(1, 20))
