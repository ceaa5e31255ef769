"""A causal language model: decoder layers without an encoder that read the source as the beginning of the text."""

import torch
from torch import nn

from core.config.sections import DecoderOnlyConfig
from core.models.additive_attention import is_last
from core.models.embeddings import Embedding, build_embeddings, build_output
from core.models.hooks import name_hook_points, set_step
from core.models.layers import DecoderContext, DecoderLayer, build_norm
from core.models.relative_bias import build_relative
from core.models.seq2seq import DecoderOutput, KeyValueCache, LayerCache, Memory, Seq2Seq
from core.models.transformer import causal_mask


class DecoderOnly(Seq2Seq):
    """Decoder layers over the source followed by the target; each token attends to itself and to earlier tokens.

    A batch pads sources on the right, so PAD is between a source and its target: nothing attends to it, and the
    target's positions continue where its source ends. Without ``config.source_eos``, the source's EOS is treated like
    PAD, so that only the target's BOS is between the two. Without ``config.target_bos``, the target's first position
    reads the last token of the source, which is treated like PAD in the source: the target continues it.

    Args:
        config: sizes and options; see ``core.config.sections.DecoderOnlyConfig``.
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        generator: source of dropout; None draws from PyTorch's global generator.

    Raises:
        ValueError: all embeddings are to be tied, but the two vocabularies differ in size.
    """

    src_embedding: Embedding | None
    tgt_embedding: Embedding

    def __init__(
        self,
        config: DecoderOnlyConfig,
        src_vocab_size: int,
        tgt_vocab_size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.source_bos, self.source_eos = config.source_bos, config.source_eos
        self.max_seq_len, self.vocab_sizes = config.max_seq_len, (src_vocab_size, tgt_vocab_size)
        self.src_embedding, self.tgt_embedding = build_embeddings(
            config, (src_vocab_size, tgt_vocab_size), 2 * config.max_seq_len, generator
        )
        layers = [DecoderLayer(config, generator, has_encoder=False) for _ in range(config.num_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = build_norm(config, generator) if config.norm == "pre" else nn.Identity()
        self.output = build_output(config, generator, tgt_vocab_size)
        self.relative = build_relative(config, is_causal=True)
        self.attention = {("decoder", n): layer.self_attention for n, layer in enumerate(layers, start=1)}
        name_hook_points(self)

    def encode(self, src: torch.Tensor) -> Memory:
        """Read a source (B, S) int64 as the beginning of the text; see ``Seq2Seq.encode``."""
        self.check_src(src)
        mask = self.source_mask(src)
        start = 0 if self.source_bos else src.new_full(src.shape[:1], -1)  # positions count from what is attended to
        last = None if self.config.target_bos else src.gather(1, self._is_last(src)[:, 0].int().argmax(dim=-1))
        embed = self.tgt_embedding if self.src_embedding is None else self.src_embedding
        ids = self._src_ids(src.shape[1])
        causal = causal_mask(src.shape[1], device=src.device)
        context = DecoderContext(mask if causal is None else mask & causal, positions=self.relative(ids, ids))
        x, layers = self._read(embed(src, start), tuple(LayerCache(None) for _ in self.layers), context)
        return Memory(x, mask, past=KeyValueCache(layers), last=last)

    def source_mask(self, src: torch.Tensor) -> torch.Tensor:
        """Return which tokens may be attended to; see ``Seq2Seq.source_mask``. The target may begin with the last."""
        mask = super().source_mask(src)
        return mask if self.config.target_bos else mask & ~self._is_last(src)

    def _is_last(self, src: torch.Tensor) -> torch.Tensor:
        """Return (B, 1, 1, S) bool: the last token that could be attended to, or BOS if there is none."""
        return is_last(super().source_mask(src))

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: KeyValueCache | None = None) -> DecoderOutput:
        """Read the next target tokens (B, T) int64; see ``Seq2Seq.decode``. Keys are the source, then the target."""
        cache = cache or memory.past
        if cache is None:
            raise ValueError("this memory has no cache: it is not of a decoder-only model")
        past = cache.length
        self.check_tgt_in(tgt_in, memory, past)
        end = past + tgt_in.shape[1]
        set_step(past)
        starts = memory.mask.sum(dim=-1)[:, 0, 0]  # (B,): where each source ends
        tgt_ids = starts[:, None] + torch.arange(end, device=tgt_in.device)  # (B, past + T)
        src_ids = self._src_ids(memory.mask.shape[-1]).expand(tgt_in.shape[0], -1)
        if not self.config.target_bos and not past:
            if memory.last is None:
                raise ValueError("this memory lacks the last token of its source, which the target begins with")
            tgt_in = torch.cat([memory.last, tgt_in[:, 1:]], dim=1)
        positions = self.relative(tgt_ids[:, past:], torch.cat([src_ids, tgt_ids], dim=1))
        mask = self._mask(memory, tgt_in.shape[1], past)
        x, layers = self._read(
            self.tgt_embedding(tgt_in, starts + past), cache.layers, DecoderContext(mask, None, positions)
        )
        return DecoderOutput(self.output(x, self.tgt_embedding), KeyValueCache(layers, end))

    def _src_ids(self, length: int) -> torch.Tensor:
        """Return the position ids of a source, (1, S) int64."""
        return torch.arange(length, device=self.device)[None] - (0 if self.source_bos else 1)

    def _read(
        self, x: torch.Tensor, caches: tuple[LayerCache, ...], context: DecoderContext
    ) -> tuple[torch.Tensor, tuple[LayerCache, ...]]:
        """Pass embedded tokens (B, T, D) through the stack; also return the extended caches."""
        layers = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, cache, context)
            layers.append(cache)
        return self.norm(x), tuple(layers)

    def _mask(self, memory: Memory, length: int, past: int) -> torch.Tensor:
        """Return (B, 1, T, S + past + T) bool: all of the source but PAD, and no later target token."""
        causal = causal_mask(length, past, memory.mask.device)
        if causal is None:
            causal = torch.ones(1, past + 1, dtype=torch.bool, device=memory.mask.device)
        source = memory.mask.expand(-1, -1, length, -1)
        return torch.cat([source, causal.expand(source.shape[0], 1, -1, -1)], dim=-1)
