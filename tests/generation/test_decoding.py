"""Greedy decoding is what its definition says, and records what really happened."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import generate
from core.models.transformer import Transformer
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

LAYERS, H = 2, 2


@pytest.fixture
def model() -> Transformer:
    """A random model that looks at its source and stops now and then: written lengths are 1, 2, 3 and no end."""
    torch.manual_seed(1)
    model = Transformer(
        src_vocab_size=13,
        tgt_vocab_size=13,
        d_model=16,
        num_heads=H,
        num_encoder_layers=LAYERS,
        num_decoder_layers=LAYERS,
        d_ff=32,
        max_seq_len=16,
    ).eval()
    with torch.no_grad():
        for layer in model.decoder_layers:
            layer.cross_attention.w_v.weight *= 4
            layer.cross_attention.w_o.weight *= 4
        model.output.weight *= 3
        model.output.bias[PAD_ID] = -100
        model.output.bias[EOS_ID] += 1
    return model


@pytest.fixture
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(24, split="test", generator=torch.Generator().manual_seed(0)).src


def slowly(model: Transformer, row: torch.Tensor, max_steps: int) -> list[int]:
    """Greedy decoding of one sequence as in a textbook: everything anew for each token."""
    tokens = [BOS_ID]
    while len(tokens) <= max_steps and tokens[-1] != EOS_ID:
        logits, _ = model(row[row != PAD_ID][None], torch.tensor([tokens]))
        tokens.append(logits[0, -1].argmax().item())
    return tokens[1:]


def test_tokens_are_those_of_a_full_recomputation_at_every_step(model, src):
    decoded = generate(model, src, max_steps=8)
    lengths = set()
    for row, tokens in zip(src, decoded.tokens.tolist(), strict=True):
        expected = slowly(model, row, 8)
        lengths.add(len(expected))
        assert tokens == expected + [PAD_ID] * (len(tokens) - len(expected))
    assert len(lengths) > 2  # some stopped early: the comparison says something


def test_padding_follows_the_end_and_stopped_tells_who_ended(scripted):
    answers = torch.tensor([[5, EOS_ID, 7, 8, 9], [5, 6, 7, EOS_ID, 4], [5, 6, 7, 8, 9]])
    decoded = generate(scripted(lambda _: answers), torch.ones(3, 4, dtype=torch.int64), max_steps=5)
    assert decoded.tokens.tolist() == [[5, EOS_ID, 0, 0, 0], [5, 6, 7, EOS_ID, 0], [5, 6, 7, 8, 9]]
    assert decoded.stopped.tolist() == [True, True, False]


def test_decoding_stops_when_all_have_finished(scripted):
    answers = torch.tensor([[5, EOS_ID, 7, 8], [EOS_ID, 6, 7, 8]])
    decoded = generate(scripted(lambda _: answers), torch.ones(2, 4, dtype=torch.int64), max_steps=4)
    assert decoded.tokens.tolist() == [[5, EOS_ID], [EOS_ID, PAD_ID]]


@pytest.mark.parametrize("max_steps", [1, 3, 16])
def test_no_more_than_max_steps_tokens_are_produced(scripted, max_steps):
    endless = scripted(lambda src: torch.full((len(src), 16), 5))
    decoded = generate(endless, torch.ones(2, 4, dtype=torch.int64), max_steps=max_steps)
    assert decoded.tokens.shape == (2, max_steps)
    assert not decoded.stopped.any()


def test_a_model_can_write_up_to_its_longest_sequence_and_not_further(model, src):
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100
    assert generate(model, src, max_steps=16).tokens.shape[1] == 16
    with pytest.raises(ValueError, match="max_seq_len=16"):
        generate(model, src, max_steps=17)


def test_candidates_are_sorted_and_their_probabilities_are_those_of_the_model(model, src):
    decoded = generate(model, src, max_steps=6, num_candidates=5)
    steps = decoded.tokens.shape[1]
    assert decoded.candidates.shape == decoded.probabilities.shape == (len(src), steps, 5)
    assert (decoded.probabilities.diff(dim=-1) <= 0).all()
    assert (decoded.probabilities >= 0).all()
    assert (decoded.probabilities.sum(-1) <= 1 + 1e-6).all()
    made = decoded.tokens != PAD_ID
    assert torch.equal(decoded.candidates[..., 0][made], decoded.tokens[made])
    first = model(src, torch.full((len(src), 1), BOS_ID))[0][:, 0].softmax(-1)
    assert_close(decoded.probabilities[:, 0], first.gather(1, decoded.candidates[:, 0]), atol=1e-6, rtol=0)


def test_more_candidates_than_tokens_gives_all_tokens(model, src):
    decoded = generate(model, src[:2], max_steps=2, num_candidates=99)
    assert decoded.candidates.shape[-1] == 13
    assert_close(decoded.probabilities.sum(-1), torch.ones(decoded.tokens.shape), atol=1e-5, rtol=0)


def test_maps_have_their_shapes_and_rows_that_sum_to_one(model, src):
    decoded = generate(model, src, max_steps=8, need_weights=True)
    count, width, steps = len(src), src.shape[1], decoded.tokens.shape[1]
    maps = decoded.maps
    assert maps.encoder.shape == (LAYERS, count, H, width, width)
    assert maps.decoder.shape == (LAYERS, count, H, steps, steps)
    assert maps.cross.shape == (LAYERS, count, H, steps, width)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)
    assert (maps.decoder.triu(1) == 0).all()
    assert (maps.cross.masked_select((src == PAD_ID)[None, :, None, None, :].expand_as(maps.cross)) == 0).all()


def test_maps_are_those_of_reading_the_very_tokens_that_were_written(model, src):
    decoded = generate(model, src, max_steps=8, need_weights=True)
    read = torch.cat([torch.full((len(src), 1), BOS_ID), decoded.tokens[:, :-1]], dim=1)
    _, maps = model(src, read, need_weights=True)
    assert_close(decoded.maps.cross, maps.cross, atol=1e-5, rtol=0)
    assert_close(decoded.maps.decoder, maps.decoder, atol=1e-5, rtol=0)
    assert_close(decoded.maps.encoder, maps.encoder, atol=1e-5, rtol=0)


def test_recording_changes_no_token_and_happens_only_when_asked(model, src):
    plain, recorded = (generate(model, src, max_steps=8, need_weights=need) for need in (False, True))
    assert torch.equal(plain.tokens, recorded.tokens)
    assert plain.maps is None


def test_a_model_without_attention_can_be_recorded_too(scripted):
    answers = torch.tensor([[5, EOS_ID]])
    maps = generate(
        scripted(lambda _: answers), torch.ones(1, 3, dtype=torch.int64), max_steps=2, need_weights=True
    ).maps
    assert (maps.encoder, maps.decoder, maps.cross) == (None, None, None)


def test_nothing_of_a_decode_can_be_differentiated(model, src):
    decoded = generate(model, src, max_steps=3, need_weights=True)
    assert not decoded.probabilities.requires_grad
    assert not decoded.maps.cross.requires_grad
    assert torch.is_grad_enabled()
