"""Windowed attention is full attention under a mask; linear attention equals its quadratic form."""

import pytest
import torch
from torch.testing import assert_close

from core.config import ConfigError
from core.models import AttentionRecorder
from core.models.attention import MultiHeadAttention
from core.models.hooks import HookPoint, hooks, name_hook_points
from core.models.linear_attention import LinearAttention
from core.models.transformer import Transformer, causal_mask, window_mask
from core.teaching.doctor import examine_preset
from tests.support.scripted_models import make_model, random_sequences

D, H = 16, 4
WITHIN = {"atol": 1e-5, "rtol": 0}
SIZES = {"d_model": D, "num_heads": H, "d_ff": 32, "max_seq_len": 16}


def attention_of(kind: type[MultiHeadAttention]) -> MultiHeadAttention:
    attention = kind(D, H)
    name_hook_points(attention)
    return attention


def keys_mask(lengths: list[int]) -> torch.Tensor:
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])[:, None, None]


# --- windowed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "past", "window"), [(1, 0, 2), (1, 2, 2), (1, 5, 2), (4, 0, 1), (4, 3, 2), (6, 0, 9)]
)
def test_a_causal_window_shows_each_token_so_many_before_it(length, past, window):
    mask = causal_mask(length, past, window=window)
    expected = [[0 <= i + past - j <= window for j in range(past + length)] for i in range(length)]
    assert (torch.ones(length, past + length) if mask is None else mask).tolist() == expected
    assert (mask is None) == (length == 1 and past <= window)


@pytest.mark.parametrize(("length", "window"), [(1, 1), (5, 1), (7, 3), (4, 9)])
def test_a_window_shows_each_token_so_many_on_either_side(length, window):
    expected = [[abs(i - j) <= window for j in range(length)] for i in range(length)]
    assert window_mask(length, window).tolist() == expected
    assert window_mask(length, 0) is None


@pytest.mark.parametrize("need_weights", [False, True])
def test_windowed_attention_is_full_attention_under_a_mask(need_weights):
    sizes = SIZES | {"num_encoder_layers": 1, "num_decoder_layers": 1}
    windowed = make_model(Transformer, **sizes, attention="window", attention_window=2).eval()
    full = make_model(Transformer, **sizes).eval()
    full.load_state_dict(windowed.state_dict())
    src, tgt_in = random_sequences([9, 5]), random_sequences([7, 7])

    def within(mask: torch.Tensor) -> torch.Tensor:
        queries, keys = torch.arange(7 if mask.shape[-2] == 7 else 9)[:, None], torch.arange(mask.shape[-1])
        return mask & ((queries - keys).abs() <= 2)

    encoder, decoder = full.encoder_layers[0].self_attention, full.decoder_layers[0].self_attention
    windows = hooks({each.hook_mask.name: within for each in (encoder, decoder)})
    with windows, AttentionRecorder(full, enabled=need_weights) as recorder:
        expected = full(src, tgt_in)
        maps = recorder.take()
    with AttentionRecorder(windowed, enabled=need_weights) as recorder:
        assert_close(windowed(src, tgt_in), expected, atol=0, rtol=0)
        if need_weights:
            ours = recorder.take()
            assert_close(
                [ours.encoder, ours.decoder, ours.cross], [maps.encoder, maps.decoder, maps.cross], atol=0, rtol=0
            )
            assert (ours.encoder.triu(3) == 0).all()
            assert (ours.encoder.tril(-3) == 0).all()
            assert (ours.decoder.tril(-3) == 0).all()
            assert (ours.decoder.diagonal(-2, -2, -1) > 0).all()


# --- linear ---------------------------------------------------------------------------------------------------


