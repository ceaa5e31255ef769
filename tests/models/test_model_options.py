"""Every option of both Transformers: what each changes."""

import math

import pytest
import torch
from torch.testing import assert_close

from core.config import ConfigError
from core.evaluation.accuracy import sequence_loss
from core.models import build_model, count_parameters, forward_with_attention, parameters_of
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.hooks import hooks
from core.models.positions import alibi_bias, alibi_slopes
from core.models.transformer import Transformer
from core.tasks import build_task
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from core.training.loop import train
from tests.support.scripted_models import make_model
from tests.support.scripted_models import unended_sequences as sequences

V, LONGEST = 13, 12
CLOSE = {"atol": 1e-5, "rtol": 1e-4}
SIZES = {"src_vocab_size": V, "tgt_vocab_size": V, "d_model": 16, "num_heads": 4, "d_ff": 32, "max_seq_len": LONGEST}
DEPTHS = {
    Transformer: {"num_encoder_layers": 1, "num_decoder_layers": 2},
    DecoderOnly: {"num_layers": 2},
    EncoderOnly: {"num_layers": 2},
}
TABLES = {Transformer: 3, DecoderOnly: 3, EncoderOnly: 2}  # untied tables of a row per token
OPTIONS = [
    {},
    {"norm": "pre"},
    {"positions": "learned"},
    {"positions": "none"},
    {"positions": "alibi"},
    {"positions": "vo-rope"},
    {"positions": "rope", "norm": "pre", "norm_block": "rms-norm"},
    {"positions": "rope", "position_period": 5},
    {"activation": "gelu"},
    {"tie_embeddings": "output"},
    {"tie_embeddings": "all"},
    {"norm": "pre", "positions": "alibi", "activation": "gelu", "tie_embeddings": "all"},
    {"positions": "sinusoidal-halves", "activation": "silu", "embedding_norm": True, "scale_embeddings": False},
    {"positions": "relative-bias", "norm": "pre", "norm_block": "rms-norm", "scale_embeddings": False},
    {"positions": "sinusoidal-fairseq", "feed_forward_block": "gated", "activation": "gelu-tanh"},
]


def build(kind, options: dict, **changes):
    model = make_model(kind, **SIZES | DEPTHS[kind] | options | changes).eval()
    for name, parameter in model.named_parameters():  # tables begin empty: build_model fills them
        if "positions" in name or "relative" in name:
            torch.nn.init.normal_(parameter)
    return model


def options_of(kind) -> list[dict]:
    """The options of a kind of model; an encoder-only one has no target embedding to tie its output layer to."""
    return [each for each in OPTIONS if kind is not EncoderOnly or each.get("tie_embeddings") != "output"]


@pytest.mark.parametrize("kind", DEPTHS)
def test_gradients_reach_every_parameter_and_fused_equals_explicit_attention(kind):
    for options in options_of(kind):
        model = build(kind, options)
        src, tgt = sequences([7, 4], 7), sequences([6, 5], 6)
        logits = model(src, tgt)
        assert_close(forward_with_attention(model, src, tgt)[0], logits, **CLOSE)
        sequence_loss(logits, tgt.roll(-1, 1)).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            # A key's bias adds the same to every score of a row; positions past the longest sequence are not seen.
            assert parameter.grad.abs().sum() > 0 or name.endswith("w_k.bias"), name


@pytest.mark.parametrize("kind", DEPTHS)
def test_without_positions_the_source_is_a_set(kind):
    src = torch.tensor([[BOS_ID, 5, 6, 7, 2]])
    swapped = torch.tensor([[BOS_ID, 7, 6, 5, 2]])
    tgt = sequences([4], 4)
    for positions in ("sinusoidal", "learned", "alibi", "rope", "vo-rope"):
        model = build(kind, {"positions": positions})
        assert not torch.allclose(model(src, tgt), model(swapped, tgt), atol=1e-3), positions
    model = build(Transformer, {"positions": "none"})
    assert_close(model(src, tgt), model(swapped, tgt), **CLOSE)


def test_alibi_equals_its_formula():
    assert alibi_slopes(8).tolist() == pytest.approx([2.0**-h for h in range(1, 9)])
    assert alibi_slopes(2).tolist() == pytest.approx([2.0**-4, 2.0**-8])
    bias = alibi_bias(alibi_slopes(2), torch.tensor([[2, 3]]), torch.arange(4)[None])
    assert bias.shape == (1, 2, 2, 4)
    for head, slope in enumerate((2.0**-4, 2.0**-8)):
        for row, query in enumerate((2, 3)):
            assert bias[0, head, row].tolist() == pytest.approx([-slope * abs(query - key) for key in range(4)])


def test_alibi_is_defined_at_any_length():
    short, long = (build(Transformer, {"positions": "alibi"}, max_seq_len=length) for length in (12, 200))
    long.load_state_dict(short.state_dict())
    src, tgt = sequences([9], 9), sequences([5], 5)
    assert_close(long(src, tgt), short(src, tgt), **CLOSE)
    assert long(sequences([200], 200), sequences([200], 200)).isfinite().all()


