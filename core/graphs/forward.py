"""The forward pass as a graph: logits and the attention of every head, with heads that can be switched off."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from core.graphs.graph import Graph, check_can_be_traced, flat_names, trace, weights_of
from core.models import AttentionMaps, Seq2Seq, forward_with_attention
from core.models.hooks import Hook, hooks
from core.models.seq2seq import BLOCKS
from core.text.vocab import BOS_ID

HEAD_GAINS = "head_gains"


@torch.no_grad()
def forward_graph(model: Seq2Seq, points: Sequence[str] = ()) -> Graph:
    """Trace a model in evaluation mode, for any batch size and any lengths up to its ``max_seq_len``.

    Args:
        points: names of hook points whose tensors are outputs too; ``core.models.hooks.hook_names`` lists them.

    Inputs: the parameters by name; ``head_gains`` (N,) float, a factor for the output of each of ``model.heads``, 1 to
    leave it and 0 to remove the head; ``src`` (B, S) int64 with BOS, EOS and PAD; ``tgt_in`` (B, T) int64, BOS first.
    Outputs: ``logits`` (B, T, V) float32; of the blocks that the model has, ``encoder``, ``decoder`` and ``cross``, as
    in ``AttentionMaps``; and the points by their names. A decoder-only model reads source and target in two calls: its
    points are those of the target.

    Raises:
        InputError: the model is recurrent.
    """
    check_can_be_traced(model)
    forward, width = _Forward(model.eval(), points), min(7, model.max_seq_len)
    example = (torch.ones(len(model.heads)), _ids(3, width), _ids(3, max(2, width - 2)))
    batch = torch.export.Dim("batch", min=1, max=65_536)
    source, target = (torch.export.Dim(name, min=2, max=model.max_seq_len) for name in ("source", "target"))
    program = trace(forward, example, (None, {0: batch, 1: source}, {0: batch, 1: target}))
    return Graph(program, (*weights_of(model), HEAD_GAINS, "src", "tgt_in"), tuple(flat_names("", forward(*example))))


def _ids(rows: int, length: int) -> torch.Tensor:
    return torch.full((rows, length), BOS_ID)


class _Forward(nn.Module):
    def __init__(self, model: Seq2Seq, points: Sequence[str] = ()) -> None:
        super().__init__()
        self.model, self.points = model, points

    def forward(self, gains: torch.Tensor, src: torch.Tensor, tgt_in: torch.Tensor) -> dict[str, torch.Tensor]:
        reached: dict[str, torch.Tensor] = {}
        recorders: dict[str, Hook] = {name: partial(_record, reached, name) for name in self.points}
        with hooks(gain_hooks(self.model, gains)), hooks(recorders):
            logits, maps = forward_with_attention(self.model, src, tgt_in)
        return {"logits": logits} | named_maps(maps) | {name: reached[name] for name in self.points if name in reached}


def _record(reached: dict[str, torch.Tensor], name: str, tensor: torch.Tensor) -> None:
    reached[name] = tensor.clone()  # points at one tensor would become one output


def named_maps(maps: AttentionMaps) -> dict[str, torch.Tensor]:
    """Return the maps of the blocks that a model has, by block."""
    found = {block: getattr(maps, block) for block in BLOCKS}
    return {block: each for block, each in found.items() if each is not None}


def gain_hooks(model: Seq2Seq, gains: torch.Tensor) -> dict[str, Hook]:
    """Return hooks that multiply the output of every head by its gain, (N,) float in the order of ``model.heads``."""
    modules = list(model.attention.values())
    of_modules = gains.split([module.num_heads for module in modules])
    return {module.hook_z.name: _Gain(each) for module, each in zip(modules, of_modules, strict=True)}


@dataclass(frozen=True)
class _Gain:
    gains: torch.Tensor  # (H,) float

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """Scale z (B, H, Tq, K) float."""
        return z * self.gains[:, None, None]
