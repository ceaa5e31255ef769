"""An exported graph gives the model's logits at every size, not only at the traced one."""

import pytest
import torch
from torch.testing import assert_close

from core.models import build_model
from core.runs.onnx_export import exported_program
from core.tasks import build_task


@pytest.mark.parametrize(
    "changes",
    [
        {"model.positions": "vo-rope", "model.position_stretch": 2.0},
        {"model.family": "decoder-only", "model.num_layers": 1},
        {"model.positions": "rope", "model.position_period": 5, "model.attention_scale": "log-length"},
        {"model.family": "encoder-only", "model.num_layers": 1},
    ],
    ids=str,
)
def test_an_exported_graph_holds_for_every_size(tiny, changes):
    preset = tiny.with_changes(changes | {"model.max_seq_len": 64})
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).eval()
    graph = exported_program(model, max_seq_len=64).module()
    for rows, source, answer in (
        (1, 2, 2),
        (3, 5, 9),
        (4, 9, 3),
        (2, 20, 31),
    ):  # on a CPU few keys have a way of their own
        src, tgt_in = (torch.randint(3, 13, (rows, width)) for width in (source, answer))
        src[0, source // 2 + 1 :] = 0  # PAD behind the first
        with torch.no_grad():
            assert_close(graph(src, tgt_in), model(src, tgt_in), atol=1e-5, rtol=0)