@pytest.mark.parametrize(
    ("kind", "tie_embeddings", "tables"),
    [
        *((kind, *tied) for kind in (Transformer, DecoderOnly) for tied in (("none", 3), ("output", 2), ("all", 1))),
        *((EncoderOnly, *tied) for tied in (("none", 2), ("all", 1))),
    ],
)
def test_tied_embeddings_are_one_parameter(kind, tie_embeddings, tables):
    model = build(kind, {"tie_embeddings": tie_embeddings})
    shaped = [name for name, parameter in model.named_parameters() if parameter.shape == (V, 16)]
    assert len(shaped) == tables, shaped
    assert len(model.state_dict()) == len(dict(model.named_parameters()))
    separate = count_parameters(build(kind, {}))
    assert count_parameters(model) == separate - (TABLES[kind] - tables) * V * 16


@pytest.mark.parametrize("kind", DEPTHS)
def test_tying_two_vocabularies_is_refused(kind):
    with pytest.raises(ValueError, match="tie_embeddings='all' needs one vocabulary, not 14 and 13 tokens"):
        build(kind, {"tie_embeddings": "all"}, src_vocab_size=14)
    separate = build(kind, {"tie_embeddings": "none" if kind is EncoderOnly else "output"}, src_vocab_size=14)
    assert separate(sequences([4], 4), sequences([4], 4))[0].shape[-1] == V


