"""Shape trace: the name, shape, axes and dtype of every tensor in the forward pass of a batch, in order."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from core.config import Preset
from core.config.sections import GRUConfig
from core.models import outline_model
from core.models.additive_attention import SingleHeadAttention
from core.models.attention import MultiHeadAttention
from core.models.hooks import hook_names, hooks
from core.models.kernels import Dropout
from core.models.positions import RelativeEncoding
from core.models.seq2seq import Block
from core.storage.errors import UnavailableError
from core.tasks import Batch, Task, build_task
from core.text.vocab import EOS_ID

Shape = tuple[int, ...]
Axes = tuple[str, ...]
_BY_QUERY_AND_KEY = ("hook_attn_scores", "hook_mask", "hook_bias", "hook_pattern")
_OF_KEYS = ("w_k", "w_v", "w_h", "w_f", "v", "hook_k", "hook_v")
_OF_HEADS = ("hook_q", "hook_k", "hook_v", "hook_z")
_OF_WIDE = ("widen", "gate", "hook_post")


@dataclass(frozen=True)
class TensorTrace:
    """The output of a module, the tensor at a hook point, or an input or output of the model.

    Attributes:
        name: of the module, as in the names of its weights, or of the hook point.
        kind: class of the module, "HookPoint", "ids" or "scores".
        shapes: "" for the tensor itself; for attention also "weights", (B, H, Tq, Tk).
        axes: the name of each axis of a shape, by the same keys: B sequences, S source and T target tokens, Tq queries,
            Tk keys, D width of the states, 2D that of an LSTM's, H heads, K width of a head, F width of the
            feed-forward network, E width of a recurrent model's embeddings, V vocabulary, L layers. Tensors of a
            plugin's modules may have none.
        dtype: such as "float32".
        parameters: of the module, those of its submodules included.
        depth: number of modules that contain it.
        calls: uses per batch; a recurrent decoder's modules are used once per step.
        block: of attention, the block that its heads belong to.
        layer: of attention, numbered from 1.
    """

    name: str
    kind: str
    shapes: dict[str, Shape]
    axes: dict[str, Axes] = field(default_factory=dict)
    dtype: str = ""
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
    src, tgt_in = batch.src.to("meta"), batch.tgt_in.to("meta")
    recorder = _Recorder(_sizes(preset, task, src, tgt_in))
    for name, module in model.named_modules():
        if name and not isinstance(module, Dropout | nn.Identity | nn.ModuleList | RelativeEncoding):
            module.register_forward_hook(partial(recorder.record_module, name))  # safe: nothing else uses this model
    with hooks({name: partial(recorder.record_point, name) for name in hook_names(model)}):
        memory = model.encode(src)
        recorder.tokens = "T"
        logits = model.decode(tgt_in, memory).logits
    inputs = [recorder.trace(name, "ids", ids) for name, ids in (("src", src), ("tgt_in", tgt_in))]
    return [*inputs, *recorder.distinct(), recorder.trace("logits", "scores", logits)]


def named_shape(shape: Sequence[int], axes: Sequence[str]) -> str:
    """Return a shape as ``(B=2, T=5, D=64)``, or ``(2, 5, 64)`` if its axes have no names."""
    if not axes:
        return str(tuple(shape))
    return "(" + ", ".join(f"{axis}={size}" for axis, size in zip(axes, shape, strict=True)) + ")"


def _sizes(preset: Preset, task: Task, src: torch.Tensor, tgt_in: torch.Tensor) -> dict[str, int]:
    """Return the sizes of all axes that do not differ between attention modules."""
    config = preset.model
    fields = {"D": "d_model", "H": "num_heads", "K": "d_k", "F": "d_ff"}
    if isinstance(config, GRUConfig):
        fields = {"D": "d_hidden", "E": "d_embedding", "L": "num_layers"}
    sizes = {axis: getattr(config, name) for axis, name in fields.items() if hasattr(config, name)}
    return sizes | {"B": len(src), "S": src.shape[1], "T": tgt_in.shape[1], "V": len(task.tgt_vocab)}


def _axes(name: str, shape: Shape, tokens: str, sizes: Mapping[str, int]) -> Axes:
    """Return the names of a tensor's axes, of modules and hook points of the lab; () where the sizes are others.

    Args:
        tokens: "S" or "T", what the model reads.
    """
    part, recurrent = name.rpartition(".")[2], "E" in sizes
    is_cross = ".cross_attention." in name or name.startswith("decoder.attention.")
    width = "F" if part in _OF_WIDE else "V" if part in ("output", "logits", "hook_logits") else "D"
    if recurrent and "_embedding" in name:
        width = "E"
    tokens = "S" if name == "src" or (is_cross and part in _OF_KEYS) else tokens
    tokens = "T" if name == "tgt_in" else tokens
    last = ("Tq", "Tk") if part in _BY_QUERY_AND_KEY else (tokens, "K" if part in _OF_HEADS else width)
    if recurrent:
        last = ("Tq", "D") if part == "hook_z" else last
        of_state: Axes = ("L", "B", "D" if shape[-1:] in [(sizes["D"],), (2 * sizes["D"],)] else "N")
        of_three = of_state if part in ("hook_final", "hook_state") else ("B", tokens, width)
        of_three = ("B", "S", "H") if name == "decoder.attention.v" else of_three
    else:
        of_three = ("B", tokens, width)
    of_two = ("B", tokens) if name in ("src", "tgt_in") else ("B", width) if recurrent else last
    axes = {2: of_two, 3: of_three, 4: ("B", "H", *last), 5: ("B", "H", "Tq", "Tk", "D")}.get(len(shape), ())
    pairs = [
        ("2D" if axis == "D" and size == 2 * sizes["D"] else axis, size)
        for axis, size in zip(axes, shape, strict=bool(axes))
    ]
    known = {"Tq": None, "Tk": None, "2D": None, "N": None, "H": 1, **sizes}
    is_known = all(known[axis] in (None, size) or (size == 1 and axis in ("B", "H")) for axis, size in pairs)
    return tuple(axis for axis, _ in pairs) if is_known else ()


def _batch(task: Task, count: int) -> Batch:
    """Return a training batch; for a task without data, a batch with the shape of its first example on both sides."""
    try:
        return task.sample(count, split="train", generator=torch.Generator().manual_seed(0))
    except UnavailableError:
        ids = torch.full((count, len(task.tokenize(task.examples[0])) + 2), EOS_ID)
        return Batch(ids, ids)


class _Recorder:
    """Records the tensors of one forward pass in order."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.traces: list[TensorTrace] = []
        self.tokens = "S"  # read now
        self._sizes = sizes
        self._patterns: dict[str, Shape] = {}  # the latest of each attention module

    def record_point(self, name: str, tensor: torch.Tensor) -> None:
        """Record the tensor at a hook point."""
        self.traces.append(self.trace(name, "HookPoint", tensor))
        if name.endswith(".hook_pattern"):
            self._patterns[name.removesuffix(".hook_pattern")] = tuple(tensor.shape)

    def record_module(self, name: str, module: nn.Module, _: object, output: object) -> None:
        """Record the output of a module, the first of several."""
        tensor = output[0] if isinstance(output, tuple) else output
        if not isinstance(tensor, torch.Tensor):
            return
        trace = self.trace(name, type(module).__name__, tensor)
        if name in self._patterns:
            shape = self._patterns[name]
            trace.shapes["weights"] = shape
            trace.axes["weights"] = _axes(f"{name}.hook_pattern", shape, self.tokens, self._sizes)
        parameters = sum(each.numel() for each in module.parameters())
        block, layer = _block_and_layer(name, module)
        self.traces.append(replace(trace, parameters=parameters, block=block, layer=layer))

    def trace(self, name: str, kind: str, tensor: torch.Tensor) -> TensorTrace:
        """Return the trace of a tensor."""
        shape = tuple(tensor.shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        axes = _axes(name, shape, self.tokens, self._sizes)
        return TensorTrace(name, kind, {"": shape}, {"": axes}, dtype, depth=name.count("."))

    def distinct(self) -> list[TensorTrace]:
        """Return each tensor of the same name and shape once, at its first use, with the number of uses."""
        keys = [(trace.name, tuple(trace.shapes.values())) for trace in self.traces]
        counts = Counter(keys)
        first = dict(zip(reversed(keys), reversed(self.traces), strict=True))
        return [replace(first[key], calls=counts[key]) for key in dict.fromkeys(keys)]


def _block_and_layer(name: str, module: nn.Module) -> tuple[Block | None, int | None]:
    """Return the block and layer of an attention module, or (None, None) for other modules."""
    if not isinstance(module, MultiHeadAttention | SingleHeadAttention):
        return None, None
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    layer = numbers[0] + 1 if numbers else 1
    if name.startswith("encoder"):
        return "encoder", layer
    return ("decoder" if name.endswith("self_attention") else "cross"), layer
