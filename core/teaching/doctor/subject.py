"""A model to be examined, with all that a run of it is made of, and some inputs."""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from core.models import AttentionMaps, Seq2Seq, forward_with_attention
from core.models.hooks import Hook, hooks
from core.tasks import Batch
from core.text.vocab import PAD_ID
from core.training.history import History
from core.training.state import TrainingState

SAMPLED = 64  # training pairs looked at
LOOKED_AT = 8  # of them, in what is decided by a few


@dataclass(frozen=True)
class AttentionCall:
    """One use of an attention module: what went in and what came out.

    Attributes:
        name: of the module.
        block: "encoder", "decoder" or "cross".
        module: multi-head or additive.
        query: (B, H, Tq, K) float, or (B, D) of additive attention.
        key, value: (B, H, Tk, K) float.
        mask: bool, True = may attend; None for all.
        bias: float, added to the scores, or None.
        weights: (B, H, Tq, Tk) float, as they are reported.
        output: (B, H, Tq, K) float, of each head, before w_o.
    """

    name: str
    block: str
    module: nn.Module
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    bias: torch.Tensor | None
    weights: torch.Tensor
    output: torch.Tensor

    @property
    def seen(self) -> torch.Tensor:
        """The mask in the shape of the weights, bool."""
        if self.mask is None:
            return torch.ones_like(self.weights, dtype=torch.bool)
        return self.mask.expand_as(self.weights)


@dataclass(frozen=True)
class Subject:
    """What the checks look at.

    Attributes:
        state: model in evaluation mode, task and loss as training has them.
        history: the figures of its training, if there was one.
        pairs: as training draws them.
    """

    state: TrainingState
    history: History | None
    pairs: Batch = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        object.__setattr__(self, "pairs", self.state.task.sample(SAMPLED, split="train", generator=generator))

    @property
    def model(self) -> Seq2Seq:
        """The model examined."""
        return self.state.model

    @property
    def is_trained(self) -> bool:
        """Whether it had any updates."""
        return self.state.step > 0

    @property
    def few(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A few sources (B, S) int64, and what the decoder should read, (B, T) int64."""
        return self.pairs.src[:LOOKED_AT], self.pairs.tgt[:LOOKED_AT, :-1]

    def shortest(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The shortest source (1, S) int64, without PAD, and what the decoder should read, (1, T) int64."""
        row = int((self.pairs.src != PAD_ID).sum(dim=1).argmin())
        pair = self.pairs[row : row + 1].trimmed()
        return pair.src, pair.tgt[:, :-1]

    @torch.no_grad()
    def logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Score next tokens, (B, T, V)."""
        return self.model(src, tgt_in)

    @torch.no_grad()
    def watched(self) -> tuple[AttentionMaps, list[AttentionCall]]:
        """Let the model read a few pairs; return the maps that it reports, and each attention's inputs and outputs."""
        _, maps = forward_with_attention(self.model, *self.few)
        watches = {key: _Watch(key[0], module) for key, module in self.model.attention.items()}
        by_name: dict[str, Hook] = {}
        for watch in watches.values():
            by_name |= watch.hooks()
        src, tgt_in = self.few
        with hooks(by_name):
            memory = self.model.encode(src)
            for watch in watches.values():
                if watch.block != "encoder":
                    watch.calls.clear()  # a decoder-only model read the source, which is in no map
            self.model.decode(tgt_in, memory)
        return maps, [call for watch in watches.values() for call in watch.calls]


class _Watch:
    """Notes what goes into one attention module and what comes out, at its hook points."""

    def __init__(self, block: str, module: nn.Module) -> None:
        self.block, self.module, self.calls = block, module, []
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._latest: dict[str, torch.Tensor] = {}

    def hooks(self) -> dict[str, Hook]:
        """Return the hooks of this module by name."""
        by_point: dict[str, Hook] = {"hook_k": self._keys.append, "hook_v": self._values.append, "hook_z": self._finish}
        for name in ("q", "mask", "bias", "pattern"):
            by_point[f"hook_{name}"] = partial(self._latest.__setitem__, name)
        return {
            getattr(self.module, point).name: hook for point, hook in by_point.items() if hasattr(self.module, point)
        }

    def _finish(self, z: torch.Tensor) -> None:
        weights = self._latest.pop("pattern")
        self.calls.append(
            AttentionCall(
                name=self.module.hook_pattern.name.removesuffix(".hook_pattern"),
                block=self.block,
                module=self.module,
                query=self._latest["q"],
                key=_last(self._keys, weights.shape[-1]),
                value=_last(self._values, weights.shape[-1]),
                mask=self._latest.pop("mask", None),
                bias=self._latest.pop("bias", None),
                weights=weights,
                output=z,
            )
        )


def _last(parts: list[torch.Tensor], length: int) -> torch.Tensor:
    """Join keys or values of several calls; the last ``length`` are those attended to."""
    if parts[-1].ndim == 3:  # additive attention: (B, S, D)
        return parts[-1][:, None]
    return torch.cat(parts, dim=2)[:, :, -length:]
