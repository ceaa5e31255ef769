"""The graph of a forward pass computes what the model computes, at every size, with every head on or off."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from core.graphs import forward_graph
from core.graphs.graph import weights_of
from core.interpret.interventions import Interventions
from core.models import build_model, forward_with_attention
from core.models.hooks import hook_names, hooks
from core.models.seq2seq import BLOCKS
from core.storage.errors import InputError
from core.tasks import build_task

SIZES = ((1, 2, 2), (3, 5, 9), (4, 9, 3), (2, 20, 31))  # rows, source, target; a CPU treats few keys in its own way


@pytest.mark.parametrize(
    "changes",
    [
        {
            "model.positions": "rope",
            "model.position_period": 5,
            "model.attention_scale": "log-length",
            "model.attention_temperature": 0.5,
            "model.attention": "window",
            "model.attention_window": 2,
        },
        {"model.attention": "linear", "model.positions": "vo-rope", "model.position_stretch": 2.0},
        {"model.family": "decoder-only", "model.num_layers": 1, "model.positions": "alibi"},
        {"model.family": "encoder-only", "model.num_layers": 1, "model.positions": "vo-rope"},
    ],
    ids=str,
)
def test_logits_and_the_attention_of_every_head_are_those_of_the_model(tiny, changes):
    preset = tiny.with_changes(changes | {"model.max_seq_len": 64})
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).eval()
    graph = forward_graph(model)
    other = {name: weight + 0.05 * torch.randn_like(weight) for name, weight in weights_of(model).items()}
    model.load_state_dict(other, strict=False)  # the graph belongs to the architecture, not to these weights
    head = model.heads[-1]
    one_off = torch.tensor([0.0 if each == head else 1.0 for each in model.heads])
    cases = ((torch.ones(len(model.heads)), Interventions()), (one_off, Interventions(ablated=(head,))))
    for rows, source, target in SIZES:
        src, tgt_in = (torch.randint(3, 13, (rows, width)) for width in (source, target))
        src[0, source // 2 + 1 :] = 0  # PAD behind the first
        for gains, interventions in cases:
            with torch.no_grad(), interventions.applied_to(model):
                logits, maps = forward_with_attention(model, src, tgt_in)
            found = graph.run(other | {"head_gains": gains, "src": src, "tgt_in": tgt_in})
            assert_close(found.pop("logits"), logits, atol=1e-5, rtol=0)
            expected = {block: getattr(maps, block) for block in BLOCKS}
            assert found.keys() == {block for block, each in expected.items() if each is not None}
            for block, each in found.items():
                assert_close(each, expected[block], atol=1e-5, rtol=0)


def test_hook_points_are_outputs_on_request(tiny):
    model = build_model(tiny.model, build_task(tiny.task), torch.Generator().manual_seed(0)).eval()
    graph = forward_graph(model, hook_names(model))
    src, tgt_in = torch.randint(3, 13, (2, 8)), torch.randint(3, 13, (2, 6))
    reached = {}
    with torch.no_grad(), hooks({name: partial(reached.__setitem__, name) for name in hook_names(model)}):
        forward_with_attention(model, src, tgt_in)
    found = graph.run(weights_of(model) | {"head_gains": torch.ones(len(model.heads)), "src": src, "tgt_in": tgt_in})
    assert reached.keys() == found.keys() - {"logits", *BLOCKS}
    for name, tensor in reached.items():
        assert_close(found[name], tensor, atol=1e-5, rtol=0)


def test_a_recurrent_model_is_refused(tiny_gru):
    with pytest.raises(InputError, match="a recurrent model cannot be written as a graph for every length"):
        forward_graph(build_model(tiny_gru.model, build_task(tiny_gru.task), torch.Generator()))
