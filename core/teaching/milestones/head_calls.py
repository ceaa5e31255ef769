"""How the reader's multi-head attention is built and called, and what its projections return."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import torch
from torch import nn

from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.milestones.arguments import (
    Sizes,
    build,
    building_parameters,
    draw,
    kind_of,
    mask_parameters,
    output_of,
    parameters_of,
    required_masks,
)
from core.teaching.milestones.products import Product, Products, by_token

BATCH, QUERIES, KEYS = 2, 5, 7
SIZES = Sizes()
HEADS, WIDTH = SIZES.num_heads, SIZES.d_model
Vectors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
KINDS = ("d_model", "num_heads", "d_k", "max_len")


class MultiHead:
    """A module of multi-head attention: how it is called, and what its projections return.

    Attributes:
        module: built with the sizes of the checks.
        inputs: names of the parameters for queries, keys and values; one name if it is self-attention only, two if keys
            and values come from one input.
        queries, keys: numbers of them in the checks.
    """

    def __init__(self, what: Callable[..., Any]) -> None:
        self.module: Any = build(what, SIZES, KINDS)
        self.masks = mask_parameters(self.module)
        self.inputs = self._inputs()
        lengths = [(KEYS, KEYS)] if len(self.inputs) == 1 else [(QUERIES, KEYS), (KEYS, KEYS)]
        error: Exception | None = None
        for self.queries, self.keys in lengths:
            try:
                self.output()
                self.problem = "" if error is None else str(error)
                return
            except Exception as problem:  # noqa: BLE001 - the reader's code may raise anything
                error = problem
        if error is not None and "d_model" not in map(partial(kind_of, kinds=KINDS), building_parameters(what)):
            raise NotCheckableError(f"it is not built from d_model, so the width it takes is not known: {error}.")
        if error is not None:
            raise error

    def _inputs(self) -> list[str]:
        named = parameters_of(self.module)
        needed = [name for name, each in named.items() if each.default is each.empty and name not in self.masks]
        by_letter = {name[0].lower(): name for name in needed[:3]}
        if len(needed) >= 3 and {"q", "k", "v"} <= by_letter.keys():
            return [by_letter[letter] for letter in "qkv"]
        if not needed:
            raise NotCheckableError("its forward has no parameter for queries.")
        return needed[:3]

    def tensors(self) -> list[torch.Tensor]:
        """Return the inputs: queries (B, Tq, D), keys and values (B, Tk, D), as many as it takes."""
        query = draw(BATCH, self.queries, WIDTH)
        return [query, *(draw(BATCH, self.keys, WIDTH, seed=seed) for seed in (1, 2))][: len(self.inputs)]

    def call(self, tensors: list[torch.Tensor], mask: torch.Tensor | None = None) -> Any:
        """Return what the module returns."""
        given = dict(zip(self.inputs, tensors, strict=True))
        masks = required_masks(self.module) | ({} if mask is None else {self.masks[0]: mask})
        return self.module(**given, **masks)

    def output(self, mask: torch.Tensor | None = None, tensors: list[torch.Tensor] | None = None) -> torch.Tensor:
        """Return the output (B, Tq, D)."""
        result = self.call(self.tensors() if tensors is None else tensors, mask)
        return output_of(result, (BATCH, self.queries, WIDTH), f"queries {(BATCH, self.queries, WIDTH)}")

    def joined(self, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, bool]:
        """Return the joined heads (B, Tq, D) before the output projection, and whether there is one.

        Without one, they are the output.
        """
        with Products(BATCH) as products, torch.no_grad():
            output = self.output(mask)
        inputs = self.tensors()
        for product in reversed(products.calls):
            if not any(product.reads(each) for each in inputs) and product.result.numel() == output.numel():
                joined = by_token(product.activations, BATCH, self.queries, HEADS)
                if joined is not None:
                    return joined, True
        return output, False

    def projected(self) -> Iterator[Vectors]:
        """Yield what queries, keys and values may be, each (B, T, D), from the products that read the inputs."""
        with Products(BATCH) as products, torch.no_grad():
            self.output()
        read = [[each for each in products.calls if each.reads(tensor)] for tensor in self.tensors()]
        if len(read) == 3:
            yield from self._joined(read)
        elif len(read) == 2:
            half = len(read[1]) // 2
            for first, second in ((read[1][:half], read[1][half:]), (read[1][0::2], read[1][1::2])):
                yield from self._joined([read[0], first, second])
                yield from self._joined([read[0], second, first])
        else:
            yield from self._of_one(read[0])

    def _of_one(self, calls: list[Product]) -> Iterator[Vectors]:
        """Yield what queries, keys and values may be where all come from one input, in every order."""
        third = len(calls) // 3
        for groups in ([calls[:third], calls[third : 2 * third], calls[2 * third :]], [calls[n::3] for n in range(3)]):
            for order in permutations(groups):
                yield from self._joined(list(order))
        if len(calls) == 1:  # one matrix for all three
            vectors = by_token(calls[0].result, BATCH, self.queries, HEADS)
            if vectors is not None and vectors.shape[-1] == 3 * WIDTH:
                by_head = vectors.unflatten(-1, (HEADS, 3, -1))
                for parts in (vectors.chunk(3, dim=-1), [by_head[..., n, :].flatten(2) for n in range(3)]):
                    yield from permutations(parts)

    def _joined(self, read: list[list[Product]]) -> Iterator[Vectors]:
        """Yield queries, keys and values, if the results of their products have the width of the model together."""
        found = []
        for calls, length in zip(read, (self.queries, self.keys, self.keys), strict=True):
            vectors = [by_token(each.result, BATCH, length, HEADS) for each in calls]
            whole = [each for each in vectors if each is not None]
            if not whole or sum(each.shape[-1] for each in whole) != WIDTH:
                return
            found.append(torch.cat(whole, dim=-1))
        yield found[0], found[1], found[2]

    def of_torch(self) -> nn.MultiheadAttention | None:
        """Return the module of PyTorch that this one wraps, if it does."""
        found = (each for each in self.module.modules() if isinstance(each, nn.MultiheadAttention))
        return next(found, None) if isinstance(self.module, nn.Module) else None
