"""The encoder-decoder Transformer (Vaswani et al. 2017, figure 1)."""

from dataclasses import dataclass

import torch
from torch import nn

from core.models.embeddings import Embedding
from core.models.layers import DecoderLayer, EncoderLayer, LayerCache
from core.models.seq2seq import Decoding, Memory, Seq2Seq
from core.vocab import PAD_ID


@dataclass(frozen=True)
class TransformerCache:
    """What the decoder's layers need not compute again; ``past`` is the number of target tokens read so far."""

    layers: tuple[LayerCache, ...]
    past: int = 0

    def rows(self, index: torch.Tensor) -> "TransformerCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        return TransformerCache(tuple(layer.rows(index) for layer in self.layers), self.past)


class Transformer(Seq2Seq):
    """Encoder and decoder stacks of post-norm layers, with separate embeddings and a biased output projection.

    Args:
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        d_model: width of every token's vector; divisible by ``num_heads``.
        num_heads: attention heads in every layer.
        num_encoder_layers, num_decoder_layers: depth of each stack.
        d_ff: width inside the feed-forward network.
        max_seq_len: most tokens on either side, BOS and EOS included.
        dropout: share zeroed on embeddings, attention weights and sublayer outputs in training.
        generator: source of the dropout; None draws from PyTorch's global one.
    """

    def __init__(
        self,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        d_model: int,
        num_heads: int,
        num_encoder_layers: int,
        num_decoder_layers: int,
        d_ff: int,
        max_seq_len: int,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.max_seq_len = max_seq_len
        common = {"d_model": d_model, "dropout": dropout, "generator": generator}
        self.src_embedding = Embedding(vocab_size=src_vocab_size, max_seq_len=max_seq_len, **common)
        self.tgt_embedding = Embedding(vocab_size=tgt_vocab_size, max_seq_len=max_seq_len, **common)
        layer = common | {"num_heads": num_heads, "d_ff": d_ff}
        self.encoder_layers = nn.ModuleList(EncoderLayer(**layer) for _ in range(num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(**layer) for _ in range(num_decoder_layers))
        self.output = nn.Linear(d_model, tgt_vocab_size)

    def encode(self, src: torch.Tensor, *, need_weights: bool = False) -> Memory:
        """Read a source; see ``Seq2Seq.encode``."""
        mask = (src != PAD_ID)[:, None, None, :]  # (B, 1, 1, S)
        x = self.src_embedding(src)
        weights = []
        for layer in self.encoder_layers:
            x, layer_weights = layer(x, mask, need_weights=need_weights)
            weights.append(layer_weights)
        return Memory(x, mask, torch.stack(weights) if need_weights else None)

    def decode(
        self,
        tgt_in: torch.Tensor,
        memory: Memory,
        cache: TransformerCache | None = None,
        *,
        need_weights: bool = False,
    ) -> Decoding:
        """Read the next target tokens; see ``Seq2Seq.decode``."""
        if cache is None:
            cache = TransformerCache(tuple(layer.new_cache(memory.states) for layer in self.decoder_layers))
        tgt_mask = causal_mask(tgt_in.shape[1], past=cache.past, device=tgt_in.device)
        x = self.tgt_embedding(tgt_in, start=cache.past)
        caches, self_weights, cross_weights = [], [], []
        for layer, layer_cache in zip(self.decoder_layers, cache.layers, strict=True):
            x, layer_cache, of_self, of_cross = layer(
                x, layer_cache, tgt_mask=tgt_mask, src_mask=memory.mask, need_weights=need_weights
            )
            caches.append(layer_cache)
            self_weights.append(of_self)
            cross_weights.append(of_cross)
        stacked = (torch.stack(self_weights), torch.stack(cross_weights)) if need_weights else (None, None)
        return Decoding(self.output(x), TransformerCache(tuple(caches), cache.past + tgt_in.shape[1]), *stacked)


def causal_mask(length: int, *, past: int = 0, device: torch.device | None = None) -> torch.Tensor | None:
    """Return (length, past + length) bool: each new token sees all past ones, itself, and none behind it.

    One new token sees everything there is, so that needs no mask: None. PAD needs none either, since it only
    ever stands behind the real tokens of a target.
    """
    if length == 1:
        return None
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)
