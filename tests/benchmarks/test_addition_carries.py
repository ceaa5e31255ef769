"""Addition on every held-out sum, by its longest carry chain; ``-s`` prints it. Minutes long.

``evaluate`` draws each operand's number of digits uniformly, as training does, so short operands and sums without
carries are frequent. Here every held-out pair of operands counts once, which is what drawing operands uniformly means.
"""

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from core.config import load_preset
from core.evaluation.accuracy import evaluate
from core.tasks import Batch, Task, build_task
from core.tasks.data import split_mask
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID
from core.training.loop import train

LARGEST = 999
MOST_CARRIES = 3


def carry_chain(first: int, second: int) -> int:
    """Length of the longest run of consecutive columns of a sum that produce a carry."""
    longest = run = carry = 0
    while first or second:
        carry = first % 10 + second % 10 + carry >= 10
        run = run + 1 if carry else 0
        longest = max(longest, run)
        first, second = first // 10, second // 10
    return longest


def held_out_sums() -> list[tuple[int, int]]:
    """Every pair of operands in the test split, in either order; the split is decided by the sorted pair."""
    operands = torch.cartesian_prod(torch.arange(LARGEST + 1), torch.arange(LARGEST + 1))
    mask = split_mask(operands.sort(dim=1).values + 1, "test")
    return [(first, second) for first, second in operands[mask].tolist()]


def batch_of(task: Task, sums: list[tuple[int, int]]) -> Batch:
    """Pairs of source and target for some sums."""
    rows: tuple[list, list] = ([], [])
    for first, second in sums:
        source = task.tokenize(f"{first}+{second}")
        for side, vocab, symbols in ((0, task.src_vocab, source), (1, task.tgt_vocab, task.answer(source))):
            rows[side].append(torch.tensor([BOS_ID, *vocab.encode(symbols), EOS_ID]))
    return Batch(*(pad_sequence(side, batch_first=True) for side in rows))


def test_the_length_of_a_carry_chain():
    sums = {(0, 0): 0, (27, 58): 1, (27, 72): 0, (99, 1): 2, (999, 1): 3, (505, 505): 1, (95, 5): 2}
    assert {pair: carry_chain(*pair) for pair in sums} == sums


def test_held_out_sums_are_those_that_training_never_draws():
    task = build_task(load_preset("addition").task)
    held_out = {tuple(row) for row in batch_of(task, held_out_sums()[::50]).src.tolist()}
    drawn = task.sample(20_000, split="train", generator=torch.Generator().manual_seed(0))
    width = max(map(len, held_out))
    assert not held_out & {tuple((row + [0] * width)[:width]) for row in drawn.src.tolist()}


@pytest.mark.slow
def test_every_held_out_sum_is_right_whatever_it_carries():
    torch.set_num_threads(1)
    state = new_state(load_preset("addition"))
    for _ in train(state):
        pass
    state.model.eval()
    sums = held_out_sums()
    exact = {}
    for carries in range(MOST_CARRIES + 1):
        chosen = [pair for pair in sums if carry_chain(*pair) == carries]
        exact[carries] = (len(chosen), evaluate(state.model, batch_of(state.task, chosen)).exact_match)
    mean = sum(count * share for count, share in exact.values()) / len(sums)
    print(f"\naddition: exact match {mean:.3%} of all {len(sums):,} held-out sums, operands uniform")
    for carries, (count, share) in exact.items():
        print(f"  longest carry chain {carries}: {share:.3%} of {count:,}")
    assert mean >= 0.99
