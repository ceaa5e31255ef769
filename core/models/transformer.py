"""The encoder-decoder Transformer (Vaswani et al. 2017, figure 1)."""

import torch
from torch import nn

from core.config.sections import RELATIVE_POSITIONS, TransformerConfig
from core.models.embeddings import Embedding, build_embeddings, build_output
from core.models.hooks import name_hook_points, set_step
from core.models.layers import DecoderContext, DecoderLayer, EncoderLayer, build_norm
from core.models.positions import NO_POSITIONS, RelativePositions
from core.models.relative_bias import build_relative
from core.models.seq2seq import DecoderOutput, KeyValueCache, Memory, Seq2Seq
from core.models.step_weights import StepWeights


class Transformer(Seq2Seq):
    """Encoder and decoder stacks between embeddings and a biased output projection.

    Args:
        config: sizes and options; see ``core.config.sections.TransformerConfig``.
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        generator: source of dropout and position strides; None draws from PyTorch's global generator.

    Attributes:
        step_weights: what ``StepDecoder`` computes with, of a model that never changes; see ``core.models.int8``. None:
            the model's own weights.
    """

    step_weights: StepWeights | None = None
    src_embedding: Embedding | None
    tgt_embedding: Embedding

    def __init__(
        self,
        config: TransformerConfig,
        src_vocab_size: int,
        tgt_vocab_size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config, self.generator, self.max_seq_len = config, generator, config.max_seq_len
        self.vocab_sizes = src_vocab_size, tgt_vocab_size
        self.source_bos, self.source_eos = config.source_bos, config.source_eos
        self.attention_window = config.attention_window
        self.src_embedding, self.tgt_embedding = build_embeddings(
            config, (src_vocab_size, tgt_vocab_size), config.max_seq_len, generator
        )
        encoder = [EncoderLayer(config, generator) for _ in range(config.num_encoder_layers)]
        decoder = [DecoderLayer(config, generator) for _ in range(config.num_decoder_layers)]
        self.encoder_layers, self.decoder_layers = nn.ModuleList(encoder), nn.ModuleList(decoder)
        # The residual stream of a pre-norm stack is never normalized, so the stack needs a norm at the end.
        is_normed = config.norm == "pre" or config.final_norm == "always"
        self.encoder_norm, self.decoder_norm = (
            build_norm(config, generator) if is_normed else nn.Identity() for _ in range(2)
        )
        self.output = build_output(config, generator, tgt_vocab_size)
        self.relative, self.decoder_relative = (build_relative(config, is_causal=each) for each in (False, True))
        self.attention = {
            **{("encoder", n): layer.self_attention for n, layer in enumerate(encoder, start=1)},
            **{("decoder", n): layer.self_attention for n, layer in enumerate(decoder, start=1)},
            **{
                ("cross", n): layer.cross_attention for n, layer in enumerate(decoder, start=1) if layer.cross_attention
            },
        }
        name_hook_points(self)

    def encode(self, src: torch.Tensor) -> Memory:
        """Read a source (B, S) int64; see ``Seq2Seq.encode``."""
        self.check_src(src)
        mask = self.source_mask(src)
        start = 0 if self.source_bos else src.new_full(src.shape[:1], -1)  # positions count from what is attended to
        embed = self.tgt_embedding if self.src_embedding is None else self.src_embedding
        stride = self._draw_stride(src.shape[0])
        x, positions = embed(src, start), self._positions_of(self.relative, 0, src.shape[1], stride)
        window = window_mask(src.shape[1], self.attention_window, src.device)
        visible = mask if window is None else mask & window
        for layer in self.encoder_layers:
            x = layer(x, visible, positions)
        return Memory(self.encoder_norm(x), mask, stride=stride)

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: KeyValueCache | None = None) -> DecoderOutput:
        """Read the next target tokens (B, T) int64; see ``Seq2Seq.decode``."""
        self.check_tgt_in(tgt_in, memory, 0 if cache is None else cache.length)
        if cache is None:
            layers = (layer.new_cache(memory.states) for layer in self.decoder_layers)  # type: ignore[operator] # Module
            cache = KeyValueCache(tuple(layers))
        past, end = cache.length, cache.length + tgt_in.shape[1]
        set_step(past)
        mask = causal_mask(tgt_in.shape[1], past, tgt_in.device, self.attention_window)
        context = DecoderContext(mask, memory.mask, self._positions_of(self.decoder_relative, past, end, memory.stride))
        x, caches = self.tgt_embedding(tgt_in, past), []
        for layer, layer_cache in zip(self.decoder_layers, cache.layers, strict=True):
            x, layer_cache = layer(x, layer_cache, context)
            caches.append(layer_cache)
        logits = self.output(self.decoder_norm(x), self.tgt_embedding)
        return DecoderOutput(logits, KeyValueCache(tuple(caches), end))

    def _positions_of(
        self, relative: nn.Module, start: int, end: int, stride: torch.Tensor | None
    ) -> RelativePositions:
        """Return the relative positions of queries ``start`` to ``end`` and keys 0 to ``end``, ``stride`` apart."""
        if self.config.positions not in RELATIVE_POSITIONS:
            return NO_POSITIONS
        ids = torch.arange(end, device=self.device)[None]
        ids = ids if stride is None else ids * stride
        return relative(ids[:, start:], ids)

    def _draw_stride(self, batch_size: int) -> torch.Tensor | None:
        """In training, draw the distance between neighboring tokens of each sequence, (B, 1) float; None for 1.

        Larger strides show distances that only longer inputs have: randomized positions (Ruoss et al. 2023), evenly
        spaced. They are log-uniform, since inputs that are not stretched, of whatever length, have a stride of 1.
        """
        if not self.training or self.config.position_stretch == 1:
            return None
        fraction = torch.rand(batch_size, 1, generator=self.generator, device=self.device)
        return self.config.position_stretch**fraction


def causal_mask(length: int, past: int = 0, device: torch.device | None = None, window: int = 0) -> torch.Tensor | None:
    """Return (length, past + length) bool: each new token may attend to all past ones and itself.

    One new token may attend to everything: None. PAD needs no mask, since it only follows a target's real tokens.

    Args:
        window: how many of the tokens before it a token may attend to; 0 for all.
    """
    if length == 1 and not (window and (torch.compiler.is_exporting() or past > window)):
        return None
    visible = torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)
    return visible.triu(past - window) if window else visible


def window_mask(length: int, window: int, device: torch.device | None = None) -> torch.Tensor | None:
    """Return (length, length) bool: tokens may attend to tokens at most ``window`` positions away; None for 0."""
    if not window:
        return None
    return torch.ones(length, length, dtype=torch.bool, device=device).tril(window).triu(-window)
