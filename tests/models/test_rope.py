"""RoPE and RMSNorm: as in their papers and in Hugging Face's models, and without a bug that the doctor would name."""

import pytest
import torch
from torch.testing import assert_close

from core import lab
from core.models.attention import MultiHeadAttention
from core.models.hooks import hooks, name_hook_points
from core.models.kernels import matmul_shared
from core.models.positions import ROPE_BASE, RelativePositions, Rotation, rotary_inv_freq
from core.models.transformer import Transformer
from core.teaching.doctor import examine_preset
from core.text.vocab import BOS_ID
from core.training.loop import Event, StepEvent
from tests.support.scripted_models import make_model

K = 8
LLAMA = {"norm": "pre", "norm_block": "rms-norm", "positions": "rope", "activation": "silu"}


def rope_at(position_ids: torch.Tensor) -> RelativePositions:
    return RelativePositions(rope=Rotation.at(position_ids[None], rotary_inv_freq(K, ROPE_BASE)))


def scores(attention: MultiHeadAttention, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    recorded: list[torch.Tensor] = []
    name_hook_points(attention)
    with hooks({attention.hook_attn_scores.name: recorded.append}):
        attention(x, attention.keys_values(x, rope_at(position_ids)), None, rope_at(position_ids))
    return recorded[0]


def test_scores_depend_on_distances_only():
    attention, x = MultiHeadAttention(2 * K, 2).eval(), torch.randn(2, 5, 2 * K)
    ids = torch.arange(5.0)
    here = scores(attention, x, ids)
    assert_close(scores(attention, x, ids + 31), here, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(scores(attention, x, 2 * ids), here, atol=1e-3)


def test_values_are_not_rotated():
    attention, x = MultiHeadAttention(2 * K, 2).eval(), torch.randn(2, 5, 2 * K)
    _, plain = attention.keys_values(x)
    _, value = attention.keys_values(x, rope_at(torch.arange(5.0)))
    assert_close(value, plain, atol=0, rtol=0)


def test_a_score_is_that_of_the_paper():
    """Eq. 16 of Su et al. 2021: the real part of q k* exp(i (m - n) θ), summed over the pairs of dimensions."""
    query, key = torch.randn(2, 1, 1, 1, K, dtype=torch.float64)
    frequency = 10_000.0 ** (-2 * torch.arange(K // 2, dtype=torch.float64) / K)
    for m, n in ((0, 0), (3, 1), (2, 11)):
        turned = [rope_at(torch.tensor([float(at)])).rope.apply(each) for at, each in ((m, query), (n, key))]
        q, k = (torch.view_as_complex(each.reshape(K // 2, 2)) for each in (query, key))
        expected = (q * k.conj() * torch.exp(1j * (m - n) * frequency)).sum().real
        assert matmul_shared(turned[0], turned[1].mT).item() == pytest.approx(expected.item(), abs=1e-5)


def test_it_rotates_as_gpt_j_does():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    x, ids = torch.randn(2, 7, 3, K), torch.arange(7)
    sine, cosine = gptj.create_sinusoidal_positions(7, K).chunk(2, dim=-1)
    theirs = gptj.apply_rotary_pos_emb(x, sine[None], cosine[None])  # (B, T, H, K)
    assert_close(rope_at(ids).rope.apply(x.transpose(1, 2)).transpose(1, 2), theirs, atol=1e-5, rtol=1e-5)


def test_rms_norm_divides_by_the_root_mean_square():
    """Eq. 4 of Zhang and Sennrich 2019."""
    model = make_model(Transformer, norm_block="rms-norm")
    norm, x = model.encoder_layers[0].norm_attention, torch.randn(2, 5, model.config.d_model)
    assert_close(norm(x), x / x.square().mean(dim=-1, keepdim=True).sqrt(), atol=1e-4, rtol=1e-4)
    assert not any("norm" in name and name.endswith("bias") for name, _ in model.named_parameters())


@pytest.mark.parametrize(("positions", "is_seen"), [("rope", True), ("none", False)])
def test_the_order_of_the_source_is_seen(positions: str, is_seen: bool):
    model = make_model(Transformer, **LLAMA | {"positions": positions}).double().eval()
    states = model.encode(torch.tensor([[BOS_ID, 4, 5, 6, 7, 2], [BOS_ID, 6, 5, 7, 4, 2]])).states
    assert torch.allclose(states[0, 2], states[1, 2], atol=1e-9) is not is_seen  # of the token 5


def test_a_preset_with_the_options_of_llama_learns_and_the_doctor_finds_no_bug(tiny, tmp_path):
    changed = tiny.with_changes({f"model.{field}": value for field, value in LLAMA.items()} | {"training.steps": 60})
    events: list[Event] = []
    lab.train(changed, root=tmp_path, name="llama", on_event=events.append)
    losses = [event.loss for event in events if isinstance(event, StepEvent)]
    assert losses[-1] < 0.8 * losses[0]
    assert [each.sentence for each in examine_preset(changed).findings if each.light == "red"] == []
