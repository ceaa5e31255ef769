"""The graph with switches computes what the model computes without its positions or its masks."""

import pytest
import torch
from torch.testing import assert_close

from core.graphs import removal_graph
from core.graphs.graph import weights_of
from core.models import build_model, forward_with_attention
from core.models.hooks import hook_names, hooks
from core.models.seq2seq import BLOCKS
from core.tasks import build_task


@pytest.fixture(scope="module")
def model(tiny):
    return build_model(tiny.model, build_task(tiny.task), torch.Generator().manual_seed(0)).eval()


@pytest.fixture(scope="module")
def graph(model):
    return removal_graph(model)


@pytest.mark.parametrize(
    ("positions", "opened"), [(1.0, ()), (0.0, ()), (1.0, ("decoder",)), (0.0, ("encoder", "cross"))]
)
def test_parts_are_switched_off(model, graph, positions, opened):
    src, tgt_in = torch.randint(3, 13, (2, 9)), torch.randint(3, 13, (2, 4))
    src[0, 6:] = 0  # PAD
    without = {} if positions else {n: torch.zeros_like for n in hook_names(model) if n.endswith(".hook_pos_embed")}
    masks = {each.hook_mask.name: torch.ones_like for (block, _), each in model.attention.items() if block in opened}
    with torch.no_grad(), hooks(without | masks):
        logits, maps = forward_with_attention(model, src, tgt_in)
    switches = {f"open.{block}": torch.tensor(block in opened) for block in BLOCKS}
    given = {"positions": torch.tensor(positions), "src": src, "tgt_in": tgt_in}
    found = graph.run(weights_of(model) | switches | given)
    assert_close(found["logits"], logits, atol=1e-5, rtol=0)
    for block in BLOCKS:
        assert_close(found[block], getattr(maps, block), atol=1e-5, rtol=0)
