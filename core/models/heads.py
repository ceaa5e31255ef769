"""Attention heads by name, and what can be done to them: knocked out, or made to look where a pattern says.

Knocking out puts zeros (Michel et al. 2019) or the head's mean output (Wang et al. 2023) in place of what it found, to
see what the model does without it; where it looked is recorded all the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import nn

from core.storage.errors import InputError

Block = Literal["encoder", "decoder", "cross"]
Ablation = Literal["zero", "mean"]
BLOCKS: tuple[Block, ...] = get_args(Block)
_NUMBER = "([1-9][0-9]{0,3})"
_BLOCK = f"({'|'.join(BLOCKS)})"


@dataclass(frozen=True)
class Head:
    """One attention head; layer and head are numbered from 1. As text it is ``cross.2.1``."""

    block: Block
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.block}.{self.layer}.{self.head}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read a head's name; InputError if it is none."""
        found = re.fullmatch(rf"{_BLOCK}\.{_NUMBER}\.{_NUMBER}", text.strip())
        if not found:
            raise InputError(
                f"head={text!r:.60} is not a head: write block.layer.head, such as cross.2.1, numbered from 1; "
                f"blocks are {', '.join(BLOCKS)}"
            )
        return cls(found[1], int(found[2]), int(found[3]))


@dataclass(frozen=True)
class Pattern:
    """Where a forced cross-attention head looks: at one token of the source in each step, with all its weight.

    Columns are counted from 0, BOS. A pattern that leaves the source stays on its first or last token, BOS or EOS; PAD
    is never looked at.

    Attributes:
        kind: "diagonal": in step t, counted from 0, at column t + 1; "anti-diagonal": at column n - t of a source of n
            tokens between BOS and EOS, so first at the last of them and, in the step that ends a reversal, at BOS;
            "position": always at the same column.
        position: that column.
    """

    kind: Literal["diagonal", "anti-diagonal", "position"]
    position: int = 0

    def __str__(self) -> str:
        return f"position {self.position}" if self.kind == "position" else self.kind

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Read ``diagonal``, ``anti-diagonal`` or ``position 3``; InputError if it is none of them."""
        if text.strip() in ("diagonal", "anti-diagonal"):
            return cls(text.strip())
        found = re.fullmatch(r"position +([0-9]{1,6})", text.strip())
        if not found:
            raise InputError(
                f"pattern={text!r:.60} is not one of diagonal, anti-diagonal, position K (K a source column, 0 is BOS)"
            )
        return cls("position", int(found[1]))

    def columns(self, steps: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Return the columns to look at, (B, T) int64.

        Args:
            steps: (T,) int64, numbers of the steps.
            last: (B, 1) int64, each source's last column, EOS.
        """
        wanted = {"diagonal": steps + 1, "anti-diagonal": last - 1 - steps, "position": steps * 0 + self.position}
        return wanted[self.kind].minimum(last).clamp(min=0)


