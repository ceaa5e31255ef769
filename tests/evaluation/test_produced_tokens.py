"""Tokens that references hold and no output has; what the doctor and ``evaluate`` report of them."""

import pytest
import torch

from core.config import load_preset
from core.evaluation.outputs import Outputs
from core.evaluation.produced_tokens import produced_tokens
from core.tasks import Batch, build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.teaching.doctor.run_checks import check_produced_tokens
from core.teaching.doctor.subject import Subject
from core.text.vocab import EOS, EOS_ID, PAD_ID

TASK = build_task(load_preset("tiny").task)


def outputs_of(pairs: Batch, tokens: torch.Tensor) -> Outputs:
    return Outputs(pairs, tokens, torch.zeros(tokens.shape))


def test_tokens_that_no_output_has_are_counted_in_the_references():
    pairs = fixed_pairs(TASK, 40, split="test")
    four = TASK.tgt_vocab.encode(["4"])[0]
    without = pairs.tgt_out.where(pairs.tgt_out != four, TASK.tgt_vocab.encode(["5"])[0])
    produced = produced_tokens(TASK, outputs_of(pairs, without))
    count = int((pairs.tgt_out == four).sum())
    assert produced.missing == (("4", count),)
    assert (produced.in_references, produced.total) == (11, int((pairs.tgt_out != PAD_ID).sum()))
    assert produced.missing_share == pytest.approx(count / produced.total)
    assert produced_tokens(TASK, outputs_of(pairs, pairs.tgt_out)).missing == ()


def test_an_eos_that_is_never_produced_is_missing_even_if_training_lacks_it():
    pairs = fixed_pairs(TASK, 8, split="test")
    endless = pairs.tgt_out.where(pairs.tgt_out != EOS_ID, PAD_ID)
    (missing,) = produced_tokens(TASK, outputs_of(Batch(pairs.src, pairs.tgt[:, :-1]), endless)).missing
    assert missing[0] == EOS


@pytest.mark.parametrize(("token", "light"), [("4", "amber"), (None, "green")])
def test_the_doctor_warns_of_a_frequent_token_only(token, light, tiny):
    subject = Subject(new_state(tiny), None)
    pairs = fixed_pairs(subject.state.task, 200, split="validation")
    tokens = pairs.tgt_out.clone()
    if token:
        tokens[tokens == subject.state.task.tgt_vocab.encode([token])[0]] = EOS_ID
    finding = check_produced_tokens(subject, outputs_of(pairs, tokens))
    assert finding.light == light
    assert ("4 (" in finding.sentence) == bool(token)


def test_without_references_nothing_is_judged(tiny):
    assert check_produced_tokens(Subject(new_state(tiny), None), None).light == "gray"
