"""Loss, token accuracy and exact match: strict, free-running, independent of batches and padding."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from core.evaluation import accuracy, passes
from core.evaluation import outputs as outputs_module
from core.evaluation.accuracy import Evaluation, evaluate, sequence_loss
from core.evaluation.outputs import exact_match_unpadded, is_exact, with_eos
from core.evaluation.passes import MAX_SCORED_FLOATS, evaluation_mode, sequences_per_pass
from core.generation import Beam, Greedy, Sample, generate
from core.tasks import Batch, build_task, sample_distinct, unpadded_batches
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import gru, transformer


@pytest.fixture
def pairs(tiny):
    return sample_distinct(build_task(tiny.task), 40, split="test", generator=torch.Generator().manual_seed(0))


def oracle(pairs):
    """Look up the reference of each source."""
    table = {tuple(src): tgt for src, tgt in zip(pairs.src.tolist(), pairs.tgt_out.tolist(), strict=True)}
    return lambda src: torch.tensor([table[tuple(row)] for row in src.tolist()])


OUTPUTS = [
    ([5, 6, EOS_ID], True),
    ([5, 6, EOS_ID, PAD_ID, PAD_ID], True),
    ([5, EOS_ID], False),  # too short
    ([5, 6], False),  # a correct prefix without EOS
    ([5, 6, 7], False),
    ([5, 6, 7, EOS_ID], False),  # too long
    ([5, 6, 7, 7, EOS_ID, PAD_ID], False),
    ([5, 6, EOS_ID, 7], False),  # continues after EOS
    ([5, 7, EOS_ID], False),  # one wrong digit
    ([6, 5, EOS_ID], False),
    ([EOS_ID, 6, EOS_ID], False),
]


def test_an_exact_match_has_every_token_and_eos():
    for tokens, expected in OUTPUTS:
        for reference in ([5, 6, EOS_ID], [5, 6, EOS_ID, PAD_ID]):
            assert is_exact(torch.tensor([tokens]), torch.tensor([reference])).tolist() == [expected], tokens


@pytest.mark.parametrize("build", [transformer, gru])
def test_the_free_running_loss_is_that_of_a_decoder_that_reads_its_own_argmax(build, pairs, monkeypatch):
    monkeypatch.setattr(passes, "CHUNK", 7)
    model = build()
    nats = tokens = 0.0
    with torch.no_grad():
        for row in range(len(pairs)):
            length = int((pairs.tgt_out[row] != PAD_ID).sum())
            read = [BOS_ID]
            for target in pairs.tgt_out[row, :length].tolist():
                logits = model(pairs.src[row : row + 1], torch.tensor([read]))[0, -1]
                nats -= logits.log_softmax(-1)[target].item()
                read.append(int(logits.argmax()))  # goes on after an EOS of its own, to the length of the reference
            tokens += length
    measured = evaluate(model, pairs, free_running_loss=True)
    assert measured.free_running_loss == pytest.approx(nats / tokens, rel=1e-4)
    assert measured.free_running_loss != pytest.approx(measured.loss, rel=1e-2)
    assert replace(measured, free_running_loss=None) == evaluate(model, pairs)


def test_an_oracle_has_accuracy_one(pairs, scripted):
    evaluation = evaluate(scripted(oracle(pairs)), pairs)
    assert (evaluation.sequences, evaluation.exact_match, evaluation.token_accuracy) == (40, 1.0, 1.0)
    assert evaluation.loss == pytest.approx(0, abs=1e-6)
    assert evaluation.perplexity == pytest.approx(1, abs=1e-6)


def test_outputs_without_eos_have_no_exact_match(pairs, scripted):
    def endless(src):
        answers = oracle(pairs)(src)
        return answers.masked_fill((answers == EOS_ID) | (answers == PAD_ID), 7)

    evaluation = evaluate(scripted(endless), pairs)
    assert evaluation.exact_match == 0.0
    assert 0.5 < evaluation.token_accuracy < 1.0


def test_one_wrong_token_costs_exact_match_but_little_token_accuracy(pairs, scripted):
    def nearly(src):
        answers = oracle(pairs)(src)
        last = (answers == EOS_ID).int().argmax(1) - 1
        wrong = 3 + (answers.gather(1, last[:, None]) - 2) % 10
        return answers.scatter(1, last[:, None], wrong)

    evaluation = evaluate(scripted(nearly), pairs)
    real = (pairs.tgt_out != PAD_ID).sum().item()
    assert evaluation.exact_match == 0.0
    assert evaluation.token_accuracy == pytest.approx((real - 40) / real)


def test_outputs_that_end_one_token_early_have_no_exact_match(pairs, scripted):
    def hasty(src):
        answers = oracle(pairs)(src)
        last = (answers == EOS_ID).int().argmax(1) - 1
        return answers.scatter(1, last[:, None], EOS_ID)

    assert evaluate(scripted(hasty), pairs).exact_match == 0.0


def test_exact_match_is_the_share_of_correct_outputs(pairs, scripted):
    def sometimes(src):
        answers = oracle(pairs)(src)
        wrong = torch.tensor([tuple(row) in known for row in src.tolist()])
        return answers.masked_fill(wrong[:, None], EOS_ID)

    known = {tuple(row) for row in pairs.src[:10].tolist()}
    assert evaluate(scripted(sometimes), pairs).exact_match == pytest.approx(0.75)


def test_loss_and_token_accuracy_are_token_means_over_chunks_and_padding(pairs, monkeypatch):
    pairs, model = pairs[:20], transformer()
    whole = evaluate(model, pairs)
    total = tokens = correct = 0.0
    for src, tgt in zip(pairs.src, pairs.tgt, strict=True):  # one by one, without any padding
        src, tgt = src[src != PAD_ID][None], tgt[tgt != PAD_ID][None]
        logits = model.eval()(src, tgt[:, :-1]).detach()
        total -= logits.log_softmax(-1).gather(2, tgt[:, 1:, None]).sum().item()
        correct += (logits.argmax(-1) == tgt[:, 1:]).sum().item()
        tokens += tgt.shape[1] - 1
    assert whole.loss == pytest.approx(total / tokens, abs=1e-5)
    assert whole.token_accuracy == pytest.approx(correct / tokens)
    monkeypatch.setattr(passes, "CHUNK", 7)
    in_chunks = evaluate(model, pairs)
    assert in_chunks.loss == pytest.approx(whole.loss, abs=1e-5)
    assert in_chunks.token_accuracy == pytest.approx(whole.token_accuracy)
    assert in_chunks.exact_match == whole.exact_match


def test_exact_match_covers_every_chunk(pairs, scripted, monkeypatch):
    monkeypatch.setattr(passes, "CHUNK", 7)
    evaluation = evaluate(scripted(oracle(pairs)), pairs)
    assert (evaluation.sequences, evaluation.exact_match) == (40, 1.0)


@pytest.mark.parametrize("build", [transformer, gru])
def test_a_bound_on_memory_makes_smaller_passes_with_the_same_figures(build, pairs, monkeypatch):
    model, sizes = build(), []
    whole = evaluate(model, pairs, free_running_loss=True)
    model.register_forward_pre_hook(lambda model, inputs: sizes.append(len(inputs[0])))
    widest = max(each.out_features for each in model.modules() if isinstance(each, torch.nn.Linear))
    monkeypatch.setattr(accuracy, "MAX_SCORED_FLOATS", 7 * max(pairs.src.shape[1], pairs.tgt_in.shape[1]) * widest)
    parts = evaluate(model, pairs, free_running_loss=True)
    assert sizes == [7] * 5 + [5]
    assert parts.loss == pytest.approx(whole.loss, abs=1e-5)
    assert parts.free_running_loss == pytest.approx(whole.free_running_loss, abs=1e-5)
    assert (parts.exact_match, parts.token_accuracy) == (whole.exact_match, whole.token_accuracy)


def test_logits_of_a_large_vocabulary_stay_within_a_hundred_megabytes_and_scored_ones_within_twenty(scripted):
    small, large = (scripted(lambda src: src, vocab_size=size) for size in (13, 4_000))
    assert sequences_per_pass(small, 80) == sequences_per_pass(small, 80, most=MAX_SCORED_FLOATS) == 1_000
    assert 1.5e7 < sequences_per_pass(large, 80, most=MAX_SCORED_FLOATS) * 80 * 4_000 * 4 <= 2e7
    assert 0.9e8 < sequences_per_pass(large, 80) * 80 * 4_000 * 4 <= 1e8
    assert sequences_per_pass(large, 10_000) == 1


def test_sequence_loss_ignores_padding_and_is_in_nats():
    logits = torch.zeros(1, 3, 13)
    assert sequence_loss(logits, torch.tensor([[5, 2, 0]])).item() == pytest.approx(math.log(13))
    logits[0, 2, 4] = 1e4  # logits at PAD have no effect
    assert sequence_loss(logits, torch.tensor([[5, 2, 0]])).item() == pytest.approx(math.log(13))


@pytest.mark.parametrize(("loss", "perplexity"), [(0.0, 1.0), (math.log(13), 13.0), (1e6, math.inf)])
def test_perplexity_is_the_exponential_of_the_loss(loss, perplexity):
    assert Evaluation(1, loss, 0.0, 0.0).perplexity == pytest.approx(perplexity)


def test_evaluating_no_pairs_is_an_error(pairs, tiny):
    with pytest.raises(ValueError, match="no sequences"):
        evaluate(new_state(tiny).model, pairs[:0])


@pytest.mark.parametrize("training", [True, False])
def test_training_mode_weights_and_generator_are_unchanged(pairs, tiny, training):
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


def test_training_mode_is_restored_after_an_exception(pairs, scripted):
    def broken(_):
        raise RuntimeError("broken")

    model = scripted(broken).train()
    with pytest.raises(RuntimeError, match="broken"):
        evaluate(model, pairs)
    assert model.training
    assert torch.is_grad_enabled()


def test_evaluation_mode_keeps_a_model_in_evaluation_mode(tiny):
    model = new_state(tiny).model.eval()
    with evaluation_mode(model):
        assert not model.training
    assert not model.training


# --- without padding, without EOS ---------------------------------------------------------------------------------


def test_with_eos_appends_a_missing_eos():
    rows = torch.tensor([[5, 6, EOS_ID], [5, 6, 7], [5, PAD_ID, PAD_ID], [5, EOS_ID, PAD_ID]])
    assert with_eos(rows).tolist() == [
        [5, 6, EOS_ID, PAD_ID],
        [5, 6, 7, EOS_ID],
        [5, EOS_ID, PAD_ID, PAD_ID],
        [5, EOS_ID, PAD_ID, PAD_ID],
    ]


def test_outputs_without_eos_are_wrong_even_if_references_lack_eos(pairs, scripted):
    without_eos = Batch(pairs.src, pairs.tgt.masked_fill(pairs.tgt == EOS_ID, PAD_ID))
    answers = oracle(pairs)
    assert evaluate(scripted(answers), without_eos).exact_match == 1.0
    never_ending = scripted(lambda src: answers(src).masked_fill(answers(src) <= EOS_ID, 7))
    assert evaluate(never_ending, without_eos).exact_match == 0.0


def test_unpadded_batches_hold_every_pair_once(pairs):
    indices = []
    for rows, chunk in unpadded_batches(pairs):
        assert not (chunk.src == PAD_ID).any()
        assert torch.equal(chunk.src, pairs.src[rows, : chunk.src.shape[1]])
        assert torch.equal(chunk.tgt, pairs.tgt[rows])
        indices += rows.tolist()
    assert sorted(indices) == list(range(len(pairs)))


def test_unpadded_exact_match_differs_only_if_padding_has_an_effect(pairs, scripted):
    width = pairs.src.shape[1]
    short = pairs[(pairs.src != PAD_ID).sum(dim=1) < width]
    table = oracle(short)
    sensitive = scripted(lambda src: table(src) if src.shape[1] == width else torch.full_like(src, 7))
    assert evaluate(sensitive, short).exact_match == 1.0
    assert exact_match_unpadded(sensitive, short) == 0.0
    for model in (transformer(), gru()):
        outputs = [generate(model, row[row != PAD_ID][None], max_steps=8).tokens[0] for row in pairs.src]
        tgt_out = pad_sequence(outputs, batch_first=True)
        tgt_out[::4, 0] = 9  # a quarter of the references differ
        own = Batch(pairs.src, torch.nn.functional.pad(tgt_out, (1, 0), value=BOS_ID))
        exact = exact_match_unpadded(model, own)
        assert 0.1 < exact < 0.9
        assert exact == evaluate(model, own).exact_match


def test_exact_match_is_measured_with_the_given_strategy(pairs, scripted):
    """The argmax is always correct, but not confident: only unrestricted sampling makes errors."""

    class Unconfident(scripted):
        def decode(self, *arguments, **settings):
            output = super().decode(*arguments, **settings)
            return replace(output, logits=output.logits / 20)

    model = Unconfident(oracle(pairs))
    strategies = (Greedy(), Beam(beam_size=3, length_penalty=0.0), Sample(top_k=1), Sample())
    exact = [evaluate(model, pairs, strategy=strategy).exact_match for strategy in strategies]
    assert exact[:3] == [1.0, 1.0, 1.0]
    assert exact[3] < 0.5


def test_a_wide_beam_is_decoded_in_smaller_batches(pairs, scripted, monkeypatch):
    sizes = []

    def counting(model, src, **settings):
        sizes.append(len(src))
        return generate(model, src, **settings)

    monkeypatch.setattr(passes, "CHUNK", 32)
    monkeypatch.setattr(outputs_module, "generate", counting)
    assert evaluate(scripted(oracle(pairs)), pairs, strategy=Beam(beam_size=8)).exact_match == 1.0
    assert sizes == [4] * 8 + [4] * 2
