"""Bugs in the model: masks, positions, scales, residual connections, weights, and what it says it looked at.

Each is put on a built model from outside, by a hook on a module or by giving a module a subclass of its class. The
names and shapes of the weights stay, so a broken model is saved and loaded like any other.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from core.models import Seq2Seq
from core.models.attention import AdditiveAttention, MultiHeadAttention
from core.models.embeddings import Embedding
from core.models.layers import DecoderLayer, EncoderLayer, Layer
from core.models.seq2seq import DecoderOutput, Memory
from core.models.transformer import Transformer
from core.teaching.bugs.bug import Bug


class NoCausalMask(Bug):
    """What any target token may see, all may see."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Open the mask of every decoder layer."""
        for layer in _modules(model, DecoderLayer):
            layer.register_forward_pre_hook(_open_to_all, with_kwargs=True)
        return model


def _open_to_all(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    mask = kwargs["tgt_mask"]
    return args, kwargs | {"tgt_mask": None if mask is None else mask.any(dim=-2, keepdim=True)}


class PadAttendedTo(Bug):
    """The mask of the source says that there is no PAD."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Let all that looks at the source look at all of it."""
        for layer in _modules(model, EncoderLayer):
            layer.register_forward_pre_hook(lambda _, args: (args[0], torch.ones_like(args[1])))
        for layer in _modules(model, DecoderLayer):
            layer.register_forward_pre_hook(_whole_source, with_kwargs=True)
        for attention in _modules(model, AdditiveAttention):
            attention.register_forward_pre_hook(lambda _, args: (*args[:2], torch.ones_like(args[2])))
        return model


def _whole_source(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    return args, kwargs | {"src_mask": torch.ones_like(kwargs["src_mask"])}


class _OtherEmbeddings(Bug):
    """A bug in one attribute of every embedding."""

    attribute: str
    value: float | None

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Give the attribute of every embedding another value."""
        for embedding in _modules(model, Embedding):
            setattr(embedding, self.attribute, self.value)
        return model


class NoPositions(_OtherEmbeddings):
    """Embeddings say which token, and not where."""

    attribute, value = "positions", None


class NoEmbeddingScaling(_OtherEmbeddings):
    """Embeddings go in as they are, so that the positions drown them."""

    attribute, value = "scale", 1.0


class NoScoreScaling(Bug):
    """Scores are Q Kᵀ, not Q Kᵀ / √d_k."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Make queries longer by as much as the scores are divided by."""
        for attention in _modules(model, MultiHeadAttention):
            factor = math.sqrt(attention.w_q.out_features / attention.num_heads)
            attention.w_q.register_forward_hook(lambda _, args, query, factor=factor: query * factor)
        return model


class _OtherClasses(Bug):
    """A bug in every module of some class."""

    classes: ClassVar[dict[type[nn.Module], type[nn.Module]]]

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Make each of these modules one of a subclass of its class."""
        for module in model.modules():
            module.__class__ = self.classes.get(type(module), type(module))
        return model


class _TurnedAttention(MultiHeadAttention):
    """Attention whose columns sum to 1 where its rows should; heads cannot be edited."""

    def forward(self, x: torch.Tensor, keys_values: Any, mask: torch.Tensor | None, **given: Any) -> Any:
        """Let every position of ``x`` attend; see ``MultiHeadAttention.forward``."""
        query, (key, value) = self._split_heads(self.w_q(x)), keys_values
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        seen = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(dim=-2) * seen
        heads = self.dropout(weights) @ value
        if (rotation := given.get("rotation")) is not None:
            heads = rotation.turned_back(heads)
        output = self.w_o(heads.transpose(1, 2).flatten(2))
        return output, weights.detach() if given.get("need_weights") else None


class SoftmaxOverQueries(_OtherClasses):
    """Softmax along the wrong axis: for each key, the queries' shares sum to 1."""

    classes: ClassVar = {MultiHeadAttention: _TurnedAttention}


class _WithoutResidual(Layer):
    def added(self, x: torch.Tensor, change: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
        """Return what a sublayer gave, and nothing else."""
        return self.dropout(change) if self.is_pre_norm else norm(self.dropout(change))


class _BareEncoderLayer(_WithoutResidual, EncoderLayer):
    pass


class _BareDecoderLayer(_WithoutResidual, DecoderLayer):
    pass


class NoResidual(_OtherClasses):
    """A sublayer's output replaces what went in, where it should be added to it."""

    classes: ClassVar = {EncoderLayer: _BareEncoderLayer, DecoderLayer: _BareDecoderLayer}


class EncoderOverPad(Bug):
    """The encoder's last state is that behind the PAD."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Let the encoder run on."""
        model.mask_padding = False
        return model


class HeadsAlike(Bug):
    """Heads that begin alike get the same gradient, so they stay alike."""

    @torch.no_grad()
    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Give the weights of each layer's first head to all its heads."""
        for attention in _modules(model, MultiHeadAttention):
            heads = attention.num_heads
            for linear in (attention.w_q, attention.w_k, attention.w_v):
                for parameter in (linear.weight, linear.bias):
                    first, *others = parameter.chunk(heads)
                    for other in others:
                        other.copy_(first)
            first, *others = attention.w_o.weight.chunk(heads, dim=1)
            for other in others:
                other.copy_(first)
        return model


class _Misreported(Transformer):
    def decode(self, tgt_in: torch.Tensor, memory: Memory, *args: Any, **kwargs: Any) -> DecoderOutput:
        """Read the next target tokens; see ``Seq2Seq.decode``. Maps of self-attention stand for those of cross."""
        decoding = super().decode(tgt_in, memory, *args, **kwargs)
        maps = decoding.decoder_weights
        if maps is None:
            return decoding
        source = memory.mask.shape[-1]
        shown = F.pad(maps, (0, max(0, source - maps.shape[-1])))[..., :source]
        return DecoderOutput(decoding.logits, decoding.cache, maps, shown)


class SelfPlottedAsCross(_OtherClasses):
    """The model is right; what it says that cross-attention looked at is its self-attention."""

    classes: ClassVar = {Transformer: _Misreported}


def _modules(model: nn.Module, kind: type[nn.Module]) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]
