"""The encoder-decoder Transformer (Vaswani et al. 2017, figure 1)."""

from dataclasses import dataclass

import torch
from torch import nn

from core.models.embeddings import Output, Positions, TieEmbeddings, embeddings
from core.models.heads import NO_INTERVENTIONS, Interventions, heads_of
from core.models.layers import Activation, DecoderLayer, EncoderLayer, LayerCache, Norm
from core.models.positions import Rotation, alibi_bias, alibi_slopes, rotation_speeds
from core.models.seq2seq import DecoderOutput, Memory, Seq2Seq
from core.text.vocab import PAD_ID


@dataclass(frozen=True)
class TransformerCache:
    """What the decoder's layers need not compute again; ``past`` is the number of target tokens read so far."""

    layers: tuple[LayerCache, ...]
    past: int = 0

    def rows(self, index: torch.Tensor) -> "TransformerCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        return TransformerCache(tuple(layer.rows(index) for layer in self.layers), self.past)

    def reordered(self, index: torch.Tensor) -> "TransformerCache":
        """Return the cache of rows that go on from others of their sources; see ``Cache.reordered``."""
        return TransformerCache(tuple(layer.reordered(index) for layer in self.layers), self.past)


class Transformer(Seq2Seq):
    """Encoder and decoder stacks between embeddings and a biased output projection.

    Args:
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        d_model: width of every token's vector; divisible by ``num_heads``.
        num_heads: attention heads in every layer.
        num_encoder_layers, num_decoder_layers: depth of each stack.
        d_ff: width inside the feed-forward network.
        max_seq_len: most tokens on either side, BOS and EOS included.
        dropout: share zeroed on embeddings, attention weights and sublayer outputs in training.
        norm: layer norm behind each sublayer ("post", the paper's) or before it ("pre"), then also behind each stack.
        positions: added to the embeddings ("sinusoidal", "learned"), a bias on self-attention by distance ("alibi"),
            turns of what it gathers by distance ("vo-rope"), or none at all.
        activation: of the feed-forward networks.
        tie_embeddings: "output" gives the output projection the target embedding's weights, "all" the source embedding too.
        position_stretch: above 1, and with rotary values, the n-th token of a sequence that is trained on stands at n × s and
            not at n, on both sides, with s from 1 to this, drawn for each sequence. So distances are met that only
            longer inputs have: the idea of randomised positions (Ruoss et al. 2023), evenly spaced. Outside training
            s is 1.
        generator: source of dropout and stretch; None draws from PyTorch's global one.

    Raises:
        ValueError: all embeddings are to be tied, but the two vocabularies differ in size.
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
        norm: Norm = "post",
        positions: Positions = "sinusoidal",
        activation: Activation = "relu",
        tie_embeddings: TieEmbeddings = "none",
        position_stretch: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.max_seq_len = max_seq_len
        self.position_stretch, self.generator = position_stretch, generator
        common = {"d_model": d_model, "dropout": dropout, "generator": generator}
        self.src_embedding, self.tgt_embedding = embeddings(
            src_vocab_size=src_vocab_size,
            tgt_vocab_size=tgt_vocab_size,
            tie_embeddings=tie_embeddings,
            positions=positions,
            max_seq_len=max_seq_len,
            **common,
        )
        layer = common | {"num_heads": num_heads, "d_ff": d_ff, "norm": norm, "activation": activation}
        self.encoder_layers = nn.ModuleList(EncoderLayer(**layer) for _ in range(num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(**layer) for _ in range(num_decoder_layers))
        # States that no norm has touched on their way through a pre-norm stack need one behind it.
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(d_model) if norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.output = Output(d_model=d_model, vocab_size=tgt_vocab_size, is_tied=tie_embeddings != "none")
        self.register_buffer("slopes", alibi_slopes(num_heads) if positions == "alibi" else None, persistent=False)
        speeds = rotation_speeds(d_model // num_heads) if positions == "vo-rope" else None
        self.register_buffer("speeds", speeds, persistent=False)
        self.heads = (
            *heads_of("encoder", (layer.self_attention for layer in self.encoder_layers)),
            *heads_of("decoder", (layer.self_attention for layer in self.decoder_layers)),
            *heads_of("cross", (layer.cross_attention for layer in self.decoder_layers)),
        )

    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        """Read a source; see ``Seq2Seq.encode``."""
        mask = (src != PAD_ID)[:, None, None, :]  # (B, 1, 1, S)
        embed = self.tgt_embedding if self.src_embedding is None else self.src_embedding
        stride = self._drawn_stride(src.shape[0])
        x, bias, rotation = embed(src), self._bias(src.shape[1]), self._rotation(src.shape[1], stride)
        interventions, weights = interventions.checked(self.heads), []
        for number, layer in enumerate(self.encoder_layers, start=1):
            x, layer_weights = layer(
                x,
                mask,
                bias=bias,
                rotation=rotation,
                interventions=interventions.of_layer(number),
                need_weights=need_weights,
            )
            weights.append(layer_weights)
        kept = torch.stack(weights) if need_weights else None
        return Memory(self.encoder_norm(x), mask, kept, interventions=interventions, stride=stride)

    def decode(
        self,
        tgt_in: torch.Tensor,
        memory: Memory,
        cache: TransformerCache | None = None,
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Read the next target tokens; see ``Seq2Seq.decode``."""
        if cache is None:
            cache = TransformerCache(tuple(layer.new_cache(memory.states) for layer in self.decoder_layers))
        length, past = tgt_in.shape[1], cache.past
        visible = {
            "tgt_mask": causal_mask(length, past=past, device=tgt_in.device),
            "src_mask": memory.mask,
            "bias": self._bias(length, past=past),
            "rotation": self._rotation(length, memory.stride, past=past),
        }
        x = self.tgt_embedding(tgt_in, start=past)
        caches, self_weights, cross_weights = [], [], []
        for number, (layer, layer_cache) in enumerate(zip(self.decoder_layers, cache.layers, strict=True), start=1):
            interventions = memory.interventions.of_layer(number, past=past)
            x, layer_cache, of_self, of_cross = layer(
                x, layer_cache, **visible, interventions=interventions, need_weights=need_weights
            )
            caches.append(layer_cache)
            self_weights.append(of_self)
            cross_weights.append(of_cross)
        stacked = (torch.stack(self_weights), torch.stack(cross_weights)) if need_weights else (None, None)
        logits = self.output(self.decoder_norm(x), self.tgt_embedding)
        return DecoderOutput(logits, TransformerCache(tuple(caches), past + length), *stacked)

    def _bias(self, length: int, *, past: int = 0) -> torch.Tensor | None:
        """Return what distance adds to the self-attention of ``length`` tokens behind ``past`` ones, if anything."""
        if self.slopes is None:
            return None
        places = torch.arange(past + length, device=self.slopes.device)[None]
        return alibi_bias(self.slopes, places[:, past:], places)

    def _rotation(self, length: int, stride: torch.Tensor | None, *, past: int = 0) -> Rotation | None:
        """Return the turns at the places of ``length`` tokens behind ``past`` ones, if any."""
        if self.speeds is None:
            return None
        places = torch.arange(past, past + length, device=self.speeds.device)[None]
        return Rotation.of(places if stride is None else places * stride, self.speeds)

    def _drawn_stride(self, sequences: int) -> torch.Tensor | None:
        """Draw, in training, how far apart neighbours are in each sequence, (B, 1) float; None where it is always 1."""
        if not self.training or self.position_stretch == 1:
            return None
        share = torch.rand(sequences, 1, generator=self.generator, device=self.device)
        return 1 + share * (self.position_stretch - 1)


def causal_mask(length: int, *, past: int = 0, device: torch.device | None = None) -> torch.Tensor | None:
    """Return (length, past + length) bool: each new token sees all past ones, itself, and none behind it.

    One new token sees everything there is, so that needs no mask: None. PAD needs none either, since it only
    ever stands behind the real tokens of a target.
    """
    if length == 1:
        return None
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)