@dataclass(frozen=True)
class AttentionEdit:
    """What is done to the heads of one attention module while it attends once; heads are numbered from 1.

    Attributes:
        patterns: where forced heads look.
        outputs: what knocked-out heads give: (K,) float, or 0.
        first_step: number of the first query, counted from 0.
        kept: where the outputs of all heads are put, as they were before any knock-out; None keeps none.
    """

    patterns: Mapping[int, Pattern]
    outputs: Mapping[int, torch.Tensor | float]
    first_step: int = 0
    kept: list[torch.Tensor] | None = None

    def forced(self, weights: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return weights (B, H, Tq, S) in which forced heads look where they must.

        Args:
            mask: (B, 1, 1, S) bool, True where the source is not PAD; None only where no head is forced.
        """
        if not self.patterns:
            return weights
        weights, real = weights.clone(), mask[:, 0]  # (B, 1, S)
        steps = torch.arange(weights.shape[2], device=weights.device) + self.first_step
        for head, pattern in self.patterns.items():
            columns = pattern.columns(steps, real.sum(dim=-1) - 1)
            weights[:, head - 1] = (F.one_hot(columns, weights.shape[3]) * real).to(weights.dtype)
        return weights

    def ablated(self, heads: torch.Tensor) -> torch.Tensor:
        """Return the outputs of all heads, (B, H, Tq, K), with others in place of those of knocked-out heads."""
        if self.kept is not None:
            self.kept.append(heads.detach())
        if not self.outputs:
            return heads
        heads = heads.clone()
        for head, output in self.outputs.items():
            heads[:, head - 1] = output
        return heads


LayerEdits = Mapping[Block, AttentionEdit]
UNEDITED: LayerEdits = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Interventions:
    """What is done to a model's heads while it reads and writes.

    Attributes:
        ablated: heads whose output is replaced.
        means: what replaces it, (K,) float a head, such as ``core.interpret.ablation.head_means`` returns; None stands
            for zeros.
        forced: cross-attention heads that look where a pattern says.
        kept: where the outputs of all heads are put, (B, H, T, K) a call, by block and layer; None keeps none.
    """

    ablated: tuple[Head, ...] = ()
    means: Mapping[Head, torch.Tensor] | None = None
    forced: tuple[tuple[Head, Pattern], ...] = ()
    kept: dict[tuple[Block, int], list[torch.Tensor]] | None = field(default=None, repr=False)

    @classmethod
    def parse(
        cls,
        heads: Sequence[Head],
        *,
        ablate: Iterable[str] = (),
        force: Iterable[str] = (),
        means: Mapping[Head, torch.Tensor] | None = None,
    ) -> "Interventions":
        """Read what is to be done to a model that has these heads.

        Args:
            ablate: names of heads (``cross.2.1``), of layers (``cross.2``) or of blocks (``cross``).
            force: heads and their patterns, ``cross.2.1=anti-diagonal``.

        Raises:
            InputError: something of it cannot be done; the message says what can.
        """
        chosen = [head for name in ablate for head in _named(name, heads)]
        forced = tuple(_read_force(text) for text in force)
        return cls(tuple(dict.fromkeys(chosen)), means, forced).checked(heads)

    @property
    def ablation(self) -> Ablation:
        """What stands in for the output of a knocked-out head."""
        return "zero" if self.means is None else "mean"

    def __str__(self) -> str:
        out = [f"{', '.join(map(str, self.ablated))} knocked out ({self.ablation})"] if self.ablated else []
        return "; ".join(out + [f"{head} forced to {pattern}" for head, pattern in self.forced])

    def checked(self, heads: Sequence[Head]) -> "Interventions":
        """Return this, if it can be done to a model that has these heads.

        Raises:
            InputError: the model lacks a head, one is no cross-attention head but forced, or is to do two things.
        """
        forced = [head for head, _ in self.forced]
        for head in (*self.ablated, *forced):
            if head not in heads:
                raise InputError(f"head={head} is not in this model, which has {_in_words(heads)}")
        for number, head in enumerate(forced):
            if head.block != "cross":
                raise InputError(f"head={head} cannot be forced; only heads of cross-attention can")
            if head in forced[:number] or head in self.ablated:
                raise InputError(f"head={head} is to do two things; it can be knocked out, or forced to one pattern")
        return self

    def of_layer(self, number: int, *, past: int = 0) -> LayerEdits:
        """Return what is done to the attention modules of a layer, for each block that has something done to it.

        Args:
            number: of the layer, from 1.
            past: steps made before.
        """
        if not self.ablated and not self.forced and self.kept is None:
            return UNEDITED
        interventions = {block: self._of(block, number, past) for block in BLOCKS}
        return {
            block: edit
            for block, edit in interventions.items()
            if edit.patterns or edit.outputs or edit.kept is not None
        }

    def _of(self, block: Block, layer: int, past: int) -> AttentionEdit:
        here = (block, layer)
        patterns = {head.head: pattern for head, pattern in self.forced if (head.block, head.layer) == here}
        out = [head for head in self.ablated if (head.block, head.layer) == here]
        outputs = {head.head: 0.0 if self.means is None else self.means[head] for head in out}
        return AttentionEdit(patterns, outputs, past, None if self.kept is None else self.kept.setdefault(here, []))


NO_INTERVENTIONS = Interventions()


def heads_of(block: Block, attention: Iterable[nn.Module]) -> tuple[Head, ...]:
    """Name the heads of a block's attention modules, one module a layer."""
    return tuple(
        Head(block, layer, head)
        for layer, module in enumerate(attention, start=1)
        for head in range(1, module.num_heads + 1)
    )


def _named(name: str, heads: Sequence[Head]) -> list[Head]:
    """Return the heads that a head's, a layer's or a block's name stands for."""
    name = name.strip()
    if not re.fullmatch(rf"{_BLOCK}(\.{_NUMBER}){{0,2}}", name):
        raise InputError(
            f"ablate={name!r:.60} is not a head (cross.2.1), a layer (cross.2) or a block "
            f"({', '.join(BLOCKS)}); layers and heads are numbered from 1"
        )
    named = [head for head in heads if f"{head}.".startswith(f"{name}.")]
    if not named:
        raise InputError(f"ablate={name} is not in this model, which has {_in_words(heads)}")
    return named


def _read_force(text: str) -> tuple[Head, Pattern]:
    head, equals, pattern = text.partition("=")
    if not equals:
        raise InputError(f"force={text!r:.60} must be HEAD=PATTERN, such as cross.2.1=anti-diagonal")
    return Head.parse(head), Pattern.parse(pattern)


def _in_words(heads: Sequence[Head]) -> str:
    """List heads, those of a layer as ``cross.2.1 to cross.2.4``."""
    layers = [list(layer) for _, layer in groupby(heads, key=lambda head: (head.block, head.layer))]
    named = [str(layer[0]) if len(layer) == 1 else f"{layer[0]} to {layer[-1]}" for layer in layers]
    return ", ".join(named) or "none"
