"""The forward pass of a Transformer without its positions or its masks, as the lessons on attention show it."""

from functools import partial

import torch
from torch import nn

from core.graphs.forward import named_maps
from core.graphs.graph import Graph, check_can_be_traced, flat_names, trace, weights_of
from core.models import Seq2Seq, forward_with_attention
from core.models.hooks import Hook, hook_names, hooks
from core.models.seq2seq import BLOCKS
from core.text.vocab import BOS_ID

POSITIONS = "positions"


@torch.no_grad()
def removal_graph(model: Seq2Seq) -> Graph:
    """Trace a model in evaluation mode with switches for its parts.

    Inputs: the parameters by name; ``positions`` () float, a factor of the positional encodings; ``open.BLOCK`` () bool
    for each attention block, whether every query of it attends to every key; ``src`` (B, S) and ``tgt_in`` (B, T)
    int64. Outputs: ``logits`` and the attention of the blocks, as in ``forward_graph``.

    Raises:
        InputError: the model is recurrent.
    """
    check_can_be_traced(model)
    forward = _Forward(model.eval())
    ids = (torch.full((3, 7), BOS_ID), torch.full((3, 5), BOS_ID))
    switches = {block: torch.tensor(False) for block in forward.blocks}
    example = (torch.tensor(1.0), switches, *ids)
    batch = torch.export.Dim("batch", min=1, max=65_536)
    source, target = (torch.export.Dim(name, min=2, max=model.max_seq_len) for name in ("source", "target"))
    program = trace(forward, example, (None, dict.fromkeys(switches), {0: batch, 1: source}, {0: batch, 1: target}))
    inputs = (*weights_of(model), POSITIONS, *(f"open.{block}" for block in switches), "src", "tgt_in")
    return Graph(program, inputs, tuple(flat_names("", forward(*example))))


class _Forward(nn.Module):
    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model
        self.blocks = [block for block in BLOCKS if any(head.block == block for head in model.heads)]

    def forward(
        self, positions: torch.Tensor, is_open: dict[str, torch.Tensor], src: torch.Tensor, tgt_in: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        encodings = [name for name in hook_names(self.model) if name.endswith(".hook_pos_embed")]
        scaled: dict[str, Hook] = dict.fromkeys(encodings, partial(torch.mul, positions))
        opened: dict[str, Hook] = {
            module.hook_mask.name: partial(torch.logical_or, is_open[block])
            for (block, _), module in self.model.attention.items()
        }
        with hooks(scaled | opened):
            logits, maps = forward_with_attention(self.model, src, tgt_in)
        return {"logits": logits} | named_maps(maps)
