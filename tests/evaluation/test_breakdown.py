"""Exact match by group: addition on uniform operands by carry chain, and sequences by how repetitive they are."""

import pytest
import torch

from core.config import Preset
from core.evaluation import breakdown as module
from core.evaluation.breakdown import measure_breakdown
from core.evaluation.outputs import Outputs
from core.generation import Strategy
from core.models import Seq2Seq, build_model
from core.tasks import Batch, Task, build_task
from core.text.vocab import EOS_ID


@pytest.fixture(scope="module")
def adding(tiny: Preset) -> Preset:
    return tiny.with_changes({"task.family": "addition", "task.max_digits": 2})


@pytest.fixture(scope="module")
def task(adding: Preset) -> Task:
    return build_task(adding.task)


def test_groups_are_measured_one_by_one(adding, task, monkeypatch):
    model = build_model(adding.model, task, torch.Generator().manual_seed(0))

    def without_carry(model: Seq2Seq, pairs: Batch, *, strategy: Strategy, max_steps: int) -> Outputs:
        """Stands for a model that adds digits without carrying, and fails on odd first operands."""
        assert not model.training
        rows = ["".join(task.src_vocab.decode(row)) for row in pairs.src.tolist()]
        operands = [row.removeprefix("<BOS>").split("<EOS>")[0].split("+") for row in rows]
        right = [
            int(first) % 2 == 0
            and all(int(one) + int(other) < 10 for one, other in zip(first.zfill(2), second.zfill(2), strict=True))
            for first, second in operands
        ]
        tokens = pairs.tgt_out.where(torch.tensor(right)[:, None], EOS_ID)
        return Outputs(pairs, tokens, torch.zeros(tokens.shape))

    monkeypatch.setattr(module, "decode_padded", without_carry)
    result = measure_breakdown(model, task, sequences=300)
    no_carry, *carrying = result.groups
    assert no_carry.exact_match == pytest.approx(0.5, abs=0.15)
    assert [group.exact_match for group in carrying] == [0.0, 0.0]
    assert sum(group.sequences for group in result.groups) == result.sequences == 300
    assert result.exact_match == pytest.approx(no_carry.exact_match * no_carry.sequences / 300)
    assert model.training


def test_real_models_are_decoded_and_equal_calls_agree(adding, task):
    model = build_model(adding.model, task, torch.Generator().manual_seed(0)).eval()
    first, second = (measure_breakdown(model, task, sequences=50) for _ in range(2))
    assert first == second
    assert 0 <= first.exact_match <= 1


@pytest.mark.parametrize("changes", [{}, {"task.base": 2}, {"task.transform": "sort", "task.max_length": 8}])
def test_repetitive_inputs_are_held_out_and_of_their_kind(tiny, changes):
    task = build_task(tiny.with_changes(changes | {"task.max_length": 12, "model.max_seq_len": 16}).task)
    breakdown = task.breakdown(300, generator=torch.Generator().manual_seed(0))
    found = dict.fromkeys(breakdown.groups, 0)
    for name, rows in breakdown.groups.items():
        inputs = [
            task.src_vocab.decode([each for each in row if each > EOS_ID]) for row in breakdown.pairs.src[rows].tolist()
        ]
        assert len(set(map(tuple, inputs))) == len(inputs)
        for symbols, target in zip(inputs, breakdown.pairs.tgt[rows].tolist(), strict=True):
            kind = {1: "one symbol", 2: "two symbols"}.get(len(set(symbols)), "palindromes of three or more symbols")
            assert kind == name
            assert kind in ("one symbol", "two symbols") or symbols == symbols[::-1]
            assert task.split_of(symbols) == "test"
            assert task.answer(symbols) == task.tgt_vocab.decode([each for each in target if each > EOS_ID])
            found[name] += 1
    assert found["two symbols"] == 100
    assert 0 < found["one symbol"] < 100
    assert ("palindromes of three or more symbols" in found) == ("task.base" not in changes)


def test_tasks_without_a_breakdown_have_none(tiny):
    patterns = tiny.with_changes({"task.family": "patterns", "task.max_length": 16, "model.max_seq_len": 32})
    task = build_task(patterns.task)
    model = build_model(patterns.model, task, torch.Generator().manual_seed(0))
    assert measure_breakdown(model, task, sequences=50) is None
