"""Decoding token by token with two graphs computes what the model computes for the whole target at once."""

import pytest
import torch
from torch.testing import assert_close

from core.graphs import start_graph, token_graph
from core.graphs.graph import weights_of
from core.models import build_model, forward_with_attention
from core.storage.errors import InputError
from core.tasks import build_task


@pytest.mark.parametrize(
    "changes",
    [
        {
            "model.norm": "pre",
            "model.positions": "rope",
            "model.attention": "window",
            "model.attention_window": 2,
        },
        {"model.family": "decoder-only", "model.num_layers": 2, "model.positions": "alibi"},
    ],
    ids=str,
)
def test_steps_with_the_cache_equal_one_call(tiny, changes):
    preset = tiny.with_changes(changes)
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).eval()
    start, token = start_graph(model), token_graph(model)
    given = weights_of(model) | {"head_gains": torch.ones(len(model.heads))}
    for rows, source, target in ((1, 3, 3), (4, 9, 6)):  # fewer would be a source without a token
        src, tgt_in = (torch.randint(3, 13, (rows, width)) for width in (source, target))
        src[0, source // 2 + 1 :] = 0  # PAD behind the first
        with torch.no_grad():
            logits, maps = forward_with_attention(model, src, tgt_in)
        read = start.run(given | {"src": src})
        if maps.cross is not None:
            assert_close(read["encoder"], maps.encoder)
        for step in range(target):
            said = token.run(given | read | {"token": tgt_in[:, step : step + 1]})
            read |= {name.removeprefix("new."): each for name, each in said.items() if name.startswith("new.")}
            assert_close(said["logits"][:, 0], logits[:, step], atol=1e-5, rtol=0)
            own = said["decoder"][..., 0, :]
            assert_close(own, maps.decoder[..., step, : own.shape[-1]], atol=1e-5, rtol=0)
            if maps.cross is not None:
                assert_close(said["cross"][..., 0, :], maps.cross[..., step, :], atol=1e-5, rtol=0)


def test_an_encoder_only_model_has_no_steps(tiny):
    preset = tiny.with_changes({"model.family": "encoder-only", "model.num_layers": 1})
    model = build_model(preset.model, build_task(preset.task), torch.Generator())
    with pytest.raises(InputError, match="an encoder-only model answers in one pass"):
        token_graph(model)
