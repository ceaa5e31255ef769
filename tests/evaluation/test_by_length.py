"""Accuracy by length: held-out inputs of every length, within what the task and the model allow."""

import pytest
import torch

from core.config import load_preset, preset_names
from core.evaluation.by_length import accuracy_by_length, held_out_by_length, within_max_seq_len
from core.storage.errors import InputError
from core.tasks import Batch, Task, build_task, fixed_pairs
from core.tasks.addition import MAX_DIGITS
from core.tasks.data import split_mask
from core.tasks.recall import Induction, Recall
from core.text.vocab import EOS_ID, PAD_ID


def reverser(up_to: int):
    """Reverse digits up to a length; cut longer outputs off there."""

    def answers(src: torch.Tensor) -> torch.Tensor:
        symbols = (src != PAD_ID).sum(dim=1)[0] - 2
        reversed_digits = src[:, 1 : symbols + 1].flip(1)[:, :up_to]
        return torch.nn.functional.pad(reversed_digits, (0, 1), value=EOS_ID)

    return answers


@pytest.fixture
def reversal():
    return build_task(load_preset("tiny").with_changes({"task.min_length": 2, "task.max_length": 5}).task)


def test_accuracy_drops_at_the_length_where_the_model_fails(scripted, reversal):
    curve = accuracy_by_length(scripted(reverser(up_to=7)), reversal, per_length=20)
    assert [point.length for point in curve.points] == list(range(1, 11))
    assert [point.exact_match for point in curve.points] == [1.0] * 7 + [0.0] * 3
    assert [point.inputs for point in curve.points] == [10] + [pytest.approx(20, abs=12)] + [20] * 8
    assert curve.trained == (2, 5)
    assert curve.limit == ""


def test_token_accuracy_counts_reference_positions_including_eos(scripted, reversal):
    curve = accuracy_by_length(scripted(reverser(up_to=7)), reversal, per_length=20)
    accuracies = {point.length: point.token_accuracy for point in curve.points}
    assert accuracies[7] == 1.0
    assert accuracies[8] == pytest.approx(7 / 9)  # 7 of 8 symbols are correct; EOS comes too early
    assert accuracies[10] == pytest.approx(7 / 11)


def test_after_an_omitted_symbol_all_later_positions_are_wrong(scripted, reversal):
    def omit_first(src):
        return reverser(up_to=99)(src)[:, 1:]

    last = accuracy_by_length(scripted(omit_first), reversal, per_length=50).points[-1]
    assert last.exact_match == 0.0
    assert 0 < last.token_accuracy < 0.3  # neighboring digits may be equal


def test_points_end_at_the_model_s_maximum_length_with_a_reason(scripted, reversal):
    curve = accuracy_by_length(scripted(reverser(up_to=99), max_seq_len=9), reversal, per_length=5)
    assert curve.points[-1].length == 7  # with BOS and EOS, 9
    assert "max_seq_len=9" in curve.limit


def test_a_task_without_lengths_has_no_accuracy_by_length(scripted):
    task = build_task(load_preset("psalms").task)
    assert accuracy_by_length(scripted(lambda src: src), task) is None


def test_pairs_of_every_length_are_distinct_and_correct():
    sections = {load_preset(name).task for name in preset_names()}
    lists = "pronunciations", "translation", "own-pairs", "modular", "cogs", "pcfg"  # of pairs, which draw no inputs
    drawn = [build_task(section) for section in sections if section.family not in lists]
    with_lengths = [task for task in drawn if task.lengths]
    assert len(with_lengths) > 5
    for task in with_lengths:
        beyond = task.trained_lengths[-1] if "words" in task.length_unit else 2 * task.trained_lengths[-1]
        if task.length_unit == "digits in the longer number":
            beyond = min(beyond, MAX_DIGITS)
        step = 2 if task.scored_tokens == "masked tokens" else 1  # masked digits have two halves
        if not isinstance(task, Induction | Recall):  # which count letters and pairs: tests/tasks/test_recall.py
            assert task.lengths == range(step, beyond + 1, step)
        sets = held_out_by_length(task, per_length=10, lengths=task.lengths)
        assert max(sets) == task.lengths[-1]
        assert set(task.trained_lengths) - set(sets) <= {1, 2, 3}  # few or no inputs of these lengths are held out
        for pairs in sets.values():
            assert len(pairs.src.unique(dim=0)) == len(pairs) <= 10
            assert_correct(task, pairs[:3])


def assert_correct(task: Task, pairs: Batch) -> None:
    for src, tgt in zip(pairs.src.tolist(), pairs.tgt.tolist(), strict=True):
        symbols = task.src_vocab.decode([index for index in src if index > EOS_ID])
        answer = task.tgt_vocab.decode([index for index in tgt if index > EOS_ID])
        assert task.tokenize(task.source_text(symbols)) == symbols
        assert answer == task.answer(symbols)


