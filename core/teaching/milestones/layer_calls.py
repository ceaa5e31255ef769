"""How an encoder or decoder layer of the reader is built and called, with masks in the convention that it takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.milestones import formulas
from core.teaching.milestones.arguments import (
    Sizes,
    build,
    draw,
    mask_parameters,
    output_of,
    parameters_of,
    required_masks,
)
from core.teaching.milestones.mask_encodings import (
    FOUR,
    KEYS_ONLY,
    THREE,
    TWO,
    MaskConvention,
    MaskShape,
    conventions,
    per_head,
)

BATCH, TARGETS, SOURCES = 2, 5, 7
SIZES = Sizes()
KINDS = ("d_ff", "d_model", "num_heads", "d_k", "expansion", "max_len")
SHAPES = (FOUR, THREE, TWO, per_head(SIZES.num_heads), *KEYS_ONLY)
OF_TARGET = ("tgt", "trg", "target", "self", "look", "causal", "dec", "attn_mask")
OF_SOURCE = ("src", "source", "cross", "memory", "enc", "pad")
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)

Parts = Mapping[str, Callable[[], Any]]


@dataclass
class LayerCall:
    """A layer that was built with the sizes of the checks, and how it is called.

    Attributes:
        module: the layer.
        rebuild: builds another one; a module that keeps its attention weights cannot be copied.
        inputs: names of the parameters for the states, and for the encoder's output if it is a decoder layer.
        self_mask, cross_mask: names of its parameters for masks, "" if it has none.
        given: masks that are passed in every call: those without a default get None.
    """

    module: Any
    rebuild: Callable[[], Any]
    inputs: tuple[str, ...]
    self_mask: str
    cross_mask: str
    given: dict[str, Any]

    @classmethod
    def of(cls, what: Callable[..., Any], parts: Parts, *, is_decoder: bool) -> "LayerCall":
        """Build a layer and read the names of its parameters.

        Raises:
            NotCheckableError: its ``forward`` has too few parameters.
        """

        def rebuild() -> Any:
            return build(what, SIZES, KINDS, parts)

        module = rebuild()
        masks, named = mask_parameters(module), parameters_of(module)
        inputs = tuple(name for name in named if name not in masks)[: 1 + is_decoder]
        if len(inputs) < 1 + is_decoder:
            raise NotCheckableError(
                f"its forward takes {', '.join(named) or 'nothing'}; it needs the states"
                + (" and the encoder's output." if is_decoder else ".")
            )
        of_target = next((name for name in masks if _has(name, OF_TARGET) and not _has(name, OF_SOURCE)), "")
        of_source = next((name for name in masks if _has(name, OF_SOURCE) and name != of_target), "")
        if not is_decoder:
            of_target, of_source = next(iter(masks), ""), ""
        elif not of_target:
            of_target = next((name for name in masks if name != of_source), "")
        return cls(module, rebuild, inputs, of_target, of_source, dict(required_masks(module)))

    def tensors(self) -> list[torch.Tensor]:
        """Return states (B, T, D), and the encoder's output (B, S, D) of a decoder layer."""
        states = draw(BATCH, TARGETS, SIZES.d_model)
        return [states, draw(BATCH, SOURCES, SIZES.d_model, seed=1)][: len(self.inputs)]

    def __call__(self, tensors: list[torch.Tensor], module: Any = None, **masks: torch.Tensor) -> torch.Tensor:
        """Return the output (B, T, D).

        Args:
            tensors: the inputs.
            module: a changed copy of the layer, to call in its place.
            masks: by the names of the parameters.
        """
        called = self.module if module is None else module
        result = called(**dict(zip(self.inputs, tensors, strict=True)), **(self.given | masks))
        shape = tuple(tensors[0].shape)
        return output_of(result, shape, f"states {shape}")

    def changes(self, index: int, position: int, module: Any = None, **masks: torch.Tensor) -> torch.Tensor:
        """Return by how much each position of the output changes, (T,), if one position of an input is replaced.

        Args:
            index: of the input.
            position: in it.
            module, masks: as for a call.
        """
        before, after = self.tensors(), self.tensors()
        after[index][:, position] = draw(BATCH, SIZES.d_model, seed=7)
        with torch.no_grad():
            difference = self(after, module, **masks) - self(before, module, **masks)
        return difference.abs().amax(dim=(0, 2))

    def find_mask(
        self, name: str, may: torch.Tensor, fits: Callable[[dict[str, torch.Tensor]], bool]
    ) -> MaskConvention:
        """Return the first convention in which a mask does what it should.

        Args:
            name: of the parameter.
            may: (B, Tq, Tk) bool, True = may attend.
            fits: whether the layer behaves as the mask demands, called with the mask by its name.

        Raises:
            LookupError: none does, though some can be passed.
            Exception: what the layer raised first, if none can be passed.
        """
        error: Exception | None = None
        could_be_passed = False
        is_same = bool((may == may[:, :1]).all())  # for every query, as with PAD
        shapes: tuple[MaskShape, ...] = SHAPES if is_same else tuple(each for each in SHAPES if each not in KEYS_ONLY)
        for convention in conventions(shapes):
            try:
                if fits({name: convention.of(may)}):
                    return convention
                could_be_passed = True
            except Exception as problem:  # noqa: BLE001 - most conventions do not fit the reader's code
                error = error or problem
        if not could_be_passed and error is not None:
            raise error
        raise LookupError(name)

    def silenced(self, *, only_attention: bool = False) -> Any:
        """Return another layer whose sublayers return zeros: all weights but those of norms are zero.

        Args:
            only_attention: silence only submodules whose name or class has "att".
        """
        silent = self.rebuild()
        for path, module in silent.named_modules():
            is_part = not only_attention or "att" in path.lower() or "att" in type(module).__name__.lower()
            if is_norm(module) or not is_part or (only_attention and module is silent):
                continue
            for parameter in module.parameters(recurse=False):
                parameter.data.zero_()
        return silent


