"""The model under examination, with its task, its loss and a sample of its training data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from core.models import AttentionMaps, Seq2Seq, forward_with_attention
from core.models.attention import AdditiveAttention, MultiHeadAttention
from core.models.hooks import Hook, hooks
from core.models.seq2seq import Block
from core.tasks import Batch
from core.text.vocab import PAD_ID
from core.training.history import History
from core.training.state import TrainingState

NUM_PAIRS = 64  # sampled training pairs
FEW = 8  # of them, for checks that need only a few


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention module, recorded at its hook points.

    Attributes:
        name: path of the module.
        block: "encoder", "decoder" or "cross".
        module: multi-head or additive attention.
        query: (B, H, Tq, K) float, or (B, D) of additive attention.
        key: (B, H, Tk, K) float; H is 1 and K is D of additive attention.
        value: (B, H, Tk, K) float, likewise.
        mask: bool, broadcastable to the weights, True = may attend; None for all.
        bias: float, added to the scores, or None.
        weights: (B, H, Tq, Tk) float, as the module reports them at ``hook_pattern``.
        output: (B, H, Tq, K) float, each head's output before the output projection.
    """

    name: str
    block: Block
    module: MultiHeadAttention | AdditiveAttention
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    bias: torch.Tensor | None
    weights: torch.Tensor
    output: torch.Tensor

    @property
    def visible(self) -> torch.Tensor:
        """The mask, expanded to the shape of the weights, bool."""
        if self.mask is None:
            return torch.ones_like(self.weights, dtype=torch.bool)
        return self.mask.expand_as(self.weights)


@dataclass(frozen=True)
class Subject:
    """What the checks examine.

    Attributes:
        state: training state with the model in evaluation mode.
        history: metrics of its training, if there was any.
        pairs: a sample of training pairs, as training draws them.
    """

    state: TrainingState
    history: History | None
    pairs: Batch = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        object.__setattr__(self, "pairs", self.state.task.sample(NUM_PAIRS, split="train", generator=generator))

    @property
    def model(self) -> Seq2Seq:
        """The model under examination."""
        return self.state.model

    @property
    def is_trained(self) -> bool:
        """Whether the model has had any updates."""
        return self.state.step > 0

    @property
    def few(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A few sources (B, S) int64 and their correct decoder inputs (B, T) int64, shifted right."""
        return self.pairs.src[:FEW], self.pairs.tgt[:FEW, :-1]

    def shortest(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the shortest source (1, S) int64, without PAD, and its correct decoder input (1, T) int64."""
        row = int((self.pairs.src != PAD_ID).sum(dim=1).argmin())
        pair = self.pairs[row : row + 1].trimmed()
        return pair.src, pair.tgt[:, :-1]

    @torch.no_grad()
    def logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V) float under teacher forcing."""
        return self.model(src, tgt_in)

    @torch.no_grad()
    def record_attention(self) -> tuple[AttentionMaps, list[AttentionCall]]:
        """Run a few pairs through the model; return the attention maps and every call of an attention module."""
        src, tgt_in = self.few
        _, maps = forward_with_attention(self.model, src, tgt_in)
        recorders = [_CallRecorder(block, module) for (block, _), module in self.model.attention.items()]
        with hooks({name: hook for recorder in recorders for name, hook in recorder.hooks().items()}):
            memory = self.model.encode(src)
            for recorder in recorders:
                if recorder.block != "encoder":
                    recorder.calls.clear()  # a decoder-only model has read the source, which is in no map
            self.model.decode(tgt_in, memory)
        return maps, [call for recorder in recorders for call in recorder.calls]


class _CallRecorder:
    """Records the calls of one attention module at its hook points."""

    def __init__(self, block: Block, module: MultiHeadAttention | AdditiveAttention) -> None:
        self.block: Block = block
        self.module = module
        self.calls: list[AttentionCall] = []
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._latest: dict[str, torch.Tensor] = {}

    def hooks(self) -> dict[str, Hook]:
        """Return the hooks of this module by name."""
        by_point: dict[str, Hook] = {"hook_k": self._keys.append, "hook_v": self._values.append, "hook_z": self._finish}
        for name in ("q", "mask", "bias", "pattern"):
            remember: Callable[[torch.Tensor], None] = partial(self._latest.__setitem__, name)
            by_point[f"hook_{name}"] = remember
        points = vars(self.module)  # additive attention has no bias
        return {points[point].name: hook for point, hook in by_point.items() if point in points}

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
    """Concatenate the keys or values of several calls; return the last ``length``, which are attended to."""
    if parts[-1].ndim == 3:  # additive attention: (B, S, D)
        return parts[-1][:, None]
    return torch.cat(parts, dim=2)[:, :, -length:]
