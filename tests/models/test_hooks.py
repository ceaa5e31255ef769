"""Hook points: every named tensor can be read or replaced, by the current call only."""

import threading

import pytest
import torch
from torch.testing import assert_close

from core.models import hooks as module
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.hooks import HookPoint, current_step, hook_names, hooks
from core.models.transformer import Transformer
from core.storage.errors import InputError
from tests.support.scripted_models import make_model, random_sequences

SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 24, "max_seq_len": 12}
B, S, T = 2, 6, 4


@pytest.fixture
def model() -> Transformer:
    return make_model(Transformer, **SIZES).eval()


@pytest.fixture
def ids() -> tuple[torch.Tensor, torch.Tensor]:
    return random_sequences([S, S - 2]), random_sequences([T, T])


def recorded(model, src, tgt, *names: str) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    with torch.no_grad(), hooks({name: lambda x, name=name: tensors.__setitem__(name, x) for name in names}):
        model(src, tgt)
    return tensors


def test_points_are_named_by_module_path_and_field_names(model):
    names = hook_names(model)
    assert len(names) == len(set(names))
    points = ("hook_q", "hook_k", "hook_v", "hook_attn_scores", "hook_pattern", "hook_z", "hook_out")
    for point in points:
        assert f"decoder_layers.1.cross_attention.{point}" in names
        assert f"encoder_layers.0.self_attention.{point}" in names
    for point in ("hook_resid_pre", "hook_resid_mid", "hook_resid_post", "feed_forward.hook_post"):
        assert f"encoder_layers.1.{point}" in names
    assert {"src_embedding.hook_embed", "tgt_embedding.hook_pos_embed"} <= set(names)


def test_every_point_is_passed_in_a_forward_pass(ids):
    for kind, options in (
        (Transformer, {"positions": "sinusoidal"}),
        (Transformer, {"positions": "alibi"}),
        (DecoderOnly, {}),
        (EncoderOnly, {}),
    ):
        model = make_model(kind, **SIZES, **options).eval()
        never = set(hook_names(model)) - set(recorded(model, *ids, *hook_names(model)))
        unused = {"hook_bias"} | ({"hook_pos_embed"} if options.get("positions") == "alibi" else set())
        assert {name.rpartition(".")[2] for name in never} == unused
    model = make_model(GRUSeq2Seq, d_embedding=8, d_hidden=12).eval()
    assert {
        name.rpartition(".")[2] for name in set(hook_names(model)) - set(recorded(model, *ids, *hook_names(model)))
    } == {"hook_pos_embed"}


def test_shapes_and_equations_at_the_points(model, ids):
    path = "decoder_layers.1.cross_attention."
    tensors = recorded(model, *ids, *(path + f"hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern", "z")))
    q, k, v, scores, pattern, z = (
        tensors[path + f"hook_{name}"] for name in ("q", "k", "v", "attn_scores", "pattern", "z")
    )
    assert q.shape == z.shape == (B, 2, T, 8)
    assert k.shape == v.shape == (B, 2, S, 8)
    assert_close(scores, q @ k.transpose(-2, -1) / 8**0.5)
    mask = (ids[0] != 0)[:, None, None]
    assert_close(pattern, scores.masked_fill(~mask, -torch.inf).softmax(-1), atol=1e-6, rtol=1e-5)
    assert_close(z, pattern @ v, atol=1e-6, rtol=1e-5)


def test_the_residual_stream_adds_up(model, ids):
    path = "encoder_layers.0."
    names = ("hook_resid_pre", "self_attention.hook_out", "hook_resid_mid", "feed_forward.hook_out", "hook_resid_post")
    pre, attended, mid, fed, post = (
        recorded(model, *ids, *(path + name for name in names))[path + name] for name in names
    )
    layer = model.encoder_layers[0]
    assert_close(mid, layer.norm_attention(pre + attended), atol=1e-6, rtol=1e-5)
    assert_close(post, layer.norm_feed_forward(mid + fed), atol=1e-6, rtol=1e-5)