class _FunctionalNorms(TorchFunctionMode):
    """Counts calls of functional norms; those of norm modules are among them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call a function, and count it if it is a norm."""
        self.count += getattr(func, "__name__", "") in ("layer_norm", "rms_norm", "group_norm")
        return func(*args, **(kwargs or {}))


def count_norms(module: Any, run: Callable[[], Any]) -> int:
    """Return how many norms are computed while something runs: modules with Norm in their name, or functions."""
    counted: list[int] = []
    own = [
        each
        for each in module.modules()
        if is_norm(each) and not isinstance(each, NORMS) and not any(is_norm(sub) for sub in list(each.modules())[1:])
    ]
    handles = [each.register_forward_hook(lambda *_: counted.append(1)) for each in own]
    try:
        with _FunctionalNorms() as functions, torch.no_grad():
            run()
    finally:
        for each in handles:
            each.remove()
    return functions.count + len(counted)


def is_norm(module: Any) -> bool:
    """Whether a module is a norm: PyTorch's, or one whose class has Norm in its name and which has few parameters."""
    if isinstance(module, NORMS):
        return True
    own = list(module.parameters(recurse=False))
    return "norm" in type(module).__name__.lower() and bool(own) and all(each.ndim <= 1 for each in own)


def is_normalized(x: torch.Tensor) -> bool:
    """Whether each vector of (B, T, D) has mean 0 and standard deviation 1, or root mean square 1."""
    x = x.detach()
    by_mean = x.mean(dim=-1).abs().max() < 0.01 and (x.std(dim=-1, unbiased=False) - 1).abs().max() < 0.05
    by_square = (x.square().mean(dim=-1).sqrt() - 1).abs().max() < 0.01
    return bool(by_mean or by_square)


def is_constant(call: LayerCall, module: Any) -> bool:
    """Whether the output of a changed layer is the same for other states."""
    before, after = call.tensors(), call.tensors()
    after[0] = draw(*after[0].shape, seed=8)
    with torch.no_grad():
        return formulas.is_close(call(before, module), call(after, module))


def _has(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name.lower() for word in words)
