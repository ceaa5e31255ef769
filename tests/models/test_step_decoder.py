"""``StepDecoder`` equals ``Transformer.decode``, and is not used where it could not."""

import pytest
import torch
from torch.testing import assert_close

from core import plugins
from core.config.sections import TransformerConfig
from core.models.hooks import hooks
from core.models.step_decoder import ColumnCache, SlotCache, StepDecoder, step_decoder
from core.models.transformer import Transformer
from core.text.vocab import EOS_ID, PAD_ID

SIZES = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_ff": 32, "max_seq_len": 24}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
KINDS = [
    {},
    {"norm": "pre", "activation": "gelu", "positions": "learned"},
    {"tie_embeddings": "all", "final_norm": "always"},
    {"norm": "pre", "norm_block": "rms-norm"},
]


def build(**changes) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**SIZES | changes), 20, 20).eval()
    if model.config.positions == "learned":
        for embedding in (model.src_embedding, model.tgt_embedding):
            torch.nn.init.normal_(embedding.positions)
    return model


def sources() -> torch.Tensor:
    src = torch.randint(4, 20, (5, 7))
    src[:, 0], src[:, -1] = 1, EOS_ID
    src[1, 5:] = PAD_ID
    return src


@pytest.mark.parametrize("use_columns", [False, True])
@pytest.mark.parametrize("changes", KINDS)
@torch.no_grad()
def test_every_step_equals_the_model_with_one_row_per_source(changes, use_columns):
    model, src = build(**changes), sources()
    memory, tgt_in = model.encode(src), torch.randint(4, 20, (5, 20))
    decoder, cache, rows = StepDecoder(model, use_columns=use_columns), None, torch.arange(5)
    for step in range(20):
        output = decoder.decode(tgt_in[:, step : step + 1], memory, cache)
        expected = model(src, tgt_in[:, : step + 1])[:, -1:]
        assert_close(output.logits, expected, **CLOSE)
        cache = output.cache
        if step == 3:
            rows = torch.tensor([4, 1, 2])
            cache, memory, src, tgt_in = cache.select(rows), memory.select(rows), src[rows], tgt_in[rows]


@pytest.mark.parametrize("changes", KINDS)
@torch.no_grad()
def test_beams_that_continue_each_other_equal_the_model(changes):
    model, src = build(**changes), sources()
    memory = model.encode(src)
    decoder, cache = StepDecoder(model, use_columns=False), None
    beams = torch.randint(4, 20, (5, 1))
    for step in range(20):
        output = decoder.decode(beams[:, -1:], memory, cache)
        assert_close(output.logits, model(src, beams)[:, -1:], **CLOSE)
        size = len(src) // len(src.unique(dim=0))
        kept = torch.tensor([0, 2, 4]) if step == 5 else None
        num_sources = len(src) // size
        chosen = torch.arange(num_sources) if kept is None else kept
        parents = chosen[:, None] * size + torch.randint(size, (len(chosen), 3))
        index = parents.flatten()
        cache, memory, src = output.cache.reorder(index, kept), memory.select(index), src[index]
        beams = torch.cat([beams[index], torch.randint(4, 20, (len(index), 1))], dim=1)


@torch.no_grad()
def test_heads_and_beams_decide_on_the_cache():
    model = build()
    memory = model.encode(sources())
    for rows, kind in ((1, ColumnCache), (4, SlotCache)):
        decoder = step_decoder(model, memory, rows)
        assert isinstance(decoder.decode(torch.full((5, 1), 1), memory).cache, kind)


@torch.no_grad()
def test_the_model_decodes_itself_where_a_hook_or_another_block_could_see_the_difference():
    model = build()
    memory = model.encode(sources())
    assert step_decoder(model, memory, 1)
    with hooks({"decoder_layers.0.self_attention.hook_q": lambda x: x}):
        assert step_decoder(model, memory, 1) is None
    with torch.enable_grad():
        assert step_decoder(model, memory, 1) is None
    handle = model.decoder_layers[0].feed_forward.widen.register_forward_hook(lambda *_: None)
    assert step_decoder(model, memory, 1) is None
    handle.remove()
    for module, point in (
        (model.decoder_layers[1], "hook_skip"),
        (model.decoder_layers[1].cross_attention, "hook_mask"),
        (model.output, "hook_logits"),
    ):
        getattr(module, point).permanent = torch.zeros_like
        assert step_decoder(model, memory, 1) is None
        getattr(module, point).permanent = None
    assert step_decoder(model, memory, 1)
    assert step_decoder(model.train(), memory, 1) is None
    for changes in (
        {"positions": "rope"},
        {"attention": "linear"},
        {"attention": "window", "attention_window": 2},
        {"attention_scale": "log-length"},
    ):
        other = build(**changes)
        assert step_decoder(other, other.encode(sources()), 1) is None


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_norm_blocks_of_plugins_get_three_dimensions(own_plugins, norm):
    shapes = []

    @plugins.block("norm", "recording")
    class Recording(torch.nn.Module):
        def __init__(self, config, generator):
            super().__init__()

        def forward(self, x):
            shapes.append(tuple(x.shape))
            return x - x.mean(dim=-1, keepdim=True)

    model, src = build(norm=norm, norm_block="recording"), sources()
    memory, tgt_in = model.encode(src), torch.randint(4, 20, (5, 2))
    shapes.clear()
    decoder, cache = step_decoder(model, memory, 1), None
    for step in range(2):
        output = decoder.decode(tgt_in[:, step : step + 1], memory, cache)
        cache = output.cache
    assert {*shapes} == {(5, 1, 16)}
    assert_close(output.logits, model(src, tgt_in)[:, -1:], **CLOSE)


@torch.no_grad()
def test_it_divides_scores_by_the_temperature():
    model, plain, src = build(attention_temperature=0.5), build(), sources()
    plain.load_state_dict(model.state_dict())
    token = torch.full((5, 1), 1)
    memory = model.encode(src)
    decoder = step_decoder(model, memory, 1)
    logits = decoder.decode(token, memory).logits
    assert_close(logits, model.decode(token, memory).logits, **CLOSE)
    assert (logits - plain.decode(token, memory).logits).abs().max() > 1e-3


@torch.no_grad()
def test_the_next_generation_sees_changed_weights():
    model, src = build(), sources()
    token = torch.full((5, 1), 1)
    for _ in range(2):
        memory = model.encode(src)
        logits = step_decoder(model, memory, 1).decode(token, memory).logits
        assert_close(logits, model.decode(token, memory).logits, **CLOSE)
        for parameter in model.parameters():
            parameter.mul_(1.5)
