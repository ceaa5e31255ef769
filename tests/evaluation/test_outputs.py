"""Outputs: in the order of their pairs, each decoded once, whatever is computed from them."""

import torch

from core.evaluation.accuracy import evaluate
from core.evaluation.outputs import Outputs, decode_padded, decode_unpadded
from core.generation import GenerationResult, generate
from core.tasks import Batch, build_task, fixed_pairs
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.decodes import counted_decodes
from tests.support.scripted_models import gru, transformer


def decoded(tokens: list[list[int]], log_probs: list[list[float]]) -> GenerationResult:
    of_steps = torch.empty(*torch.tensor(tokens).shape, 0)
    return GenerationResult(torch.tensor(tokens), of_steps.long(), of_steps, None, torch.tensor(log_probs))


def test_parts_are_put_in_the_order_of_their_pairs_and_padded_to_the_longest():
    src = torch.tensor([[BOS_ID, number, EOS_ID] for number in (4, 5, 6)])
    parts = [
        (torch.tensor([2, 0]), decoded([[6, EOS_ID], [4, EOS_ID]], [[-1.0, -2.0], [-3.0, -5.0]])),
        (torch.tensor([1]), decoded([[5, 5, EOS_ID]], [[-1.0, -1.0, -4.0]])),
    ]
    outputs = Outputs.from_parts(Batch(src, src), parts)
    assert outputs.tokens.tolist() == [[4, EOS_ID, PAD_ID], [5, 5, EOS_ID], [6, EOS_ID, PAD_ID]]
    assert outputs.is_exact().tolist() == [True, False, True]
    assert outputs.exact_match() == 2 / 3
    assert outputs.mean_log_probs.tolist() == [-4.0, -2.0, -1.5]


def test_each_pair_is_decoded_once_as_if_alone_and_the_mode_is_kept(tiny):
    pairs = fixed_pairs(build_task(tiny.task), 40, split="test")
    for model in (transformer().train(), gru().train()):
        with counted_decodes() as counts:
            outputs = decode_unpadded(model, pairs)
        assert model.training
        assert set(counts.values()) == {1}
        assert len(counts) == 40
        model.eval()
        for row, tokens in zip(pairs.src, outputs.tokens, strict=True):
            alone = generate(model, row[row != PAD_ID][None], max_steps=model.max_seq_len).tokens[0]
            assert tokens[: len(alone)].tolist() == alone.tolist()
            assert not tokens[len(alone) :].any()


def test_evaluate_decodes_each_pair_once_and_its_exact_match_is_that_of_the_outputs(tiny):
    pairs, model = fixed_pairs(build_task(tiny.task), 40, split="test"), transformer()
    tokens = decode_padded(model, pairs, max_steps=8).tokens
    own = Batch(pairs.src, torch.nn.functional.pad(tokens, (1, 0), value=BOS_ID))
    own.tgt[::4, 1] = 9  # a quarter of the references differ
    with counted_decodes() as counts:
        evaluation = evaluate(model, own)
    assert set(counts.values()) == {1}
    assert 0 < evaluation.exact_match == decode_padded(model, own, max_steps=8).exact_match() < 1