def test_pre_norm_keeps_the_residual_stream_when_sublayers_give_zero():
    model = build(Transformer, {"norm": "pre"})
    for layer in model.encoder_layers:
        for last in (layer.self_attention.w_o, layer.feed_forward.narrow):
            torch.nn.init.zeros_(last.weight)
            torch.nn.init.zeros_(last.bias)
    src = sequences([6], 6)
    expected = model.encoder_norm(model.src_embedding(src))
    assert_close(model.encode(src).states, expected, **CLOSE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model.d_model": 20, "model.num_heads": 4, "model.positions": "vo-rope"},
            "model.d_model=20 / model.num_heads=4 must be even with model.positions='vo-rope'",
        ),
        (
            {"model.position_stretch": 2.0},
            "model.position_stretch=2.0 must be 1 with model.positions='sinusoidal'; only",
        ),
        (
            {"model.attention": "linear", "model.attention_scale": "log-length"},
            "model.attention_scale='log-length' must be 'sqrt' with model.attention='linear'",
        ),
        (
            {"model.attention": "linear", "model.attention_temperature": 2.0},
            "model.attention_temperature=2 must be 1 with model.attention='linear'",
        ),
        ({"model.family": "gru", "model.attention_temperature": 2.0}, "model.attention_temperature is not a known key"),
        (
            {"model.positions": "alibi", "model.position_period": 11},
            "model.position_period=11 must be 0 with model.positions='alibi'; only 'rope' can",
        ),
        ({"model.positions": "rope", "model.position_period": 1}, "model.position_period=1 must be 0 or at least 2"),
        ({"model.d_model": 15, "model.num_heads": 3}, "model.d_model=15 must be even: positions are pairs"),
        (
            {"model.family": "decoder-only", "model.num_encoder_layers": 1},
            "model.num_encoder_layers is not a known key",
        ),
        (
            {"model.family": "encoder-only", "model.tie_embeddings": "output"},
            "model.tie_embeddings='output' should be 'none' or 'all'",
        ),
        (
            {"model.family": "encoder-only", "task.family": "number-words"},
            "model.family='encoder-only' writes one token for each input token, but with task.family='number-words'",
        ),
        ({"model.family": "decoder-only", "model.num_heads": 3}, "d_model=16 must be divisible by model.num_heads=3"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(tiny, changes, message):
    with pytest.raises(ConfigError) as caught:
        tiny.with_changes(changes)
    assert message in str(caught.value)


def test_d_model_may_be_odd_without_sinusoidal_positions(tiny):
    odd = tiny.with_changes({"model.d_model": 15, "model.num_heads": 3, "model.positions": "alibi"})
    assert new_state(odd).model(sequences([4], 4), sequences([4], 4))[0].isfinite().all()


def test_tokens_a_period_apart_have_the_same_position():
    model = build(DecoderOnly, {"positions": "rope", "position_period": 5})
    first, *_ = recorded_keys(model, sequences([11], 11).index_fill_(1, torch.tensor([1, 6, 8]), 7))
    assert_close(first[:, :, 6], first[:, :, 1], **CLOSE)
    assert not torch.allclose(first[:, :, 8], first[:, :, 1], atol=1e-2)


def test_without_the_sources_eos_the_target_takes_its_position():
    model = build(DecoderOnly, {"positions": "rope", "source_eos": False})
    ended = torch.nn.functional.pad(sequences([6, 4], 6), (0, 2), value=PAD_ID)
    src = ended.index_put((torch.arange(2), torch.tensor([6, 4])), torch.tensor(EOS_ID))
    tgt = sequences([5, 5], 5)
    expected = build(DecoderOnly, {"positions": "rope"})
    expected.load_state_dict(model.state_dict())
    assert_close(model(src, tgt), expected(ended, tgt), **CLOSE)  # as if the source had none
    assert not torch.allclose(model(src, tgt), expected(src, tgt), atol=1e-2)


def test_without_the_sources_bos_the_source_is_read_as_if_it_had_none():
    model, expected = build(Transformer, {"source_bos": False}), build(Transformer, {})
    expected.load_state_dict(model.state_dict())
    src, tgt = sequences([6, 4], 6), sequences([5, 5], 5)
    assert_close(model(src, tgt), expected(src[:, 1:], tgt), **CLOSE)
    assert not torch.allclose(model(src, tgt), expected(src, tgt), atol=1e-2)


def test_without_the_sources_eos_the_encoder_reads_the_source_as_if_it_had_none():
    model, expected = build(Transformer, {"source_eos": False}), build(Transformer, {})
    expected.load_state_dict(model.state_dict())
    ended = torch.nn.functional.pad(sequences([6, 4], 6), (0, 1), value=PAD_ID)
    src = ended.index_put((torch.arange(2), torch.tensor([6, 4])), torch.tensor(EOS_ID))
    tgt = sequences([5, 5], 5)
    assert_close(model(src, tgt), expected(ended, tgt), **CLOSE)
    assert not torch.allclose(model(src, tgt), expected(src, tgt), atol=1e-2)


def test_a_target_without_bos_continues_its_source():
    """Logits of the target are those of one text of source and target, without BOS and EOS between or before."""
    settings = {"source_bos": False, "source_eos": False, "target_bos": False, "tie_embeddings": "all"}
    for positions in ("learned", "sinusoidal", "rope", "alibi", "relative-bias"):
        model = build(DecoderOnly, settings | {"positions": positions})
        src, tgt = torch.nn.functional.pad(sequences([7, 4, 2], 7), (0, 1), value=PAD_ID), sequences([6, 6, 6], 6)
        src[torch.arange(3), torch.tensor([7, 4, 2])] = EOS_ID
        logits = model(src, tgt)
        for row, length in enumerate((7, 4, 2)):
            text = torch.cat([src[row, 1:length], tgt[row, 1:]])
            whole = model(
                torch.tensor([[BOS_ID, text[0], EOS_ID]]), torch.cat([torch.tensor([BOS_ID]), text[1:]])[None]
            )
            assert_close(whole[0, -6:], logits[row], **CLOSE)
        memory = model.encode(src).select(torch.tensor([2, 0, 1]))
        steps, cache = [], None
        for position in range(6):
            output = model.decode(tgt[[2, 0, 1], position : position + 1], memory, cache)
            steps.append(output.logits)
            cache = output.cache
        assert_close(torch.cat(steps, dim=1), logits[[2, 0, 1]], **CLOSE)


@pytest.mark.parametrize("block", ["layer-norm", "rms-norm"])
def test_the_epsilon_of_norms_is_an_option(block):
    for eps in (0.0, 0.05):
        model = build(Transformer, {"norm_eps": eps, "norm_block": block, "embedding_norm": True})
        found = {(type(each), each.eps) for each in model.modules() if hasattr(each, "normalized_shape")}
        usual = {torch.nn.LayerNorm: 1e-5, torch.nn.RMSNorm: 1e-6}
        assert found == {(kind, eps or usual[kind]) for kind, _ in found}


def recorded_keys(model: DecoderOnly, src: torch.Tensor) -> list[torch.Tensor]:
    """The keys (B, H, S, K) of each layer."""
    keys: list[torch.Tensor] = []
    with hooks({layer.self_attention.hook_k.name: keys.append for layer in model.layers}):
        model.encode(src)
    return keys


# --- presets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "kind"), [("transformer", Transformer), ("decoder-only", DecoderOnly), ("encoder-only", EncoderOnly)]
)
def test_initial_loss_is_near_ln_vocab_and_training_lowers_it(tiny, family, kind):
    for options in options_of(kind) if kind is Transformer else (OPTIONS[0], OPTIONS[6], OPTIONS[11]):
        changes = {f"model.{name}": value for name, value in options.items()} | {"training.evaluate_every": 8}
        preset = tiny.with_changes({"model.family": family} | changes)
        task = build_task(preset.task)
        assert parameters_of(preset.model, task) == count_parameters(
            build_model(preset.model, task, torch.Generator().manual_seed(0))
        )
        losses = [event.evaluation.loss for event in train(new_state(preset)) if hasattr(event, "evaluation")]
        assert abs(losses[0] - math.log(13)) < 1.0
        assert losses[-1] < losses[0] - 0.1
