"""Batches by a token budget: none exceeds it, epochs use each pair once, seed and number decide what a batch holds."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import ConfigError, load_preset, preset_names
from core.tasks import Batch, EpochsByTokens, FreshByTokens, build_task, fixed_pairs, training_batches
from core.tasks.batches import split_by_tokens
from core.text.vocab import PAD_ID
from core.training.distributed import ProcessGroup
from tests.support.batches import numbered_pairs

UNUSED = torch.Generator()
LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40)
BUDGETS = st.integers(9, 60)
SEEDS = st.integers(0, 2**31 - 1)
TINY = load_preset("tiny")


def numbered_sides(lengths: list[tuple[int, int]]) -> Batch:
    """Pairs with these lengths of source and target; the symbols of each are its number, from 1."""
    sources, targets = zip(*lengths, strict=True)
    return Batch(numbered_pairs(list(sources)).src, numbered_pairs(list(targets)).tgt)


def numbers_in(batch: Batch) -> list[int]:
    return [int(number) - 1 for number in batch.src[:, 0]]


def padded_tokens(batch: Batch) -> int:
    """Tokens of the larger side, PAD included."""
    return max(batch.src.numel(), batch.tgt.numel())


# --- the budget


@given(LENGTHS, BUDGETS)
def test_each_batch_holds_as_many_consecutive_pairs_as_fit(lengths, budget):
    sizes = split_by_tokens(torch.tensor(lengths), budget)
    assert sum(sizes) == len(lengths)
    assert min(sizes) >= 1
    start = 0
    for size in sizes:
        longest = max(map(max, lengths[start : start + size]))
        assert size * longest <= budget
        if start + size < len(lengths):  # one more would not fit
            assert (size + 1) * max(longest, *lengths[start + size]) > budget
        start += size


def test_a_sequence_above_the_budget_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"tokens_per_batch=8 must be at least 9, the length of a sequence"):
        split_by_tokens(torch.tensor([[3, 4], [2, 9]]), 8)


# --- fixed sets


@given(lengths=LENGTHS, budget=BUDGETS, seed=SEEDS, epochs=st.integers(1, 3))
def test_every_epoch_uses_every_pair_once_and_no_batch_exceeds_the_budget(lengths, budget, seed, epochs):
    pairs = numbered_sides(lengths)
    batches = EpochsByTokens(pairs, budget, seed=seed)
    for epoch in range(epochs):
        first = epoch * batches.num_batches + 1
        of_epoch = [batches.at(number) for number in range(first, first + batches.num_batches)]
        assert sorted(number for batch in of_epoch for number in numbers_in(batch)) == list(range(len(lengths)))
        assert max(map(padded_tokens, of_epoch)) <= budget
        for batch in of_epoch:
            known = pairs[torch.tensor(numbers_in(batch))].trimmed()
            assert torch.equal(batch.src, known.src)
            assert torch.equal(batch.tgt, known.tgt)


@given(lengths=LENGTHS, budget=BUDGETS, seed=SEEDS, number=st.integers(1, 60))
def test_a_batch_of_an_epoch_depends_on_seed_and_number_only(lengths, budget, seed, number):
    pairs = numbered_sides(lengths)
    straight = EpochsByTokens(pairs, budget, seed=seed)
    batches = [numbers_in(straight.at(each)) for each in range(1, number + 1)]
    resumed = EpochsByTokens(pairs, budget, seed=seed)
    assert numbers_in(resumed.at(number)) == batches[-1]
    assert numbers_in(resumed.at(1)) == batches[0]


def test_epochs_and_seeds_have_batches_of_their_own_in_random_order():
    lengths = [1 + number % 7 for number in range(200)]
    pairs, count = numbered_pairs(lengths), EpochsByTokens(numbered_pairs(lengths), 40, seed=0).num_batches

    def drawn(seed: int, epoch: int) -> list[list[int]]:
        batches = EpochsByTokens(pairs, 40, seed=seed)
        return [numbers_in(batches.at(epoch * count + index)) for index in range(1, count + 1)]

    first, second, other = drawn(0, 0), drawn(0, 1), drawn(1, 0)
    assert len({tuple(map(tuple, each)) for each in (first, second, other)}) == 3
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    widths = [max(lengths[number] for number in batch) for batch in first]
    assert widths != sorted(widths)


def test_batches_by_tokens_hold_more_of_the_shorter_sequences(tiny):
    pairs = fixed_pairs(build_task(tiny.task), 500, split="train")
    batches = EpochsByTokens(pairs, 70, seed=0)
    of_epoch = [batches.at(number) for number in range(1, batches.num_batches + 1)]
    assert max(len(batch) for batch in of_epoch) == 70 // 4  # two digits, BOS and EOS
    assert {len(batch) for batch in of_epoch if batch.src.shape[1] == 7} <= {9, 10}  # the last is what is left
    assert max((batch.src == PAD_ID).float().mean().item() for batch in of_epoch) < 0.25


# --- fresh data


@settings(max_examples=25)
@given(budget=st.integers(7, 500), seed=SEEDS)
def test_fresh_batches_stay_within_the_budget_and_repeat(budget, seed):
    task = build_task(TINY.task)
    straight, resumed = (FreshByTokens(task, budget, seed=seed) for _ in range(2))
    batches = [straight.at(number, UNUSED) for number in range(1, 35)]  # from the first pool into the third
    assert max(map(padded_tokens, batches)) <= budget
    for number in (34, 17, 3):
        again = resumed.at(number, UNUSED)
        assert torch.equal(again.src, batches[number - 1].src)
        assert torch.equal(again.tgt, batches[number - 1].tgt)


def test_fresh_batches_by_tokens_are_full_of_similar_lengths_in_random_order(tiny):
    batches = [FreshByTokens(build_task(tiny.task), 256, seed=0).at(number, UNUSED) for number in range(1, 17)]
    assert all((batch.lengths().amax(dim=0) - batch.lengths().amin(dim=0)).max() <= 1 for batch in batches)
    assert sum(map(padded_tokens, batches)) > 0.9 * 16 * 256
    widths = [batch.src.shape[1] for batch in batches]
    assert widths != sorted(widths)


def test_fresh_sequences_have_uniform_lengths_under_a_budget(tiny):
    batches = FreshByTokens(build_task(tiny.task), 256, seed=0)
    lengths = torch.cat([batches.at(number, UNUSED).lengths()[:, 0] for number in range(1, 321)]) - 2
    shares = [(lengths == length).float().mean().item() for length in range(2, 6)]
    assert shares == pytest.approx([0.25] * 4, abs=0.025)  # 15,000 sequences in batches of one length


def test_fresh_batches_by_tokens_differ_by_seed_and_are_of_the_training_split(tiny):
    task = build_task(tiny.task)
    first, other = (
        [FreshByTokens(task, 256, seed=seed).at(number, UNUSED) for number in (1, 2, 17)] for seed in (0, 1)
    )
    assert not any(one.src.equal(two.src) for one, two in zip(first, other, strict=True))
    rows = {tuple(row) for batch in first for row in F.pad(batch.src, (0, 7 - batch.src.shape[1])).tolist()}
    assert not rows & {tuple(row) for row in fixed_pairs(task, 300, split="test").src.tolist()}


# --- chosen by the preset


def test_a_run_with_a_token_budget_draws_fresh_batches_or_epochs(tiny):
    task, options = build_task(tiny.task), {"batch_size": 8, "seed": 0, "group_by_length": True, "tokens_per_batch": 70}
    assert isinstance(training_batches(task, sequences=0, **options), FreshByTokens)
    fixed = training_batches(task, sequences=100, **options)
    assert isinstance(fixed, EpochsByTokens)
    assert len(fixed.pairs) == 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"training.tokens_per_batch": 100, "training.group_by_length": False},
            "training.tokens_per_batch=100 must be 0 with training.group_by_length=False",
        ),
        (
            {"training.tokens_per_batch": 6},
            r"training.tokens_per_batch=6 must be 0 or at least 7, .* longest sequence .*task.max_length=5",
        ),
        ({"training.tokens_per_batch": -1}, "training.tokens_per_batch=-1"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused_by_name(tiny, changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny.with_changes({"training.group_by_length": True} | changes)


ONE_OF_EACH_TASK = sorted({load_preset(name).task.family: name for name in preset_names()}.values())


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH_TASK if not name.startswith("g2p")])
def test_no_training_sequence_is_longer_than_the_longest_that_a_budget_must_hold(name):
    preset = load_preset(name)
    drawn = build_task(preset.task).sample(2_000, split="train", generator=torch.Generator().manual_seed(0))
    assert int(drawn.lengths().max()) <= preset.longest_sequence


def test_the_sequences_of_an_update_are_counted_by_batch_size_or_by_the_longest_that_fit(tiny):
    changes = {"training.group_by_length": True, "training.gradient_accumulation_steps": 3}
    by_tokens = tiny.with_changes(changes | {"training.tokens_per_batch": 76})
    assert (by_tokens.longest_sequence, by_tokens.sequences_per_batch, by_tokens.sequences_per_step) == (7, 10, 30)
    assert tiny.with_changes(changes).sequences_per_step == 3 * tiny.training.batch_size


# --- several processes


@given(lengths=LENGTHS, budget=BUDGETS, world_size=st.integers(1, 5))
def test_the_ranks_share_out_every_batch(lengths, budget, world_size):
    batches = EpochsByTokens(numbered_sides(lengths), budget, seed=0)
    for number in range(1, batches.num_batches + 1):
        batch = batches.at(number)
        shares = [numbers_in(batch[ProcessGroup(rank, world_size).rows]) for rank in range(world_size)]
        assert sorted(number for share in shares for number in share) == sorted(numbers_in(batch))
