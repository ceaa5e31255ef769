"""Shape trace: the name and shape of every tensor in the forward pass of a batch, in order."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from core.config import Preset
from core.models import outline_model
from core.models.attention import AdditiveAttention, MultiHeadAttention
from core.models.hooks import hook_names, hooks
from core.models.kernels import Dropout
from core.models.positions import RelativeEncoding
from core.models.seq2seq import Block
from core.storage.errors import UnavailableError
from core.tasks import Batch, Task, build_task
from core.text.vocab import EOS_ID

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorTrace:
    """The output of a module, the tensor at a hook point, or an input or output of the model.

    Attributes:
        name: of the module, as in the names of its weights, or of the hook point.
        kind: class of the module, "HookPoint", "ids" or "scores".
        shapes: "" for the tensor itself; for attention also "weights", (B, H, Tq, Tk).
        parameters: of the module, those of its submodules included.
        depth: number of modules that contain it.
        calls: uses per batch; a recurrent decoder's modules are used once per step.
        block: of attention, the block that its heads belong to.
        layer: of attention, numbered from 1.
    """

    name: str
    kind: str
    shapes: dict[str, Shape]
    parameters: int = 0
    depth: int = 0
    calls: int = 1
    block: Block | None = None
    layer: int | None = None


def trace_shapes(preset: Preset, *, pairs: Path | None = None) -> list[TensorTrace]:
    """Run a training batch through the preset's model on the meta device, and record the shape of every tensor.

    The batch has the shape of a real one. Meta tensors have a shape but no data, so this takes no time.

    Args:
        preset: of the model, its task and its batch size.
        pairs: the file of the task's own pairs, if it has any.
    """
    task = build_task(preset.task, pairs=pairs)
    batch = _batch(task, preset.sequences_per_batch)
    model = outline_model(preset.model, task).eval()
    recorder = _Recorder()
    for name, module in model.named_modules():
        if name and not isinstance(module, Dropout | nn.Identity | nn.ModuleList | RelativeEncoding):
            module.register_forward_hook(partial(recorder.record_module, name))  # safe: nothing else uses this model
    src, tgt_in = batch.src.to("meta"), batch.tgt_in.to("meta")
    with hooks({name: partial(recorder.record_point, name) for name in hook_names(model)}):
        logits = model(src, tgt_in)
    inputs = [TensorTrace(name, "ids", {"": tuple(ids.shape)}) for name, ids in (("src", src), ("tgt_in", tgt_in))]
    return [*inputs, *recorder.distinct(), TensorTrace("logits", "scores", {"": tuple(logits.shape)})]


def _batch(task: Task, count: int) -> Batch:
    """Return a training batch; for a task without data, a batch with the shape of its first example on both sides."""
    try:
        return task.sample(count, split="train", generator=torch.Generator().manual_seed(0))
    except UnavailableError:
        ids = torch.full((count, len(task.tokenize(task.examples[0])) + 2), EOS_ID)
        return Batch(ids, ids)


class _Recorder:
    """Records the tensors of one forward pass in order."""

    def __init__(self) -> None:
        self.traces: list[TensorTrace] = []
        self._patterns: dict[str, Shape] = {}  # the latest of each attention module

    def record_point(self, name: str, tensor: torch.Tensor) -> None:
        """Record the tensor at a hook point."""
        shape = tuple(tensor.shape)
        self.traces.append(TensorTrace(name, "HookPoint", {"": shape}, depth=name.count(".")))
        if name.endswith(".hook_pattern"):
            self._patterns[name.removesuffix(".hook_pattern")] = shape

    def record_module(self, name: str, module: nn.Module, _: object, output: object) -> None:
        """Record the output of a module, the first of several."""
        tensor = output[0] if isinstance(output, tuple) else output
        if not isinstance(tensor, torch.Tensor):
            return
        shapes = {"": tuple(tensor.shape)}
        if name in self._patterns:
            shapes["weights"] = self._patterns[name]
        parameters = sum(each.numel() for each in module.parameters())
        block, layer = _block_and_layer(name, module)
        kind, depth = type(module).__name__, name.count(".")
        self.traces.append(TensorTrace(name, kind, shapes, parameters, depth, block=block, layer=layer))

    def distinct(self) -> list[TensorTrace]:
        """Return each tensor of the same name and shape once, at its first use, with the number of uses."""
        keys = [(trace.name, tuple(trace.shapes.values())) for trace in self.traces]
        counts = Counter(keys)
        first = dict(zip(reversed(keys), reversed(self.traces), strict=True))
        return [replace(first[key], calls=counts[key]) for key in dict.fromkeys(keys)]


def _block_and_layer(name: str, module: nn.Module) -> tuple[Block | None, int | None]:
    """Return the block and layer of an attention module, or (None, None) for other modules."""
    if not isinstance(module, MultiHeadAttention | AdditiveAttention):
        return None, None
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    layer = numbers[0] + 1 if numbers else 1
    if name.startswith("encoder"):
        return "encoder", layer
    return ("decoder" if name.endswith("self_attention") else "cross"), layer