def test_replacing_a_tensor_changes_what_comes_after_it(model, ids):
    with torch.no_grad():
        plain = model(*ids)
        for name in hook_names(model):
            if name.endswith(("hook_bias", "hook_mask")):
                continue
            with hooks({name: lambda x: x * 2}):
                changed = model(*ids)
            assert not torch.allclose(changed, plain, atol=1e-5), name
        assert torch.equal(model(*ids), plain)


def test_hooks_of_inner_blocks_run_after_those_of_outer_ones():
    point, order = HookPoint(), []
    point.name = "x"
    with hooks({"x": lambda x: order.append("outer") or x + 1}), hooks({"x": lambda x: order.append("inner") or x * 2}):
        assert point(torch.tensor(3.0)) == 8
    assert order == ["outer", "inner"]
    point.permanent = lambda x: x * 10
    with hooks({"x": lambda x: x + 1}):
        assert point(torch.tensor(3.0)) == 31
    assert point(torch.tensor(3.0)) == 30


def test_hooks_end_with_their_block_also_after_an_error(model, ids):
    with pytest.raises(RuntimeError, match="stop"), hooks({"src_embedding.hook_embed": lambda x: _stop()}):
        model(*ids)
    model(*ids)


def test_a_name_that_no_called_model_has_is_refused(model, ids):
    message = r"has a point 'encoder_layers.9.hook_resid_pre'; the nearest name is 'encoder_layers..\.hook_resid_pre'"
    with pytest.raises(InputError, match=message), hooks({"encoder_layers.9.hook_resid_pre": torch.zeros_like}):
        model(*ids)
    other = make_model(GRUSeq2Seq, d_embedding=8, d_hidden=12).eval()
    name = next(each for each in hook_names(other) if each not in hook_names(model))
    with hooks({"encoder_layers.0.hook_resid_pre": torch.zeros_like, name: torch.zeros_like}):
        with hooks({"encoder_layers.0.hook_resid_post": torch.zeros_like}):
            model(*ids)
        other(random_sequences([5]), random_sequences([4]))
    with hooks({"anything": torch.zeros_like}):
        pass  # nothing was called


def _stop() -> None:
    raise RuntimeError("stop")


def test_hooks_belong_to_their_thread(model, ids):
    seen: list[torch.Tensor] = []
    with hooks({"encoder_layers.0.hook_resid_pre": seen.append}):
        thread = threading.Thread(target=lambda: model(*ids))
        thread.start()
        thread.join()
        assert seen == []
        model(*ids)
    assert len(seen) == 1


def test_hooks_are_told_the_decoding_step():
    src, tgt = random_sequences([5]), random_sequences([4])
    for kind, sizes in ((Transformer, SIZES), (DecoderOnly, SIZES), (GRUSeq2Seq, {"d_embedding": 8, "d_hidden": 12})):
        model, steps = make_model(kind, **sizes).eval(), []
        name = list(model.attention.values())[-1].hook_pattern.name
        memory, cache = model.encode(src), None
        with hooks({name: lambda _, steps=steps: steps.append(current_step())}):
            for token in tgt.split(1, dim=1):
                cache = model.decode(token, memory, cache).cache
        assert steps == [0, 1, 2, 3]


@pytest.mark.parametrize("when", ["entering", "in the block"])
def test_ctrl_c_leaves_no_hook_active_although_the_prompt_keeps_the_traceback(monkeypatch, when):
    class Pressed:
        """The variable of the hooks; Ctrl+C comes when it has been set the first time."""

        get = staticmethod(module._hooks.get)
        is_pressed = False

        def set(self, value: object) -> None:
            context.set(value)
            if when == "entering" and not self.is_pressed:
                self.is_pressed = True
                raise KeyboardInterrupt

    def block() -> None:
        with hooks({"a": torch.zeros_like}):
            raise KeyboardInterrupt

    context = module._hooks
    monkeypatch.setattr(module, "_hooks", Pressed())
    with pytest.raises(KeyboardInterrupt) as kept:
        block()
    assert kept.value.__traceback__ is not None
    assert not module.hooks_are_active()
