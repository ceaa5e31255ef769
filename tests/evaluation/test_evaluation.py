"""Figures mean what they say: exact match is strict, free-running, and not fooled by near misses."""

import math
from dataclasses import replace

import pytest
import torch

from core.evaluation import accuracy as evaluation
from core.evaluation.accuracy import (
    Evaluation,
    evaluate,
    evaluation_mode,
    exact_match_unpadded,
    is_exact,
    sequence_loss,
    unpadded_batches,
    with_eos,
)
from core.generation import Beam, Greedy, Sample, generate
from core.tasks import Batch, build_task, sample_distinct
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, PAD_ID
from core.training.loop import train


@pytest.fixture
def pairs(tiny):
    return sample_distinct(build_task(tiny.task), 40, split="test", generator=torch.Generator().manual_seed(0))


def oracle(pairs):
    """Answers by looking up the source."""
    table = {tuple(src): tgt for src, tgt in zip(pairs.src.tolist(), pairs.tgt_out.tolist(), strict=True)}
    return lambda src: torch.tensor([table[tuple(row)] for row in src.tolist()])


@pytest.mark.parametrize(
    ("tokens", "exact"),
    [
        ([5, 6, EOS_ID], True),
        ([5, 6, EOS_ID, PAD_ID, PAD_ID], True),
        ([5, EOS_ID], False),  # too short
        ([5, 6], False),  # right so far, but not ended
        ([5, 6, 7], False),
        ([5, 6, 7, EOS_ID], False),  # too long
        ([5, 6, 7, 7, EOS_ID, PAD_ID], False),
        ([5, 6, EOS_ID, 7], False),  # goes on behind its end
        ([5, 7, EOS_ID], False),  # wrong digit
        ([6, 5, EOS_ID], False),
        ([EOS_ID, 6, EOS_ID], False),
    ],
)
def test_exact_means_every_token_and_the_end(tokens, exact):
    for reference in ([5, 6, EOS_ID], [5, 6, EOS_ID, PAD_ID]):
        assert is_exact(torch.tensor([tokens]), torch.tensor([reference])).tolist() == [exact]


def test_an_oracle_scores_one(pairs, scripted):
    figures = evaluate(scripted(oracle(pairs)), pairs)
    assert (figures.sequences, figures.exact_match, figures.token_accuracy) == (40, 1.0, 1.0)
    assert figures.loss == pytest.approx(0, abs=1e-6)
    assert figures.perplexity == pytest.approx(1, abs=1e-6)


def test_a_model_that_never_stops_scores_zero_however_right_its_digits(pairs, scripted):
    def endless(src):
        answers = oracle(pairs)(src)
        return answers.masked_fill((answers == EOS_ID) | (answers == PAD_ID), 7)

    figures = evaluate(scripted(endless), pairs)
    assert figures.exact_match == 0.0
    assert 0.5 < figures.token_accuracy < 1.0


def test_one_wrong_last_digit_loses_the_sequence_but_few_tokens(pairs, scripted):
    def nearly(src):
        answers = oracle(pairs)(src)
        last = (answers == EOS_ID).int().argmax(1) - 1
        wrong = 3 + (answers.gather(1, last[:, None]) - 2) % 10
        return answers.scatter(1, last[:, None], wrong)

    figures = evaluate(scripted(nearly), pairs)
    real = (pairs.tgt_out != PAD_ID).sum().item()
    assert figures.exact_match == 0.0
    assert figures.token_accuracy == pytest.approx((real - 40) / real)


def test_a_model_that_stops_one_token_early_scores_zero(pairs, scripted):
    def hasty(src):
        answers = oracle(pairs)(src)
        last = (answers == EOS_ID).int().argmax(1) - 1
        return answers.scatter(1, last[:, None], EOS_ID)

    assert evaluate(scripted(hasty), pairs).exact_match == 0.0


def test_a_mixture_scores_its_share(pairs, scripted):
    def sometimes(src):
        answers = oracle(pairs)(src)
        wrong = torch.tensor([tuple(row) in known for row in src.tolist()])
        return answers.masked_fill(wrong[:, None], EOS_ID)

    known = {tuple(row) for row in pairs.src[:10].tolist()}
    assert evaluate(scripted(sometimes), pairs).exact_match == pytest.approx(0.75)


def test_figures_are_means_over_tokens_whatever_the_chunks_and_the_padding(pairs, tiny, monkeypatch):
    model = new_state(tiny).model
    at_once = evaluate(model, pairs)
    total = tokens = right = 0.0
    for src, tgt in zip(pairs.src, pairs.tgt, strict=True):  # one by one, without any padding
        src, tgt = src[src != PAD_ID][None], tgt[tgt != PAD_ID][None]
        logits = model.eval()(src, tgt[:, :-1])[0].detach()
        total -= logits.log_softmax(-1).gather(2, tgt[:, 1:, None]).sum().item()
        right += (logits.argmax(-1) == tgt[:, 1:]).sum().item()
        tokens += tgt.shape[1] - 1
    assert at_once.loss == pytest.approx(total / tokens, abs=1e-5)
    assert at_once.token_accuracy == pytest.approx(right / tokens)
    monkeypatch.setattr(evaluation, "CHUNK", 7)
    in_chunks = evaluate(model, pairs)
    assert in_chunks.loss == pytest.approx(at_once.loss, abs=1e-5)
    assert in_chunks.token_accuracy == pytest.approx(at_once.token_accuracy)
    assert in_chunks.exact_match == at_once.exact_match


