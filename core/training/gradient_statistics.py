"""Statistics of gradients for each parameter of any module, with queries, keys and values apart.

They are computed only on demand. A training records norms by part; see ``core.training.update_norms``.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import nn

from core.storage.errors import InputError

if TYPE_CHECKING:  # a tenth of a second to import
    import pandas as pd

PROJECTIONS = ("Q", "K", "V")
_WORDS = {
    **dict.fromkeys(("q", "wq", "query", "queries"), "Q"),
    **dict.fromkeys(("k", "wk", "key", "keys"), "K"),
    **dict.fromkeys(("v", "wv", "value", "values"), "V"),
}
_JOINED = ("c_attn", "qkv", "to_qkv", "wqkv")  # layers whose output is Q, K and V, in this order


@dataclass(frozen=True)
class Piece:
    """A parameter, or a third of one that holds the projections of queries, keys and values together.

    Attributes:
        name: of the parameter in the module; a third has its projection after it, as in "attn.in_proj_weight[Q]".
        projection: "Q", "K" or "V"; "" for a parameter that is no such projection.
        parameter: the whole parameter.
        axis, index: which third, along which axis; None for the whole parameter.
    """

    name: str
    projection: str
    parameter: nn.Parameter
    axis: int = 0
    index: int | None = None

    @property
    def gradient(self) -> torch.Tensor | None:
        """Its part of ``parameter.grad``; None without one."""
        whole = self.parameter.grad
        return whole if whole is None or self.index is None else whole.detach().chunk(3, dim=self.axis)[self.index]


@dataclass(frozen=True)
class GradientStatistics:
    """The gradient of a parameter; None in each field but the names where the parameter has no gradient.

    Attributes:
        parameter: its name; see ``Piece``.
        projection: "Q", "K", "V" or "".
        norm: L2 norm.
        mean, std, min, max: of its elements; the standard deviation is that of the elements, not an estimate.
        zeros: share of elements that are exactly zero, 0-1.
    """

    parameter: str
    projection: str
    norm: float | None
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    zeros: float | None


def parameter_pieces(model: nn.Module) -> list[Piece]:
    """Return the parameters of a module that require a gradient, in its order; a joined projection as three pieces.

    Split are ``nn.MultiheadAttention`` and layers named as in GPT-2, nanoGPT and vision transformers, if their output
    is three times as wide as their input. Layers that order their output by heads, as those of GPT-NeoX, GPT-BigCode
    and DeBERTa, or otherwise, as CodeGen's ``qkv_proj``, stay whole.
    """
    return [
        piece for name, each in model.named_parameters() if each.requires_grad for piece in _pieces(model, name, each)
    ]


def gradients(model: nn.Module) -> "pd.DataFrame":
    """Return a table of the gradients that ``backward`` has left in the parameters of any module.

    Call it between ``backward`` and ``zero_grad``; before gradients are clipped, if their size is of interest.

    Returns:
        A row for each parameter that requires a gradient, indexed by its name, with the columns of
        ``GradientStatistics``: ``projection``, ``norm``, ``mean``, ``std``, ``min``, ``max`` and ``zeros``; NaN where
        there is no gradient. A weight that holds queries, keys and values together has three rows.

    Raises:
        InputError: ``model`` is no module.
    """
    import pandas as pd

    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; it must be an nn.Module")

    rows = [asdict(statistics_of(piece)) for piece in parameter_pieces(model)]
    names = [each.name for each in fields(GradientStatistics)]
    table = pd.DataFrame(rows, columns=names).set_index("parameter")
    return table.astype(dict.fromkeys(names[2:], "float64"))


@torch.no_grad()
def statistics_of(piece: Piece) -> GradientStatistics:
    """Return statistics of the gradient of one piece."""
    if piece.gradient is None or not piece.gradient.numel():
        return GradientStatistics(piece.name, piece.projection, *[None] * 6)
    values = piece.gradient.to_dense() if piece.gradient.is_sparse else piece.gradient
    values = values.float()
    return GradientStatistics(
        piece.name,
        piece.projection,
        norm=values.norm().item(),
        mean=values.mean().item(),
        std=values.std(correction=0).item(),
        min=values.min().item(),
        max=values.max().item(),
        zeros=(values == 0).float().mean().item(),
    )


def _pieces(model: nn.Module, name: str, parameter: nn.Parameter) -> Iterator[Piece]:
    path, _, leaf = name.rpartition(".")
    parent, _, own = path.rpartition(".")
    module, source = model.get_submodule(path), type(model.get_submodule(parent)).__module__
    # nanoGPT's linear c_attn holds Q, K and V, but that of GPT-BigCode in transformers is ordered by heads.
    by_heads = own == "c_attn" and isinstance(module, nn.Linear) and source.startswith("transformers.")
    axis = None if by_heads else _joined_axis(module, own, leaf)
    if axis is None:
        yield Piece(name, _projection(model, name), parameter)
        return
    for index, projection in enumerate(PROJECTIONS):
        yield Piece(f"{name}[{projection}]", projection, parameter, axis, index)


def _joined_axis(module: nn.Module, module_name: str, leaf: str) -> int | None:
    """Return the axis along which a parameter holds Q, K and V; None if it does not."""
    if isinstance(module, nn.MultiheadAttention):
        return 0 if leaf in ("in_proj_weight", "in_proj_bias") else None
    weight = getattr(module, "weight", None)
    if module_name.lower() not in _JOINED or not isinstance(weight, torch.Tensor) or weight.ndim != 2:
        return None
    output = 0 if isinstance(module, nn.Linear) else 1  # GPT-2's Conv1D is (inputs, outputs)
    if weight.shape[output] != 3 * weight.shape[1 - output]:
        return None  # grouped queries, or another layer of that name
    return output if leaf == "weight" else 0


def _projection(model: nn.Module, name: str) -> str:
    """Return the projection that a parameter's name tells, if its siblings are the other two."""
    path, _, leaf = name.rpartition(".")
    if leaf in ("weight", "bias"):
        path, _, leaf = path.rpartition(".")
    parent = model.get_submodule(path)
    siblings = {_word(each) for each, _ in [*parent.named_children(), *parent.named_parameters(recurse=False)]}
    return _word(leaf) if siblings.issuperset(PROJECTIONS) else ""


def _word(name: str) -> str:
    return next((_WORDS[word] for word in re.split(r"[_\d]+", name.lower()) if word in _WORDS), "")
