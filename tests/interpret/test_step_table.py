"""The step table, on maps with known values."""

import pytest
import torch

from core.config.tasks import DigitsConfig
from core.generation import GenerationResult
from core.interpret.step_table import step_table
from core.models import AttentionMaps
from core.tasks import NO_SOURCE, Batch
from core.tasks.sequences import Digits
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

TASK = Digits(DigitsConfig(transform="reverse", min_length=2, max_length=5))
PAIRS = Batch(  # 1 2 3 and 4 5 6, reversed
    torch.tensor([[BOS_ID, 4, 5, 6, EOS_ID], [BOS_ID, 7, 8, 9, EOS_ID]]),
    torch.tensor([[BOS_ID, 6, 5, 4, EOS_ID], [BOS_ID, 9, 8, 7, EOS_ID]]),
)


def decoded(tokens: list[list[int]], columns: list[list[int]], *, keys: int = 5) -> GenerationResult:
    """Two layers of one head that put 0.8 on the given column and the rest evenly on the others."""
    on = torch.nn.functional.one_hot(torch.tensor(columns), keys)
    weights = torch.where(on.bool(), 0.8, 0.2 / (keys - 1))
    rows = torch.tensor(tokens)
    maps = AttentionMaps(None, None, weights[None, :, None].expand(2, -1, 1, -1, -1))
    return GenerationResult(rows, rows[..., None], torch.ones(*rows.shape, 1), maps, torch.zeros(rows.shape))


def test_a_row_per_step_has_its_argmax_gold_column_and_correctness():
    table = step_table(TASK, PAIRS, decoded([[6, 5, 4, EOS_ID], [9, 7, 7, EOS_ID]], [[3, 2, 1, 4], [3, 2, 2, 0]]))
    assert len(table) == 2 * 2 * 4
    assert sorted(table.layer.unique()) == [1, 2]
    assert table["head"].unique().tolist() == [1]
    first = table[(table.layer == 1) & (table.sequence == 0)].set_index("step")
    assert first.gold_column.tolist() == [3, 2, 1, NO_SOURCE]
    assert first.argmax_column.tolist() == [3, 2, 1, 4]
    assert first.attention_mass.tolist() == pytest.approx([0.8, 0.8, 0.8, 0.0])
    assert first.argmax_accuracy.tolist() == [1, 1, 1, 0]
    assert first.uniform_mass.tolist() == pytest.approx([0.2, 0.2, 0.2, 0.0])
    assert first.is_correct.all()
    assert (first.length == 3).all()
    second = table[(table.layer == 2) & (table.sequence == 1)].set_index("step")
    assert second.argmax_column.tolist() == [3, 2, 2, 0]
    assert second.attention_mass.tolist() == pytest.approx([0.8, 0.8, 0.05, 0.0])
    assert second.is_correct.tolist() == [True, False, True, True]


def test_of_several_gold_columns_the_nearest_is_listed_and_all_count():
    sort = Digits(DigitsConfig(transform="sort", min_length=2, max_length=5))
    pairs = Batch(torch.tensor([[BOS_ID, 5, 4, 5, EOS_ID]]), torch.tensor([[BOS_ID, 4, 5, 5, EOS_ID]]))
    table = step_table(sort, pairs, decoded([[4, 5, 5, EOS_ID]], [[2, 3, 4, 0]]))
    first = table[table.layer == 1]
    assert first.gold_column.tolist() == [2, 3, 3, NO_SOURCE]
    assert first.argmax_column.tolist() == [2, 3, 4, 0]
    assert first.attention_mass.tolist() == pytest.approx([0.8, 0.85, 0.1, 0])
    assert first.uniform_mass.tolist() == pytest.approx([0.2, 0.4, 0.4, 0])
    assert first.argmax_accuracy.tolist() == [1, 1, 0, 0]


def test_steps_end_at_the_first_eos():
    endless = decoded([[6, EOS_ID, PAD_ID, PAD_ID, PAD_ID, PAD_ID], [9, 8, 7, 7, 7, 7]], [[3, 2, 1, 4, 0, 0]] * 2)
    table = step_table(TASK, PAIRS, endless)
    steps = table[table.layer == 1].groupby("sequence").step.max()
    assert steps.tolist() == [1, 5]
    beyond = table[(table.layer == 1) & (table.sequence == 1) & (table.step > 3)]
    assert (beyond.gold_column == NO_SOURCE).all()
    assert not beyond.is_correct.any()
    assert (table.length == 3).all()  # also where fewer steps than that were made


def test_a_short_generation_keeps_the_length_of_the_reference():
    table = step_table(TASK, PAIRS, decoded([[EOS_ID], [EOS_ID]], [[3], [0]]))
    assert table.length.tolist() == [3] * 4
    assert not table.is_correct.any()


@pytest.mark.parametrize(("weights", "entropy"), [([1.0, 0, 0, 0, 0], 0.0), ([0.2] * 5, 1.0)])
def test_entropy_is_zero_on_one_token_and_one_when_spread_evenly(weights, entropy):
    tokens = torch.full((2, 1), EOS_ID)
    maps = AttentionMaps(None, None, torch.tensor(weights).expand(1, 2, 1, 1, 5))
    table = step_table(
        TASK, PAIRS, GenerationResult(tokens, tokens[..., None], torch.ones(2, 1, 1), maps, torch.zeros(2, 1))
    )
    assert table.entropy.tolist() == pytest.approx([entropy] * 2)
