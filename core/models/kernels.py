"""Faster equivalents of the plain lines in their docstrings, and dropout that draws from a run's own generator.

Speeds are relative to the plain line on a CPU, with presets for a laptop; ``tests/models/test_kernels.py`` checks that
each function equals its plain line.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

SHORT_ROW = 16  # numbers; the CPU's softmax and fused attention are several times slower on shorter rows
_PACKED_NUMEL, _PACKED_ROWS = 400_000, 64  # minimum size of a weight that is packed, and the rows it is packed for
_ROOM = 16  # rows; see ``GrowingRows``
_LOOPED = 400  # multiplications below which ``torch.bmm`` is a loop without vectors
_MANY = 128  # matrices from which sums over whole tensors are faster than that loop
_DROPOUT_LEVELS = 2**16  # a dropout rate is rounded to a multiple of 1 / 65,536


def softmax(scores: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension.

    Plain: ``scores.softmax(dim=-1)``. On a CPU, short rows are first placed side by side, which takes a third of the
    time.
    """
    if _is_short(scores.shape[-1], scores.device):
        weights = scores.movedim(-1, 0).softmax(dim=0).movedim(0, -1)
        # With these strides PyTorch would multiply row by row, which takes 20 times as long.
        return weights.contiguous() if scores.shape[-2:-1] == (1,) else weights
    return scores.softmax(dim=-1)


def matmul_shared(rows: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """Multiply (B · N, H, T, X) rows by the (B, H, X, Y) matrices that N of them share, such as the beams of a source.

    Plain: ``rows @ shared.repeat_interleave(N, dim=0)``. Without the copies, a beam search takes 0.83 of the time.
    """
    if rows.shape[0] == shared.shape[0]:
        return rows @ shared
    together = rows.unflatten(0, (shared.shape[0], -1)).transpose(1, 2)  # (B, H, N, T, X)
    products = together.flatten(2, 3) @ shared  # (B, H, N · T, Y)
    return products.unflatten(2, together.shape[2:4]).transpose(1, 2).flatten(0, 1)


def top_k(scores: torch.Tensor, k: int) -> torch.Tensor:
    """Return the indices of the ``k`` largest per row (B, N), largest first, ties in order of index; (B, k) int64.

    Plain: ``scores.sort(dim=1, descending=True, stable=True).indices[:, :k]``. If there are no ties among the largest,
    PyTorch's ``topk`` gives the same and takes a fiftieth of the time for 20,000 scores.
    """
    if 4 * k < scores.shape[1]:
        top = scores.topk(k + 1, dim=1)
        is_tied = (top.values[:, 1:] == top.values[:, :-1]) & top.values[:, 1:].isfinite()
        if not is_tied.any():
            return top.indices[:, :k]
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]


class GrowingRows:
    """A tensor (B, H, P, K) that grows along P, for keys and values during decoding.

    Plain: ``tensor = torch.cat([tensor, new], dim=2)``, which copies the whole tensor at every step, a fifth of the
    time of greedy decoding in large batches. Here the tensor is allocated with room at the end.

    Args:
        rows: (B, H, P, K) float, the first ones.
        index: (N,) int64, the rows of the batch to take, in this order; None takes all.
    """

    def __init__(self, rows: torch.Tensor, index: torch.Tensor | None = None) -> None:
        batch, heads, self.length, width = rows.shape
        batch = batch if index is None else len(index)
        self._room = rows.new_empty(batch, heads, 2 * self.length + _ROOM, width)
        if index is None:
            self._room[:, :, : self.length] = rows
        else:
            torch.index_select(rows, 0, index, out=self._room[:, :, : self.length])

    @property
    def rows(self) -> torch.Tensor:
        """All rows so far, (B, H, P, K) float, a view."""
        return self._room[:, :, : self.length]

    def append(self, new: torch.Tensor) -> torch.Tensor:
        """Append rows (B, H, T, K) and return all rows; earlier results of ``rows`` keep their values."""
        end = self.length + new.shape[2]
        if end > self._room.shape[2]:
            self._room = F.pad(self.rows, (0, 0, 0, end + _ROOM))
        self._room[:, :, self.length : end] = new
        self.length = end
        return self.rows


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    """Attend without storing the weights.

    Plain: ``masked_softmax(query @ key.mT / sqrt(K) + bias, mask) @ value``. PyTorch's fused kernel takes half of the
    time of the plain line, backward pass included; on a CPU, short rows of keys are padded, which takes 0.7 of that
    time.

    Args:
        query: (B, H, Tq, K) float.
        key, value: (B, H, Tk, K) float.
        mask: bool, broadcastable to (B, H, Tq, Tk); True = may attend.
        bias: float, broadcastable to the same; added to the scores.
    """
    added = mask if bias is None else bias if mask is None else bias.masked_fill(~mask, -math.inf)
    if added is not None and _is_short(key.shape[-2], key.device):
        missing = SHORT_ROW - key.shape[-2]
        key, value = (F.pad(each, (0, 0, 0, missing)) for each in (key, value))
        added = F.pad(added, (0, missing), value=False if added.dtype == torch.bool else -math.inf)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=added)