def quadratic(
    attention: LinearAttention, x: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and output by the definition, one head, one query at a time."""
    query, key, value = (w(x).unflatten(-1, (H, -1)) for w in (attention.w_q, attention.w_k, attention.w_v))
    query, key = (torch.where(each > 0, each + 1, each.exp()) for each in (query, key))
    visible = torch.ones(1, dtype=torch.bool) if mask is None else mask
    visible = visible.expand(len(x), 1, x.shape[1], x.shape[1])
    weights, heads = [], []
    for row in range(len(x)):
        for head in range(H):
            for position in range(x.shape[1]):
                scores = key[row, :, head] @ query[row, position, head]
                scores = scores * visible[row, 0, position]
                weights.append(scores / scores.sum())
                heads.append(weights[-1] @ value[row, :, head])
    size = (len(x), H, x.shape[1])
    heads = torch.stack(heads).unflatten(0, size).transpose(1, 2).flatten(2)  # (B, T, D)
    return torch.stack(weights).unflatten(0, size), attention.w_o(heads)


MASKS = {"none": None, "padding": keys_mask([6, 4]), "causal": causal_mask(6)}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_linear_attention_equals_its_quadratic_form_in_outputs_weights_and_gradients(mask):
    attention, x = attention_of(LinearAttention), torch.randn(2, 6, D, requires_grad=True)
    patterns: list[torch.Tensor] = []
    weights, expected = quadratic(attention, x, mask)
    linear = attention(x, attention.keys_values(x), mask)
    with hooks({"hook_pattern": patterns.append}):
        with_weights = attention(x, attention.keys_values(x), mask)
    assert_close(linear, expected, **WITHIN)
    assert_close(with_weights, expected, **WITHIN)
    assert_close(patterns[0], weights, **WITHIN)
    assert_close(patterns[0].sum(dim=-1), torch.ones(2, H, 6))
    factors = torch.randn_like(expected)
    gradients = [
        torch.autograd.grad((output * factors).sum(), [x, *attention.parameters()]) for output in (linear, expected)
    ]
    assert_close(*gradients, atol=1e-5, rtol=1e-4)


class Unreached(HookPoint):
    """A hook point that no tensor may pass."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        pytest.fail(f"a matrix {tuple(x.shape)} was computed")


def test_without_hooks_no_matrix_of_queries_by_keys_is_computed():
    attention, x = attention_of(LinearAttention), torch.randn(1, 100, D)
    attention.hook_attn_scores = Unreached()
    attention(x, attention.keys_values(x))
    attention(x, attention.keys_values(x), causal_mask(100))


def test_linear_attention_to_nothing_gives_zeros_and_finite_gradients():
    attention, x = attention_of(LinearAttention), torch.randn(2, 3, D, requires_grad=True)
    z: list[torch.Tensor] = []
    with hooks({"hook_z": z.append}):
        attention(x, attention.keys_values(x), keys_mask([3, 0])).sum().backward()
    assert (z[0][1] == 0).all()
    assert x.grad.isfinite().all()


# --- presets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "window"}, "model.attention_window=0 must be at least 1 with model.attention='window'"),
        ({"attention_window": 3}, "model.attention_window=3 must be 0 with model.attention='full'; only 'window'"),
        (
            {"attention": "linear", "attention_window": 3},
            "model.attention_window=3 must be 0 with model.attention='linear'; only 'window'",
        ),
        ({"attention": "linear", "positions": "alibi"}, "model.attention='linear' has no scores that model.positions="),
        ({"attention": "linear", "positions": "rope"}, "model.attention='linear' has no scores that model.positions="),
        ({"family": "decoder-only", "attention": "linear"}, "model.attention is not a known key"),
    ],
    ids=str,
)
def test_combinations_without_meaning_are_refused(tiny, changes, message):
    with pytest.raises(ConfigError) as caught:
        tiny.with_changes({f"model.{field}": value for field, value in changes.items()})
    assert message in str(caught.value)


def test_bugs_of_softmax_attention_are_refused(tiny):
    preset = tiny.with_changes({"model.attention": "linear"})
    with pytest.raises(ConfigError, match=r"bug='no-score-scaling' needs model.attention='full', not 'linear'"):
        preset.with_bug("no-score-scaling")


@pytest.mark.parametrize("changes", [{"attention": "window", "attention_window": 2}, {"attention": "linear"}], ids=str)
def test_the_doctor_finds_nothing_wrong(tiny, changes):
    preset = tiny.with_changes({f"model.{field}": value for field, value in changes.items()})
    report = examine_preset(preset)
    attention = ("causal leak", "PAD influence", "attention rows", "score scaling", "reported attention")
    lights = {finding.check: finding.light for finding in report.findings}
    assert {name: lights[name] for name in attention} == dict.fromkeys(attention, "green")
