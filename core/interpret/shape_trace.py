"""The way of a batch through a model: every tensor on it by name and shape, in order."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from core.config import Preset
from core.models import outline_model
from core.models.attention import AdditiveAttention, MultiHeadAttention
from core.models.dropout import Dropout
from core.tasks import build_task

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """One module that the batch passes through, or the batch itself.

    Attributes:
        name: of the module, as in the names of its weights.
        kind: its class.
        shapes: of what comes out, by name; of attention also its weights, (B, H, Tq, Tk).
        parameters: of the module, those of modules inside it included.
        depth: how many modules it is inside of.
        calls: how often it is used for a batch; a recurrent decoder's once a step.
        block, layer: of attention, what it is called on the Attention tab, the layer numbered from 1.
    """

    name: str
    kind: str
    shapes: dict[str, Shape]
    parameters: int = 0
    depth: int = 0
    calls: int = 1
    block: str | None = None
    layer: int | None = None


def trace_shapes(preset: Preset, *, pairs: Path | None = None) -> list[Stage]:
    """Send a batch as training draws it through the preset's model, and note what comes out of each module.

    The batch is a real one, its values aside: the tensors have a shape and no content, so it takes no time.

    Args:
        pairs: the file of the task's own pairs, if it has any.
    """
    task = build_task(preset.task, pairs=pairs)
    pairs = task.sample(preset.training.batch_size, split="train", generator=torch.Generator().manual_seed(0))
    model = outline_model(preset.model, task).eval()
    calls: list[tuple[str, nn.Module, dict[str, Shape]]] = []
    for name, module in model.named_modules():
        if name and not isinstance(module, Dropout | nn.Identity | nn.ModuleList):
            module.register_forward_hook(
                lambda module, args, given, name=name: calls.append((name, module, _shapes(module, given)))
            )
    src, tgt_in = pairs.src.to("meta"), pairs.tgt_in.to("meta")
    logits, _ = model(src, tgt_in, need_weights=True)
    counts = Counter((name, tuple(shapes.values())) for name, _, shapes in calls)
    stages = {
        (name, of): _stage(name, module, shapes, counts[name, of])
        for name, module, shapes in calls
        if (of := tuple(shapes.values()))
    }
    first = [Stage("src", "ids", {"": tuple(src.shape)}), Stage("tgt_in", "ids", {"": tuple(tgt_in.shape)})]
    last = Stage("logits", "scores", {"": tuple(logits.shape)})
    return [*first, *stages.values(), last]


def _stage(name: str, module: nn.Module, shapes: dict[str, Shape], calls: int) -> Stage:
    parameters = sum(each.numel() for each in module.parameters())
    block, layer = _place(name, module)
    return Stage(name, type(module).__name__, shapes, parameters, name.count("."), calls, block, layer)


def _place(name: str, module: nn.Module) -> tuple[str | None, int | None]:
    """Return which attention a module is, as the Attention tab calls it, or (None, None)."""
    if not isinstance(module, MultiHeadAttention | AdditiveAttention):
        return None, None
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    block = "encoder" if name.startswith("encoder") else "decoder" if name.endswith("self_attention") else "cross"
    return block, numbers[0] + 1 if numbers else 1


def _shapes(module: nn.Module, given: object) -> dict[str, Shape]:
    """Return the shapes of what a module gave, its output first."""
    outputs = [each for each in (given if isinstance(given, tuple) else (given,)) if isinstance(each, torch.Tensor)]
    named = {"": tuple(outputs[0].shape)}
    if isinstance(module, MultiHeadAttention | AdditiveAttention) and len(outputs) > 1:
        named["weights"] = tuple(outputs[1].shape)
    return named