class PackedLinear:
    """A linear map (N, K) and its activation, with a weight that is reordered once for many small batches.

    Plain: ``activation(F.linear(x, weight, bias))``. For 4,000 outputs of 176 inputs and 8 to 128 rows, oneDNN takes
    0.6 to 0.75 of the time. A small weight gains little and is not packed: a kernel is cached for each shape, and the
    cache is small (``core.KERNELS_CACHED``). Nor is it transposed: products would take 0.55 to 0.85 of the time for up
    to 128 rows, but the copies take longer than a short generation saves. Later changes of the weight do not change a
    packed weight.

    Args:
        activation: "relu" or "gelu"; "none" without.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, activation: str = "none") -> None:
        self._weight, self._bias, self._activation = weight.t(), bias, activation
        self._packed: torch.Tensor | None = None
        if weight.numel() >= _PACKED_NUMEL and torch.backends.mkldnn.is_available():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _PACKED_ROWS)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, K) to (B, N) float."""
        if self._packed is not None:
            return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, self._activation, [], "none")
        y = torch.addmm(self._bias, x, self._weight)
        return y if self._activation == "none" else y.relu_() if self._activation == "relu" else F.gelu(y)

    def columns(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Map (B, K) to columns (N, B) float, without the activation and without a transposition.

        Args:
            out: (N, B) float, to be written to; None makes a new tensor.
        """
        return torch.addmm(self._bias[:, None], self._weight.t(), x.t(), out=out)


def attend_columns(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor | None = None
) -> torch.Tensor:
    """Attend with one query per row, the rows in the last dimension.

    Plain, with the rows first: ``(query @ key.mT + hidden).softmax(dim=-1) @ value``, which multiplies a matrix for
    each row and head. With heads of width 16 and 6 keys, columns take 0.35 of the time for 64 rows, 0.2 for 256.

    Args:
        query: (H, K, B) float, divided by √K.
        key, value: (P, H, K, B) float.
        hidden: (P, 1, B) float, 0 or -inf.

    Returns:
        (H, K, B) float.
    """
    scores = (query * key).sum(dim=2)
    scores = scores if hidden is None else scores.add_(hidden)
    return (scores.softmax(dim=0)[:, :, None] * value).sum(dim=0)


def select_columns(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Select indices (N,) int64 of the last dimension of a contiguous tensor.

    Plain: ``x.index_select(-1, index)``, which takes 6 to 18 times as long for three dimensions as for two.
    """
    return x.flatten(end_dim=-2).index_select(1, index).unflatten(0, x.shape[:-1])


def attend_slots(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor | None = None
) -> torch.Tensor:
    """Attend with the M rows of each of B sources to keys and values that they share.

    Plain: ``(query @ key.mT + hidden).softmax(dim=-1) @ value``, with keys and values as (B, H, slots, K). With a beam
    of 4 there are a quarter as many matrices as with separate keys per row: half of the time with heads of width 16 and
    6 steps, and no reordering. Many products of fewer than 400 multiplications, those of the first steps, are taken as
    sums over whole tensors: ``torch.bmm`` computes so small ones in a loop, which takes 1.0 to 1.8 times as long for 64
    rows with four heads of width 48.

    Args:
        query: (B, H, M, K) float, divided by √K.
        key, value: (B · H, slots, K) float.
        hidden: float, broadcastable to (B, H, M, slots), 0 or -inf.

    Returns:
        (B, H, M, K) float.
    """
    shape, queries = (*query.shape[:3], key.shape[1]), query.reshape(-1, *query.shape[2:])
    is_small = len(queries) >= _MANY and shape[2] * query.shape[3] * shape[3] < _LOOPED
    scores = (queries[:, :, None] * key[:, None]).sum(dim=-1) if is_small else torch.bmm(queries, key.transpose(1, 2))
    scores = scores.view(shape)
    weights = softmax(scores if hidden is None else scores.add_(hidden)).contiguous().view(-1, *shape[2:])
    output = (weights[..., None] * value[:, None]).sum(dim=2) if is_small else torch.bmm(weights, value)
    return output.view(query.shape)


def argmax(x: torch.Tensor) -> torch.Tensor:
    """Return the index of the largest number of each row (N, V) float, the first of equal ones, (N,) int64.

    Plain: ``x.argmax(dim=-1)``, which does not use a CPU's vectors: for 3,000 numbers, NumPy takes a tenth of the time.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or x.requires_grad:
        return x.argmax(dim=-1)
    return torch.from_numpy(x.numpy().argmax(axis=-1))


def keep_mask(x: torch.Tensor, p: float, generator: torch.Generator | None) -> torch.Tensor:
    """Draw which elements dropout keeps, each with probability 1 - p; bool of the shape of ``x``.

    Plain: ``torch.empty_like(x).bernoulli_(1 - p, generator=generator).bool()``. On a CPU, 64 random bits give four
    draws, which takes a fifth of the time. Draws are in the order of the elements, independent of their strides.
    """
    if torch.compiler.is_exporting():
        return torch.rand_like(x) >= p  # of the generator of whatever runs the graph
    if x.device.type != "cpu":
        return x.new_empty(x.shape).bernoulli_(1 - p, generator=generator).bool()
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    threshold = round(p * _DROPOUT_LEVELS) - _DROPOUT_LEVELS // 2
    return (bits.view(torch.int16)[: x.numel()] >= threshold).view(x.shape)


def drop(x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
    """Zero the elements of ``x`` that are not kept and divide the others by 1 - p.

    Plain: ``x * keep.to(x.dtype).div_(1 - p)``. For the backward pass, one byte per element is saved, not a float.

    Args:
        x: float of any shape.
        keep: bool of the same shape.
    """
    return _Drop.apply(x, keep, p)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
        ctx.save_for_backward(keep)
        ctx.p = p
        return _scaled(x, keep, p)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return _scaled(gradient, keep, ctx.p), None, None


def _scaled(x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
    """Compute the plain line of ``drop``, with its strides: others would change the last bits of a later product."""
    factors = keep.to(x.dtype).div_(1 - p)
    return factors.mul_(x) if x.is_contiguous() else x * factors


class Dropout(nn.Module):
    """Zero a fraction ``p`` of the activations in training and scale up the rest (Srivastava et al. 2014).

    ``nn.Dropout`` draws from one generator for the whole process, so runs that train side by side would change each
    other's results.
    """

    def __init__(self, p: float, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout={p} must be at least 0 and below 1")
        self.p = p
        self.generator = generator

    @property
    def is_active(self) -> bool:
        """Whether the next call changes its input."""
        return self.training and self.p > 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply dropout to a float tensor of any shape."""
        if not self.is_active:
            return x
        return drop(x, keep_mask(x, self.p, self.generator), self.p)


def _is_short(length: int, device: torch.device) -> bool:
    """Whether rows of this length are slow; never in an exported graph, which must work for every length."""
    return device.type == "cpu" and not torch.compiler.is_exporting() and length < SHORT_ROW
