"""Attention weights of a forward pass or of a generation, recorded at the hook points of the attention modules."""

from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType

import torch

from core.models.hooks import hooks
from core.models.seq2seq import BLOCKS, Block, Seq2Seq


@dataclass(frozen=True)
class AttentionMaps:
    """The attention weights of all heads: after the softmax and any intervention, before dropout, detached.

    Attributes:
        encoder: (L, B, H, S, S) float, or None if the model has no such heads.
        decoder: (L, B, H, T, T) float, or None; in a model without an encoder (L, B, H, T, S + T), the source first.
        cross: (L, B, H, T, S) float, or None.
        source_mask: (B, S) bool, the source's tokens that may be attended to; None for all but PAD.
        window: how many tokens away a token may attend to in its own sequence; 0 for all.
    """

    encoder: torch.Tensor | None
    decoder: torch.Tensor | None
    cross: torch.Tensor | None
    source_mask: torch.Tensor | None = None
    window: int = 0

    def with_masks(self, model: Seq2Seq, src: torch.Tensor) -> "AttentionMaps":
        """Return these maps of a source (B, S) int64 with what the model masks."""
        return replace(self, source_mask=model.source_mask(src)[:, 0, 0], window=model.attention_window)

    def over_source(self, length: int) -> torch.Tensor | None:
        """Return the target's attention to a source of S tokens, (L, B, H, T, S), or None.

        This is cross-attention or, in a decoder-only model, the source columns of self-attention. In a model without a
        decoder it is the encoder's self-attention without the row of BOS, so row t belongs to token t of the answer; T
        is then S - 1.
        """
        if self.cross is not None:
            return self.cross
        if self.decoder is not None:
            return self.decoder[..., :length]
        return None if self.encoder is None else self.encoder[..., 1:, :]


class AttentionRecorder:
    """Records the attention weights of a model's calls inside a ``with`` block.

    Args:
        enabled: False records nothing, so the model need not compute the weights.
    """

    def __init__(self, model: Seq2Seq, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self._calls: dict[tuple[Block, int], list[torch.Tensor]] = {key: [] for key in model.attention if enabled}
        points = {key: model.attention[key].hook_pattern.name for key in self._calls}
        self._hooks = hooks({name: partial(self._record, key) for key, name in points.items()}) if enabled else None

    def __enter__(self) -> "AttentionRecorder":
        if self._hooks is not None:
            self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hooks is not None:
            self._hooks.__exit__(kind, error, trace)

    def take(self) -> AttentionMaps:
        """Return the maps recorded since the last ``take``, and clear them; None for blocks without calls."""
        if not self._calls:
            return AttentionMaps(None, None, None)
        maps = {block: self._stacked(block) for block in BLOCKS}
        for calls in self._calls.values():
            calls.clear()
        return AttentionMaps(maps["encoder"], maps["decoder"], maps["cross"])

    def _record(self, key: tuple[Block, int], pattern: torch.Tensor) -> None:
        self._calls[key].append(pattern.detach())

    def _stacked(self, block: Block) -> torch.Tensor | None:
        """Stack the layers of a block; a recurrent decoder makes a call for each token, joined along the queries."""
        layers = [calls for (of, _), calls in self._calls.items() if of == block and calls]
        joined = [calls[0] if len(calls) == 1 else torch.cat(calls, dim=2) for calls in layers]
        return torch.stack(joined) if joined else None


def forward_with_attention(
    model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor
) -> tuple[torch.Tensor, AttentionMaps]:
    """Score every next token under teacher forcing, and return the attention of all heads.

    Args:
        src: (B, S) int64.
        tgt_in: (B, T) int64, BOS first.

    Returns:
        (B, T, V) float logits, and the maps.
    """
    with AttentionRecorder(model) as recorder:
        memory = model.encode(src)
        encoder = recorder.take().encoder  # a decoder-only model also reads the source, but not as a target
        logits = model.decode(tgt_in, memory).logits
        of_target = recorder.take()
    return logits, AttentionMaps(encoder, of_target.decoder, of_target.cross).with_masks(model, src)