def test_exact_match_counts_every_chunk(pairs, scripted, monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", 7)
    figures = evaluate(scripted(oracle(pairs)), pairs)
    assert (figures.sequences, figures.exact_match) == (40, 1.0)


def test_loss_ignores_padding_and_is_in_nats():
    logits = torch.zeros(1, 3, 13)
    assert sequence_loss(logits, torch.tensor([[5, 2, 0]])).item() == pytest.approx(math.log(13))
    logits[0, 2, 4] = 1e4  # what stands at PAD does not matter
    assert sequence_loss(logits, torch.tensor([[5, 2, 0]])).item() == pytest.approx(math.log(13))


@pytest.mark.parametrize(("loss", "perplexity"), [(0.0, 1.0), (math.log(13), 13.0), (1e6, math.inf)])
def test_perplexity_is_the_exponential_of_the_loss(loss, perplexity):
    assert Evaluation(1, loss, 0.0, 0.0).perplexity == pytest.approx(perplexity)


def test_no_pairs_is_an_error(pairs, tiny):
    with pytest.raises(ValueError, match="no sequences"):
        evaluate(new_state(tiny).model, pairs[:0])


@pytest.mark.parametrize("training", [True, False])
def test_mode_and_weights_are_left_as_they_were(pairs, tiny, training):
    state = new_state(tiny.with_changes({"model.dropout": 0.5}))
    model = state.model.train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generator = state.generator.get_state()
    assert evaluate(model, pairs) == evaluate(model, pairs)  # no dropout inside
    assert all(module.training is training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(state.generator.get_state(), generator)
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_mode_is_restored_after_an_exception(pairs, scripted):
    def broken(_):
        raise RuntimeError("broken")

    model = scripted(broken).train()
    with pytest.raises(RuntimeError, match="broken"):
        evaluate(model, pairs)
    assert model.training
    assert torch.is_grad_enabled()


def test_evaluation_mode_leaves_a_model_in_evaluation_there(tiny):
    model = new_state(tiny).model.eval()
    with evaluation_mode(model):
        assert not model.training
    assert not model.training


# --- without padding, and without EOS ---------------------------------------------------------------------------


def test_references_end_with_eos_whether_the_task_says_so_or_not():
    rows = torch.tensor([[5, 6, EOS_ID], [5, 6, 7], [5, PAD_ID, PAD_ID], [5, EOS_ID, PAD_ID]])
    assert with_eos(rows).tolist() == [
        [5, 6, EOS_ID, PAD_ID],
        [5, 6, 7, EOS_ID],
        [5, EOS_ID, PAD_ID, PAD_ID],
        [5, EOS_ID, PAD_ID, PAD_ID],
    ]


def test_an_answer_that_does_not_end_is_wrong_even_if_the_task_leaves_eos_out(pairs, scripted):
    endless = Batch(pairs.src, pairs.tgt.masked_fill(pairs.tgt == EOS_ID, PAD_ID))
    right = oracle(pairs)
    assert evaluate(scripted(right), endless).exact_match == 1.0
    assert evaluate(scripted(lambda src: right(src).masked_fill(right(src) <= EOS_ID, 7)), endless).exact_match == 0.0


def test_chunks_without_padding_hold_every_pair_once(pairs):
    places = []
    for rows, chunk in unpadded_batches(pairs):
        assert not (chunk.src == PAD_ID).any()
        assert torch.equal(chunk.src, pairs.src[rows, : chunk.src.shape[1]])
        assert torch.equal(chunk.tgt, pairs.tgt[rows])
        places += rows.tolist()
    assert sorted(places) == list(range(len(pairs)))


def test_alone_and_in_a_batch_differ_only_if_padding_matters(pairs, scripted, tiny, tiny_gru):
    width = pairs.src.shape[1]
    short = pairs[(pairs.src != PAD_ID).sum(dim=1) < width]
    table = oracle(short)
    spoilt = scripted(lambda src: table(src) if src.shape[1] == width else torch.full_like(src, 7))
    assert evaluate(spoilt, short).exact_match == 1.0
    assert exact_match_unpadded(spoilt, short) == 0.0
    for preset in (tiny, tiny_gru):
        changes = {"training.steps": 150, "training.evaluate_every": 150, "training.batch_size": 16}
        state = new_state(preset.with_changes(changes))
        for _ in train(state):
            pass
        alone = exact_match_unpadded(state.model, pairs)
        assert alone == evaluate(state.model, pairs).exact_match
        assert state.model.training


def test_exact_match_is_that_of_the_strategy(pairs, scripted):
    """An oracle that is right though not sure: only sampling from all tokens ever goes wrong."""

    class Unsure(scripted):
        def decode(self, *arguments, **settings):
            made = super().decode(*arguments, **settings)
            return replace(made, logits=made.logits / 20)

    oracular = Unsure(oracle(pairs))
    strategies = (Greedy(), Beam(beam_size=3, length_penalty=0.0), Sample(top_k=1), Sample())
    exact = [evaluate(oracular, pairs, strategy=strategy).exact_match for strategy in strategies]
    assert exact[:3] == [1.0, 1.0, 1.0]
    assert exact[3] < 0.5


def test_a_wide_beam_is_evaluated_in_smaller_parts(pairs, scripted, monkeypatch):
    sizes = []

    def counting(model, src, **settings):
        sizes.append(len(src))
        return generate(model, src, **settings)

    monkeypatch.setattr(evaluation, "CHUNK", 32)
    monkeypatch.setattr(evaluation, "generate", counting)
    assert evaluate(scripted(oracle(pairs)), pairs, strategy=Beam(beam_size=8)).exact_match == 1.0
    assert sizes == [4] * 8 + [4] * 2
