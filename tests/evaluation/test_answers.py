"""The answer table: one row per input, in order, whatever the parts; consistent with the accuracies."""

import pytest
import torch
from pandas.testing import assert_frame_equal

from core.config import load_preset
from core.evaluation import answers
from core.evaluation.accuracy import evaluate
from core.evaluation.answers import answer_parts, answer_table, join_parts
from core.evaluation.outputs import exact_match_unpadded
from core.tasks import Batch, build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

ZERO = 3  # id of the digit 0


def ids(text: str) -> list[int]:
    return [ZERO + int(digit) for digit in text]


@pytest.fixture
def task(tiny):
    return build_task(tiny.task)


@pytest.fixture
def pairs(task) -> Batch:
    """4829, 123 and 4820 with their reversals, padded to one width."""
    rows = [("4829", "9284"), ("123", "321"), ("4820", "0284")]
    src, tgt = (
        torch.tensor([[BOS_ID, *ids(row[side]), EOS_ID, *[PAD_ID] * (4 - len(row[side]))] for row in rows])
        for side in (0, 1)
    )
    return Batch(src, tgt)


def test_each_row_has_output_reference_and_outcome(scripted, task, pairs):
    outputs = {"4829": [*ids("928"), EOS_ID], "123": [*ids("321"), EOS_ID], "4820": [*ids("02844"), EOS_ID]}

    def model(src):
        rows = [outputs["".join(str(index - ZERO) for index in row if index >= ZERO)] for row in src.tolist()]
        return torch.tensor([row + [PAD_ID] * (6 - len(row)) for row in rows])

    table = answer_table(scripted(model), task, pairs)
    assert table.index.tolist() == [0, 1, 2]
    assert table.input.tolist() == [list("4829"), list("123"), list("4820")]
    assert table.output.tolist() == [list("928"), list("321"), list("02844")]
    assert table.reference.tolist() == [list("9284"), list("321"), list("0284")]
    assert table.outcome.tolist() == ["stopped early", "exact", "stopped late"]
    assert table.is_exact.tolist() == [False, True, False]
    assert table.length.tolist() == [4, 3, 4]
    assert table.num_tokens.tolist() == [5, 4, 5]
    assert table.correct_tokens.tolist() == [3, 4, 4]
    assert table.stopped.all()


def test_an_output_without_eos_never_stopped(scripted, task, pairs):
    table = answer_table(scripted(lambda src: torch.full((len(src), 9), ZERO), max_seq_len=9), task, pairs)
    assert table.outcome.tolist() == ["never stopped"] * 3
    assert table.correct_tokens.tolist() == [0, 0, 1]  # 4820 reversed begins with a 0
    assert [len(output) for output in table.output] == [9, 9, 9]


@pytest.mark.parametrize("name", ["tiny", "masked-digits"])  # masked digits score some of their tokens only
def test_parts_join_to_the_whole_table_and_agree_with_evaluate(name, monkeypatch):
    preset = load_preset(name)
    task = build_task(preset.task)
    model, items = new_state(preset).model, fixed_pairs(task, 24, split="test")
    whole = answer_table(model, task, items)
    monkeypatch.setattr(answers, "TOKENS_PER_PART", 50)
    parts = list(answer_parts(model, task, items))
    assert len(parts) > 6
    assert max(map(len, parts)) == 50 // model.max_seq_len + 1
    assert_frame_equal(join_parts(parts), whole, rtol=1e-4)
    assert whole.is_exact.mean() == exact_match_unpadded(model, items)
    evaluation = evaluate(model, items)
    assert whole.correct_tokens_teacher_forced.sum() / whole.scored_tokens.sum() == pytest.approx(
        evaluation.token_accuracy
    )
    assert whole.loss.sum() / whole.num_tokens.sum() == pytest.approx(evaluation.loss)


def test_the_model_is_in_training_mode_between_parts(tiny, task):
    model = new_state(tiny).model.train()
    parts = answer_parts(model, task, fixed_pairs(task, 20, split="test"))
    next(parts)
    assert model.training
    assert torch.is_grad_enabled()


def test_references_without_eos_are_compared_as_if_they_had_it(tiny, scripted, task, pairs):
    without_eos = Batch(pairs.src, pairs.tgt.masked_fill(pairs.tgt == EOS_ID, PAD_ID))

    def model(src):
        return torch.cat([src[:, 1:-1].flip(1), torch.full((len(src), 1), EOS_ID)], dim=1)

    assert answer_table(scripted(model), task, without_eos).is_exact.all()