@pytest.mark.parametrize("name", ["digits-reversal", "words-reversal-gru", "numbers-reversal", "sort-digits"])
def test_inputs_have_the_requested_length_and_are_held_out(name):
    task = build_task(load_preset(name).task)
    for length, pairs in held_out_by_length(task, per_length=30).items():
        symbols = pairs.src[:, 1:-1]
        assert ((symbols > EOS_ID).sum(dim=1) == length).all()
        if length in task.trained_lengths:
            assert split_mask(symbols, "test").all()


def test_lengths_with_few_inputs_return_all_of_them():
    task = build_task(load_preset("digits-reversal").task)  # 3 to 10 digits
    sets = held_out_by_length(task, per_length=200)
    assert (len(sets[1]), len(sets[2]), len(sets[20])) == (10, 100, 200)


def test_longer_lengths_than_the_default_can_be_requested():
    task = build_task(load_preset("tiny").task)  # by default up to length 10
    sets = held_out_by_length(task, per_length=3, lengths=range(30, 33))
    assert list(sets) == [30, 31, 32]
    for length, pairs in sets.items():
        assert ((pairs.src > EOS_ID).sum(dim=1) == length).all()


def test_unavailable_lengths_are_refused_with_the_available_ones():
    task = build_task(load_preset("number-words-german").task)
    with pytest.raises(InputError, match="lengths=5–8: this task has inputs of 1–7 English words"):
        held_out_by_length(task, per_length=3, lengths=range(5, 9))
    with pytest.raises(InputError, match="inputs of none at all"):
        held_out_by_length(build_task(load_preset("psalms").task), lengths=range(5, 9))


def test_addition_counts_digits_of_the_longer_operand_and_patterns_symbols():
    addition, patterns = (build_task(load_preset(name).task) for name in ("addition", "pattern-completion"))
    assert addition.trained_lengths == range(1, 4)
    for length, pairs in held_out_by_length(addition, per_length=20).items():
        for src in pairs.src.tolist():
            numbers = "".join(addition.src_vocab.decode([index for index in src if index > EOS_ID])).split("+")
            assert max(map(len, numbers)) == length
            assert all(number == str(int(number)) for number in numbers)
    for length, pairs in held_out_by_length(patterns, per_length=20).items():
        assert ((pairs.src > EOS_ID).sum(dim=1) == length).all()


def test_number_words_count_words_up_to_the_largest_number():
    task = build_task(load_preset("number-words-german").task)  # up to 9,999
    sets = held_out_by_length(task, per_length=20)
    assert max(sets) == task.trained_lengths[-1] == 7
    for length, pairs in sets.items():
        assert ((pairs.src > EOS_ID).sum(dim=1) == length).all()


def test_held_out_sets_are_reproducible_and_leave_other_draws_unchanged():
    task = build_task(load_preset("digits-reversal").task)
    before = fixed_pairs(task, 20, split="test").src
    first, second = held_out_by_length(task, per_length=5), held_out_by_length(task, per_length=5)
    assert all(torch.equal(first[length].src, second[length].src) for length in first)
    assert torch.equal(fixed_pairs(task, 20, split="test").src, before)


def test_many_lengths_are_thinned_evenly_and_keep_the_longest():
    long = build_task(load_preset("tiny").with_changes({"task.max_length": 50, "model.max_seq_len": 128}).task)
    assert list(held_out_by_length(long, per_length=1)) == list(range(1, 101, 3))
    assert list(held_out_by_length(long, per_length=1, lengths=range(41, 101))) == list(range(41, 101))


def test_means_over_long_inputs_state_their_range_of_lengths(scripted, reversal):
    accuracy = accuracy_by_length(scripted(reverser(up_to=45)), reversal, per_length=2, lengths=range(41, 51))
    mean = accuracy.mean(range(41, 51))
    assert (mean.first, mean.last, mean.exact_match) == (41, 50, 0.5)
    assert str(mean).startswith("lengths 41–50: token accuracy ")
    assert str(mean).endswith("exact match 50.00 %")
    assert accuracy.mean(range(41, 46)).exact_match == accuracy.mean(range(1, 46)).exact_match == 1.0
    with pytest.raises(ValueError, match="no inputs of length 51–500 were measured"):
        accuracy.mean(range(51, 501))


def test_lengths_41_to_500_are_drawn_and_cut_off_at_the_model_s_maximum(scripted, reversal):
    sets = held_out_by_length(reversal, per_length=1, lengths=range(41, 501))
    assert list(sets) == list(range(41, 501))
    assert list(within_max_seq_len(scripted(reverser(up_to=99), max_seq_len=102), sets))[-1] == 100
    assert len(within_max_seq_len(scripted(reverser(up_to=99), max_seq_len=502), sets)) == 460
