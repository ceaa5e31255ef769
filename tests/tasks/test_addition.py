"""Addition: correct sums held out in both orders, input as typed, uniform operands, carry chains."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError, load_preset
from core.config.tasks import AdditionConfig
from core.storage.errors import InputError
from core.tasks.addition import Addition, longest_carry_chain, split_key
from core.tasks.data import split_mask
from core.text.vocab import EOS_ID

TASK = Addition(AdditionConfig(max_digits=3))
SPLITS = ("train", "validation", "test")
FORMATS = [
    {"digit_order": order, "zero_padding": zeros}
    for order in ("plain", "reversed-sum", "reversed")
    for zeros in (False, True)
]


def sums(task: Addition, count: int, split: str, seed: int = 0) -> list[tuple[int, int, int]]:
    """Draw sums as (first, second, sum), after checking that every number is written without leading zeros."""
    batch = task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    assert batch.src.shape == (count, 2 * task.max_digits + 3)
    assert batch.tgt.shape == (count, task.max_digits + 3)
    sums_drawn = []
    for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
        words = ["".join(task.src_vocab.decode(row[1 : row.index(EOS_ID)])) for row in (src, tgt)]
        first, second = words[0].split("+")
        numbers = (int(first), int(second), int(words[1]))
        assert (first, second, words[1]) == tuple(str(number) for number in numbers)
        sums_drawn.append(numbers)
    return sums_drawn


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("digits", [2, 3, 9])
def test_samples_have_correct_sums(split, digits):
    for first, second, total in sums(Addition(AdditionConfig(max_digits=digits)), 300, split):
        assert first + second == total
        assert max(first, second) < 10**digits


def test_number_of_digits_is_uniform_and_so_are_digits():
    numbers = [number for pair in sums(TASK, 4_000, "train") for number in pair[:2]]
    for digits in (1, 2, 3):
        of_that_length = [number for number in numbers if len(str(number)) == digits]
        assert len(of_that_length) / len(numbers) == pytest.approx(1 / 3, abs=0.03)
        for last in range(10):
            share = sum(number % 10 == last for number in of_that_length) / len(of_that_length)
            assert share == pytest.approx(0.1, abs=0.03)
    assert {0, 9, 10, 99, 100, 999} & set(numbers) >= {0, 9, 10, 99}


def test_no_sum_is_in_two_splits_in_either_order():
    small = Addition(AdditionConfig(max_digits=2))
    seen = {split: {frozenset(pair[:2]) for pair in sums(small, 3_000, split)} for split in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not seen[one] & seen[other]


@given(first=st.integers(0, 10**12), second=st.integers(0, 10**12))
def test_answers_equal_python_addition(first, second):
    symbols = TASK.tokenize(f"{first} + {second}")
    assert symbols == list(f"{first}+{second}")
    assert "".join(TASK.answer(symbols)) == str(first + second)
    assert TASK.gold_alignment(symbols) == [[] for _ in str(first + second)]


@pytest.mark.parametrize("text", ["27+58", "2 7 + 5 8", " 27 +58\n", "027 + 0058", "2,7+5,8"])
def test_sums_may_be_typed_with_or_without_separators(text):
    assert TASK.tokenize(text) == ["2", "7", "+", "5", "8"]


def test_leading_zeros_are_dropped():
    assert TASK.tokenize("000+0") == ["0", "+", "0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"input is empty; an example is: 27 \+ 58"),
        ("27", r"input='27' must be two numbers with one \+ between them: 27 \+ 58"),
        ("27+", r"input='27\+' must be two numbers"),
        ("+27", "must be two numbers"),
        ("1+2+3", r"input='1\+2\+3' must be two numbers"),
        ("2-1", "'-' at position 2 is not one of 0 1 2"),
        ("two+1", "'t' at position 1"),
        ("٤+1", "'٤' at position 1"),
        ("1" * 500, r"input='1111111111111111111111111111111111111\.\.\.' must be"),
        ("1" * 2_001, "input has 2001 characters; the maximum is 2000"),
    ],
    ids=lambda value: value[:12],
)
def test_invalid_sums_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        TASK.tokenize(text)


def test_note_reports_numbers_longer_than_in_training():
    assert TASK.note(TASK.tokenize("999 + 999")) == TASK.note(TASK.tokenize("0 + 0")) == ""
    expected = "a number of 4 digits is longer than any training input (1–3 digits)"
    assert TASK.note(TASK.tokenize("1 + 1234")) == expected


def test_sums_longer_than_max_seq_len_are_refused():
    with pytest.raises(ConfigError, match=r"task\.max_digits=7 with BOS and EOS needs 17 positions, more than"):
        load_preset("addition").with_changes({"task.max_digits": 7, "model.max_seq_len": 16})


# --- how operands are drawn and written


def operands_of(task: Addition, count: int, split: str, seed: int = 0) -> list[list[int]]:
    """Operands of drawn sums, from what the model reads."""
    batch = task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    texts = [task.source_text(task.src_vocab.decode(row[1 : row.index(EOS_ID)])) for row in batch.src.tolist()]
    return [[int(number) for number in text.replace(" ", "").split("+")] for text in texts]


@pytest.mark.parametrize("written", FORMATS, ids=str)
def test_sums_are_drawn_as_typed_ones_are_written(written):
    task = Addition(AdditionConfig(max_digits=4, **written))
    batch = task.sample(200, split="train", generator=torch.Generator().manual_seed(0))
    for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
        symbols = task.src_vocab.decode(src[1 : src.index(EOS_ID)])
        text, answer = task.source_text(symbols), task.tgt_vocab.decode(tgt[1 : tgt.index(EOS_ID)])
        assert task.tokenize(text) == symbols
        assert task.answer(symbols) == answer
        assert task.number(answer) == sum(int(number) for number in text.replace(" ", "").split("+"))
        assert not task.note(symbols)


def test_the_order_and_the_zeros_are_those_of_the_setting():
    written = {}
    for settings in FORMATS:
        task = Addition(AdditionConfig(max_digits=3, **settings))
        symbols = task.tokenize("27 + 58")
        written[tuple(settings.values())] = "".join(symbols), "".join(task.answer(symbols))
    assert written == {
        ("plain", False): ("27+58", "85"),
        ("plain", True): ("027+058", "0085"),
        ("reversed-sum", False): ("27+58", "58"),
        ("reversed-sum", True): ("027+058", "5800"),
        ("reversed", False): ("72+85", "58"),
        ("reversed", True): ("720+850", "5800"),
    }


def test_a_longer_number_than_trained_on_is_written_in_full():
    task = Addition(AdditionConfig(max_digits=3, digit_order="reversed", zero_padding=True))
    symbols = task.tokenize("1234 + 5")
    assert "".join(symbols) == "4321+5000"
    assert "".join(task.answer(symbols)) == "93210"
    assert task.note(symbols) == "a number of 4 digits is longer than any training input (1–3 digits)"


@pytest.mark.parametrize("output", ["", "+", "1+", "12+3"])
def test_an_output_that_is_no_number_means_none(output):
    assert TASK.number(list(output)) is None


@pytest.mark.parametrize("operands", ["by-value", "mixed"])
def test_operands_are_uniform_by_value_or_half_of_them_are(operands):
    task = Addition(AdditionConfig(max_digits=10, operands=operands))
    pairs = operands_of(task, 4_000, "train")
    first_digits = torch.tensor(pairs) // 10**9
    # By length, a tenth of the operands have ten digits, and a hundredth of the pairs have two of them.
    long_pairs = (first_digits > 0).all(dim=1).float().mean().item()
    assert long_pairs == pytest.approx({"by-value": 0.81, "mixed": 0.41}[operands], abs=0.03)
    if operands == "by-value":
        shares = torch.bincount(first_digits.flatten(), minlength=10) / first_digits.numel()
        assert (shares - 0.1).abs().max() < 0.02
        assert task.sampling == "each operand uniform in 0–9,999,999,999"


def test_twelve_digits_are_held_out_however_they_are_written_and_drawn():
    wide = AdditionConfig(max_digits=12, operands="by-value")
    held_out = torch.tensor(operands_of(Addition(wide), 500, "test"))
    written = Addition(wide.model_copy(update={"digit_order": "reversed", "zero_padding": True}))
    assert torch.equal(torch.tensor(operands_of(written, 500, "test")), held_out)
    assert split_mask(split_key(held_out.flip(1)), "test").all()
    assert not split_mask(split_key(held_out), "train").any()
    # Digits beyond the ninth count too: with other ones, most of these sums are in other splits.
    assert split_mask(split_key(held_out + 10**9), "test").float().mean() < 0.2
    for first, second in held_out[:50].tolist():
        assert int("".join(Addition(wide).answer(list(f"{first}+{second}")))) == first + second


def test_training_on_ten_digits_sees_every_carry_chain():
    task = Addition(AdditionConfig(max_digits=10, operands="mixed"))
    chains = longest_carry_chain(torch.tensor(operands_of(task, 20_000, "train")))
    assert set(range(11)) <= set(chains.tolist())  # the longest is of all ten columns: 20 of these sums have it


# --- breakdown: uniform operands, by carry chain


def naive_carry_chain(first: int, second: int) -> int:
    """The longest run of columns that carry, in written addition from the right."""
    columns = zip(str(first).zfill(12)[::-1], str(second).zfill(12)[::-1], strict=True)
    carry, marks = 0, ""
    for one, other in columns:
        carry = int(int(one) + int(other) + carry > 9)
        marks += "c" if carry else " "
    return max(map(len, marks.split()), default=0)


@given(pairs=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=30))
def test_carry_chains_equal_those_of_written_addition(pairs):
    expected = [naive_carry_chain(first, second) for first, second in pairs]
    assert longest_carry_chain(torch.tensor(pairs)).tolist() == expected


def test_carry_chains_of_known_sums():
    sums = {(0, 0): 0, (27, 58): 1, (27, 72): 0, (99, 1): 2, (999, 1): 3, (505, 505): 1, (95, 5): 2, (9_099, 901): 4}
    sums |= {(909, 101): 1, (5, 5): 1}
    assert longest_carry_chain(torch.tensor(list(sums))).tolist() == list(sums.values())


def test_breakdown_has_uniform_held_out_operands_without_duplicates():
    breakdown = TASK.breakdown(5_000, generator=torch.Generator().manual_seed(1))
    operands = [
        tuple(map(int, "".join(TASK.src_vocab.decode(row[1 : row.index(EOS_ID)])).split("+")))
        for row in breakdown.pairs.src.tolist()
    ]
    assert len(set(operands)) == len(operands) == 5_000
    assert split_mask(torch.tensor(operands).sort(dim=1).values + 1, "test").all()
    numbers = torch.tensor(operands).flatten()
    # Ten equal bins of 10,000 uniform numbers hold 1,000 each, with a standard deviation of 30.
    assert all(abs(count - 1_000) < 150 for count in torch.bincount(numbers // 100, minlength=10).tolist())
    assert (numbers > 99).float().mean().item() == pytest.approx(0.9, abs=0.015)
    assert breakdown.sampling == "other held-out sequences, distinct; each operand uniform in 0–999"


def test_breakdown_groups_every_pair_by_its_carry_chain():
    breakdown = TASK.breakdown(2_000, generator=torch.Generator().manual_seed(2))
    rows = torch.cat(list(breakdown.groups.values()))
    assert sorted(rows.tolist()) == list(range(2_000))
    assert list(breakdown.groups) == [f"longest carry chain {length}" for length in range(4)]
    for length, group in enumerate(breakdown.groups.values()):
        pairs = breakdown.pairs[group]
        for src, tgt in zip(pairs.src.tolist(), pairs.tgt.tolist(), strict=True):
            symbols = TASK.src_vocab.decode(src[1 : src.index(EOS_ID)])
            assert naive_carry_chain(*map(int, "".join(symbols).split("+"))) == length
            assert TASK.tgt_vocab.decode(tgt[1 : tgt.index(EOS_ID)]) == TASK.answer(symbols)


def test_breakdown_of_ten_digits_shows_chains_up_to_ten():
    task = Addition(AdditionConfig(max_digits=10, operands="mixed", digit_order="reversed", zero_padding=True))
    groups = task.breakdown(5_000, generator=torch.Generator().manual_seed(0)).groups
    assert list(groups) == [f"longest carry chain {length}" for length in range(11)]


def test_breakdown_is_smaller_where_the_test_split_is():
    small = Addition(AdditionConfig(max_digits=2))
    breakdown = small.breakdown(5_000, generator=torch.Generator().manual_seed(0))
    operands = torch.cartesian_prod(torch.arange(100), torch.arange(100))
    held_out = int(split_mask(operands.sort(dim=1).values + 1, "test").sum())
    assert 0.99 * held_out <= len(breakdown.pairs) <= held_out
