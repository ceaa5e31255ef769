"""Interventions on attention heads: ablate them, or make a cross-attention head follow a pattern.

Ablation replaces a head's output by zeros (Michel et al. 2019) or by its mean (Wang et al. 2023). The interventions are
hooks of the calls inside ``Interventions.applied_to``; the model itself is unchanged.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
import torch.nn.functional as F

from core.models import Seq2Seq
from core.models.hooks import Hook, current_step, hooks
from core.models.seq2seq import BLOCKS, Block, Head
from core.storage.error_messages import short_repr
from core.storage.errors import InputError

Ablation = Literal["zero", "mean"]


@dataclass(frozen=True)
class Pattern:
    """A forced pattern of a cross-attention head: in each step, all weight is on one source token.

    Columns are counted from 0, BOS. A pattern that leaves the source stays on the first or the last token that may be
    attended to: BOS or EOS, or in models that mask these a token between them.

    Attributes:
        kind: "diagonal": in step t, counted from 0, column t + 1; "anti-diagonal": column n - t of a source of n tokens
            between BOS and EOS, which begins at the last of them and, in the step that ends a reversal, is BOS;
            "position": always the same column.
        position: that column; the last of a source that has no such column.
    """

    kind: Literal["diagonal", "anti-diagonal", "position"]
    position: int = 0

    def __str__(self) -> str:
        return f"position {self.position}" if self.kind == "position" else self.kind

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Read ``diagonal``, ``anti-diagonal`` or ``position 3``; InputError if it is none of them."""
        text = text.strip()
        if text == "diagonal":
            return cls("diagonal")
        if text == "anti-diagonal":
            return cls("anti-diagonal")
        match = re.fullmatch(r"position +([0-9]{1,6})", text)
        if not match:
            raise InputError(
                f"pattern={short_repr(text)} is not one of diagonal, anti-diagonal, "
                "position K (K a source column, counted from 0, which is BOS)"
            )
        return cls("position", int(match[1]))

    def columns(self, steps: torch.Tensor, eos: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Return the columns to attend to, (B, T) int64.

        Args:
            steps: (T,) int64, numbers of the steps.
            eos: (B, 1) int64, the column of each source's EOS.
            visible: (B, S) bool, what may be attended to.
        """
        wanted = {"diagonal": steps + 1, "anti-diagonal": eos - 1 - steps, "position": steps * 0 + self.position}
        first = visible.int().argmax(dim=-1, keepdim=True)
        return wanted[self.kind].minimum(_last(visible)).maximum(first)


@dataclass(frozen=True, eq=False)
class Interventions:
    """Changes of a model's heads during encoding and decoding.

    Attributes:
        ablated: heads with a replaced output.
        means: the replacements, (K,) float per head, as returned by ``core.interpret.ablation.mean_head_outputs``; None
            for zeros.
        patterns: cross-attention heads and the patterns they follow.
    """

    ablated: tuple[Head, ...] = ()
    means: Mapping[Head, torch.Tensor] | None = None
    patterns: tuple[tuple[Head, Pattern], ...] = ()

    @classmethod
    def parse(
        cls,
        heads: Sequence[Head],
        *,
        ablate: Iterable[str] = (),
        patterns: Iterable[str] = (),
        means: Mapping[Head, torch.Tensor] | None = None,
    ) -> "Interventions":
        """Read interventions on a model that has these heads.

        Args:
            ablate: names of heads (``cross.2.1``), of layers (``cross.2``) or of blocks (``cross``).
            patterns: heads and their patterns, ``cross.2.1=anti-diagonal``.

        Raises:
            InputError: the model does not support it; the message says what it supports.
        """
        ablated = [head for name in ablate for head in _heads_named(name, heads)]
        return cls(tuple(dict.fromkeys(ablated)), means, tuple(map(_parse_pattern, patterns))).checked(heads)

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return bool(self.ablated or self.patterns)

    @property
    def ablation(self) -> Ablation:
        """The kind of replacement for the output of an ablated head."""
        return "zero" if self.means is None else "mean"

    def __str__(self) -> str:
        parts = [f"{', '.join(map(str, self.ablated))} ablated ({self.ablation})"] if self.ablated else []
        return "; ".join(parts + [f"{head} follows {pattern}" for head, pattern in self.patterns])

    def joined(self, more: "Interventions") -> "Interventions":
        """Return these interventions and more of them.

        Raises:
            InputError: both ablate heads, and replace their output in different ways.
        """
        if self.ablated and more.ablated and self.ablation != more.ablation:
            raise InputError(
                f"ablation={more.ablation!r} must be {self.ablation!r}, as of what is ablated already: "
                f"{', '.join(map(str, self.ablated))}"
            )
        ablated = tuple(dict.fromkeys([*self.ablated, *more.ablated]))
        return Interventions(ablated, self.means or more.means, (*self.patterns, *more.patterns))

    def checked(self, heads: Sequence[Head]) -> "Interventions":
        """Return these interventions if a model with these heads supports them.

        Raises:
            InputError: the model lacks a head, a pattern is for another block than cross, or a head has two changes.
        """
        followers = [head for head, _ in self.patterns]
        for head in (*self.ablated, *followers):
            if head not in heads:
                raise InputError(f"head={head} is not in this model, which has {_list_heads(heads)}")
        for number, (head, pattern) in enumerate(self.patterns):
            if head.block != "cross":
                raise InputError(f"head={head} cannot follow a pattern; only heads of cross-attention can")
            if head in self.ablated:
                raise InputError(f"head={head} cannot both be ablated and have the pattern {pattern}")
            if head in followers[:number]:
                raise InputError(f"head={head} has two patterns; it can follow one")
        return self

    def applied_to(self, model: Seq2Seq) -> AbstractContextManager[None]:
        """Return a context in which they apply to the calls of this model, in this thread only.

        Raises:
            InputError: the model cannot do them; see ``checked``.
        """
        self.checked(model.heads)
        by_name: dict[str, Hook] = {}
        for (block, layer), attention in model.attention.items():
            outputs = {
                head.head: 0.0 if self.means is None else self.means[head]
                for head in self.ablated
                if (head.block, head.layer) == (block, layer)
            }
            patterns = {head.head: each for head, each in self.patterns if (head.block, head.layer) == (block, layer)}
            if outputs:
                by_name[attention.hook_z.name] = _Replacement(outputs)
            if patterns:
                forced = _ForcedPatterns(patterns, hides_eos=not model.source_eos)
                by_name |= {attention.hook_mask.name: forced.read_mask, attention.hook_pattern.name: forced}
        return hooks(by_name)


@dataclass(frozen=True)
class _Replacement:
    """Replaces the outputs of heads, numbered from 1, at ``hook_z``."""

    outputs: Mapping[int, torch.Tensor | float]

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """Return z (B, H, Tq, K) with other outputs for these heads."""
        z = z.clone()
        for head, output in self.outputs.items():
            z[:, head - 1] = output
        return z


class _ForcedPatterns:
    """Makes heads, numbered from 1, follow patterns at ``hook_pattern``; the source's mask is read at ``hook_mask``."""

    def __init__(self, patterns: Mapping[int, Pattern], *, hides_eos: bool) -> None:
        self.patterns, self.hides_eos = patterns, hides_eos
        self._visible = torch.empty(0)

    def read_mask(self, mask: torch.Tensor) -> None:
        """Note the mask (B, 1, 1, S) bool, see ``Seq2Seq.source_mask``."""
        self._visible = mask[:, 0, 0]  # (B, S)

    def __call__(self, weights: torch.Tensor) -> torch.Tensor:
        """Return weights (B, H, Tq, S) in which these heads attend as their patterns say, and to nothing masked."""
        weights, visible = weights.clone(), self._visible
        steps = torch.arange(weights.shape[2], device=weights.device) + current_step()
        eos = _last(visible) + self.hides_eos
        for head, pattern in self.patterns.items():
            columns = pattern.columns(steps, eos, visible)
            weights[:, head - 1] = (F.one_hot(columns, weights.shape[3]) * visible[:, None]).to(weights.dtype)
        return weights


def _last(visible: torch.Tensor) -> torch.Tensor:
    """Return the last visible column of each source (B, S) bool, (B, 1) int64."""
    return (visible * torch.arange(visible.shape[1], device=visible.device)).amax(dim=-1, keepdim=True)


NO_INTERVENTIONS = Interventions()


def _heads_named(name: str, heads: Sequence[Head]) -> list[Head]:
    """Return the heads that the name of a head, a layer or a block stands for."""
    name = name.strip()
    if not re.fullmatch(rf"({'|'.join(BLOCKS)})(\.[1-9][0-9]{{0,3}}){{0,2}}", name):
        raise InputError(
            f"ablate={short_repr(name)} is not a head (cross.2.1), a layer (cross.2) or a block "
            f"({', '.join(BLOCKS)}); layers and heads are numbered from 1"
        )
    named = [head for head in heads if f"{head}.".startswith(f"{name}.")]
    if not named:
        raise InputError(f"ablate={name} is not in this model, which has {_list_heads(heads)}")
    return named


def _parse_pattern(text: str) -> tuple[Head, Pattern]:
    head, equals, pattern = text.partition("=")
    if not equals:
        raise InputError(f"pattern={short_repr(text)} must be HEAD=PATTERN, such as cross.2.1=anti-diagonal")
    return Head.parse(head), Pattern.parse(pattern)


def _list_heads(heads: Sequence[Head]) -> str:
    """List heads, those of a layer as ``cross.2.1 to cross.2.4``."""

    def layer_of(head: Head) -> tuple[Block, int]:
        return head.block, head.layer

    layers = [list(layer) for _, layer in groupby(heads, key=layer_of)]
    named = [str(layer[0]) if len(layer) == 1 else f"{layer[0]} to {layer[-1]}" for layer in layers]
    return ", ".join(named) or "none"
