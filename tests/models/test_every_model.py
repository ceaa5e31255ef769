"""What holds for every model: the future and padding change nothing, and steps with a cache equal one call."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import Beam, generate
from core.models import AttentionRecorder, Seq2Seq, forward_with_attention
from core.models.gru import CELLS, GRUSeq2Seq
from core.models.transformer import Transformer
from core.text.vocab import PAD_ID
from tests.models.test_model_options import CLOSE, DEPTHS, LONGEST, V, build, options_of
from tests.support.scripted_models import UncachedModel, make_model, random_sequences
from tests.support.scripted_models import unended_sequences as sequences

ATTENTION_KINDS = [
    {"attention": "window", "attention_window": 2},
    {"attention": "window", "attention_window": 1, "norm": "pre"},
    {"attention": "window", "attention_window": 3, "positions": "alibi"},
    {"attention": "window", "attention_window": 2, "attention_scale": "log-length"},
    {"attention_scale": "log-length"},
    {"attention_temperature": 0.25},
    {"attention_temperature": 4.0, "positions": "rope", "attention_scale": "log-length"},
    {"attention": "linear"},
    {"attention": "linear", "norm": "pre", "positions": "none"},
    {"attention": "linear", "positions": "vo-rope"},
]
RECURRENT = [{"cell": cell} for cell in CELLS]
RECURRENT += [{"attention_type": kind} for kind in ("location-sensitive", "last-token", "none")]
MODELS = [(kind, options) for kind in DEPTHS for options in options_of(kind)]
MODELS += [(Transformer, options) for options in ATTENTION_KINDS]
MODELS += [(GRUSeq2Seq, options) for options in RECURRENT]


@pytest.fixture(params=MODELS, ids=lambda each: f"{each[0].__name__} {each[1]}")
def model(request) -> Seq2Seq:
    kind, options = request.param
    if kind is not GRUSeq2Seq:
        return build(kind, options)
    model = make_model(kind, d_embedding=6, d_hidden=8, num_layers=2, max_seq_len=LONGEST, **options).eval()
    if options.get("attention_type") == "location-sensitive":  # sharp, and dependent on the weights before
        with torch.no_grad():
            model.decoder.attention.v.weight *= 8
            model.decoder.attention.w_f.weight *= 4
    return model


def test_future_targets_do_not_change_earlier_logits(model):
    src, tgt = sequences([7, 4], 7), sequences([8, 8], 8)
    logits = model(src, tgt)
    for position in range(1, 8):
        changed = tgt.clone()
        changed[:, position] = 3 + (changed[:, position] - 2) % (V - 3)
        assert_close(model(src, changed)[:, :position], logits[:, :position], **CLOSE)


def test_source_padding_changes_nothing(model):
    lengths = [7, 4, 1]
    src, tgt = sequences(lengths, 7), sequences([5] * 3, 5)
    logits, maps = forward_with_attention(model, src, tgt)
    wide = torch.nn.functional.pad(src, (0, 5), value=PAD_ID)
    assert_close(model(wide, tgt), logits, **CLOSE)
    for row, length in enumerate(lengths):
        alone = model(src[row : row + 1, :length], tgt[row : row + 1])
        assert_close(alone[0], logits[row], **CLOSE)
        for weights in (maps.encoder, maps.cross):
            assert weights is None or (weights[:, row, ..., length:] == 0).all()


def test_a_source_of_nothing_but_padding_gives_finite_logits_and_gradients(model):
    logits = model(torch.zeros(1, 4, dtype=torch.int64), sequences([3], 3))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


def test_cached_steps_equal_one_call_in_logits_and_maps(model):
    src, tgt = sequences([7, 4, 1], 7), sequences([LONGEST] * 3, LONGEST)
    logits, maps = forward_with_attention(model, src, tgt)
    memory, cache, past = model.encode(src), None, 0
    for tokens in tgt.split([1, 4, 1, 1, 5], dim=1):
        with AttentionRecorder(model) as recorder:
            step = model.decode(tokens, memory, cache)
        found, cache, new = recorder.take(), step.cache, slice(past, past + tokens.shape[1])
        assert_close(step.logits, logits[:, new], **CLOSE)
        for ours, whole in ((found.decoder, maps.decoder), (found.cross, maps.cross)):
            if whole is not None:
                assert_close(ours, whole[..., new, : ours.shape[-1]], **CLOSE)
        past = new.stop


def test_beam_search_with_the_cache_equals_beam_search_without(model):
    with torch.no_grad():
        if model.output.weight is not None:  # with one of its own, make outputs depend on the source
            model.output.weight *= 8
        model.output.bias[PAD_ID] = -100
    src, beam = random_sequences([7, 4, 5]), Beam(beam_size=3, n_best=2)
    found, expected = (generate(each, src, max_steps=8, strategy=beam).search for each in (model, UncachedModel(model)))
    assert torch.equal(found.tokens, expected.tokens)
    assert_close(found.log_probs, expected.log_probs, **CLOSE)


def test_sequences_longer_than_max_seq_len_are_refused(model):
    longest, longer = sequences([LONGEST], LONGEST), sequences([LONGEST + 1], LONGEST + 1)
    assert model(longest, longest).isfinite().all()
    memory = model.encode(longest)
    with pytest.raises(ValueError, match=f"{LONGEST + 1} tokens"):
        model.decode(longest[:, :1], memory, model.decode(longest, memory).cache)
    for src, tgt in ((longer, longest), (longest, longer)):
        with pytest.raises(ValueError, match=f"{LONGEST + 1} tokens, .* more than max_seq_len={LONGEST}"):
            model(src, tgt)
