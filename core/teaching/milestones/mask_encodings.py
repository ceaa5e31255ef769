"""The conventions of masks: what marks a hidden key, and in which shape a function takes it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

HIDDEN = -1e9


@dataclass(frozen=True)
class Encoding:
    """A convention of masks.

    Attributes:
        name: in words.
        encode: turns bool, True = may attend, into such a mask.
        marks: "may", "hidden", or "score" for numbers that are added to the scores.
    """

    name: str
    encode: Callable[[torch.Tensor], torch.Tensor]
    marks: str


ENCODINGS = (
    Encoding("bool, True = may attend", lambda may: may, "may"),
    Encoding("bool, True = hidden", lambda may: ~may, "hidden"),
    Encoding("1 = may attend, 0 = hidden", lambda may: may.long(), "may"),
    Encoding("1 = hidden, 0 = may attend", lambda may: (~may).long(), "hidden"),
    Encoding("float, 1 = may attend, 0 = hidden", lambda may: may.float(), "may"),
    Encoding("float, 1 = hidden, 0 = may attend", lambda may: (~may).float(), "hidden"),
    Encoding(
        "float, added to the scores: 0 = may attend, −10⁹ = hidden",
        lambda may: torch.zeros(may.shape).masked_fill(~may, HIDDEN),
        "score",
    ),
)

Shaped = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class MaskShape:
    """A shape in which a mask of (B, Tq, Tk) bool is passed.

    Attributes:
        name: its axes.
        of: turns (B, Tq, Tk) into the shape.
        seen: the part that is left of (B, Tq, Tk), broadcastable to it.
    """

    name: str
    of: Shaped
    seen: Shaped = lambda may: may


FOUR = MaskShape("(B, 1, Tq, Tk)", lambda may: may[:, None])
THREE = MaskShape("(B, Tq, Tk)", lambda may: may)
TWO = MaskShape("(Tq, Tk)", lambda may: may[0], lambda may: may[:1].expand_as(may))
KEYS_ONLY = (
    MaskShape("(B, 1, 1, Tk)", lambda may: may[:, None, :1], lambda may: may[:, :1].expand_as(may)),
    MaskShape("(B, 1, Tk)", lambda may: may[:, :1], lambda may: may[:, :1].expand_as(may)),
    MaskShape("(B, Tk)", lambda may: may[:, 0], lambda may: may[:, :1].expand_as(may)),
)


def per_head(num_heads: int) -> MaskShape:
    """Return the shape with one matrix for each head of each row, as ``nn.MultiheadAttention`` takes them."""
    return MaskShape("(B·H, Tq, Tk)", lambda may: may.repeat_interleave(num_heads, dim=0))


@dataclass(frozen=True)
class MaskConvention:
    """The mask that a function takes: its encoding and its shape."""

    encoding: Encoding
    shape: MaskShape

    def of(self, may: torch.Tensor) -> torch.Tensor:
        """Return the mask for (B, Tq, Tk) bool, True = may attend."""
        return self.encoding.encode(self.shape.of(may))

    def __str__(self) -> str:
        return f"{self.encoding.name}; {self.shape.name}"


def conventions(shapes: tuple[MaskShape, ...]) -> Iterator[MaskConvention]:
    """Yield all conventions, the larger shapes first."""
    for shape in shapes:
        for encoding in ENCODINGS:
            yield MaskConvention(encoding, shape)


def drawn_mask(batch: int, queries: int, keys: int) -> torch.Tensor:
    """Return (B, Tq, Tk) bool, True = may attend; each row and its inverse have keys, and rows of a batch differ.

    The key that is hidden moves with query and batch, so that a mask read in another way has other rows.
    """
    rows = torch.arange(queries)[:, None] * 2 + torch.arange(batch)[:, None, None] * 3
    return ((torch.arange(keys) + rows) % keys) < (keys // 2 + 1)
