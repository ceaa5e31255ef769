"""A model to be examined, with all that a run of it is made of, and some inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from core.models import AttentionMaps, Seq2Seq
from core.models.attention import AdditiveAttention, MultiHeadAttention
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
        module: multi-head or additive.
        query: (B, Tq, D) float, or (B, D) of additive attention.
        key: (B, H, Tk, K) float, or (B, Tk, D).
        mask: bool, True = may attend; None for all.
        bias: float, added to the scores, or None.
        weights: (B, H, Tq, Tk) float, or (B, Tk).
    """

    name: str
    module: nn.Module
    query: torch.Tensor
    key: torch.Tensor
    mask: torch.Tensor | None
    bias: torch.Tensor | None
    weights: torch.Tensor

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
        return self.model(src, tgt_in)[0]

    @torch.no_grad()
    def watched(self) -> tuple[AttentionMaps, list[AttentionCall]]:
        """Let the model read a few pairs; return the maps that it reports, and what its attention really did."""
        calls: list[AttentionCall] = []
        with _listening(self.model, calls):
            _, maps = self.model(*self.few, need_weights=True)
        return maps, calls


@contextmanager
def _listening(model: nn.Module, calls: list[AttentionCall]) -> Iterator[None]:
    """Note every use of an attention module that weights were asked of."""
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention | AdditiveAttention):

            def note(module: nn.Module, args: tuple, kwargs: dict, given: tuple, name: str = name) -> None:
                query, (key, _), mask = args[:3]
                if given[1] is not None:
                    calls.append(AttentionCall(name, module, query, key, mask, kwargs.get("bias"), given[1]))

            handles.append(module.register_forward_hook(note, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
