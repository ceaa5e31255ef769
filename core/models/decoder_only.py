"""A causal language model: the Transformer's decoder without an encoder, that reads the source as a beginning."""

import torch
from torch import nn

from core.models.embeddings import Output, Positions, TieEmbeddings, embeddings
from core.models.heads import NO_INTERVENTIONS, Interventions, heads_of
from core.models.layers import Activation, DecoderLayer, LayerCache, Norm
from core.models.positions import Rotation, alibi_bias, alibi_slopes, rotation_speeds
from core.models.seq2seq import DecoderOutput, Memory, Seq2Seq
from core.models.transformer import TransformerCache, causal_mask
from core.text.vocab import PAD_ID


class DecoderOnly(Seq2Seq):
    """Decoder layers over the source and, behind it, the target, each token seeing only what stands before it.

    A batch pads sources on the right, so PAD stands between a source and its target: nothing attends to it, and the
    target's places are counted from where its source ends.

    Args:
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        d_model: width of every token's vector; divisible by ``num_heads``.
        num_heads: attention heads in every layer.
        num_layers: depth of the stack.
        d_ff: width inside the feed-forward network.
        max_seq_len: most tokens on either side, BOS and EOS included.
        dropout, norm, positions, activation, tied, generator: as of ``Transformer``.

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
        num_layers: int,
        d_ff: int,
        max_seq_len: int,
        dropout: float = 0.0,
        norm: Norm = "post",
        positions: Positions = "sinusoidal",
        activation: Activation = "relu",
        tie_embeddings: TieEmbeddings = "none",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.max_seq_len = max_seq_len
        common = {"d_model": d_model, "dropout": dropout, "generator": generator}
        self.src_embedding, self.tgt_embedding = embeddings(
            src_vocab_size=src_vocab_size,
            tgt_vocab_size=tgt_vocab_size,
            tie_embeddings=tie_embeddings,
            positions=positions,
            max_seq_len=2 * max_seq_len,  # a source and a target
            **common,
        )
        layer = common | {"num_heads": num_heads, "d_ff": d_ff, "norm": norm, "activation": activation}
        self.layers = nn.ModuleList(DecoderLayer(**layer, has_encoder=False) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = Output(d_model=d_model, vocab_size=tgt_vocab_size, is_tied=tie_embeddings != "none")
        self.register_buffer("slopes", alibi_slopes(num_heads) if positions == "alibi" else None, persistent=False)
        speeds = rotation_speeds(d_model // num_heads) if positions == "vo-rope" else None
        self.register_buffer("speeds", speeds, persistent=False)
        self.heads = heads_of("decoder", (layer.self_attention for layer in self.layers))

    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        """Read a source as the beginning of what is to be written; see ``Seq2Seq.encode``. It keeps no maps."""
        self._check_length(src.shape[1])
        mask = (src != PAD_ID)[:, None, None, :]  # (B, 1, 1, S)
        embed = self.tgt_embedding if self.src_embedding is None else self.src_embedding
        places = torch.arange(src.shape[1], device=src.device)[None]
        causal = causal_mask(src.shape[1], device=src.device)
        visible = mask if causal is None else mask & causal
        interventions = interventions.checked(self.heads)
        where = {"bias": self._bias(places, places), "rotation": self._rotation(places)}
        x, layers, _ = self._read(embed(src), self._new_cache(), visible, interventions, **where)
        return Memory(x, mask, past=TransformerCache(layers), interventions=interventions)

    def decode(
        self,
        tgt_in: torch.Tensor,
        memory: Memory,
        cache: TransformerCache | None = None,
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Read the next target tokens; see ``Seq2Seq.decode``.

        Decoder maps are (L, B, H, T, S + past + T): the columns are those of the source and then of the target.
        """
        cache = cache or memory.past
        length, past, source = tgt_in.shape[1], cache.past, memory.mask.shape[-1]
        self._check_length(past + length)
        starts = memory.mask.sum(dim=-1)[:, 0, 0]  # (B,): where each source ends
        written = starts[:, None] + torch.arange(past + length, device=tgt_in.device)  # (B, past + T)
        read = torch.arange(source, device=tgt_in.device).expand(tgt_in.shape[0], -1)
        new = written[:, past:]
        where = {"bias": self._bias(new, torch.cat([read, written], dim=1)), "rotation": self._rotation(new)}
        x = self.tgt_embedding(tgt_in, start=starts + past)
        visible = self._visible(memory, length, past)
        x, layers, weights = self._read(x, cache.layers, visible, memory.interventions, need_weights, **where)
        decoder_weights = torch.stack(weights) if need_weights else None
        logits = self.output(x, self.tgt_embedding)
        return DecoderOutput(logits, TransformerCache(layers, past + length), decoder_weights=decoder_weights)

    def _read(
        self,
        x: torch.Tensor,
        cache: tuple[LayerCache, ...],
        mask: torch.Tensor,
        interventions: Interventions,
        need_weights: bool = False,
        **where: torch.Tensor | Rotation | None,
    ) -> tuple[torch.Tensor, tuple[LayerCache, ...], list[torch.Tensor | None]]:
        """Pass embedded tokens (B, T, D) through the stack: states, cache with them in it, and each layer's weights."""
        caches, weights = [], []
        for number, (layer, layer_cache) in enumerate(zip(self.layers, cache, strict=True), start=1):
            x, layer_cache, layer_weights, _ = layer(
                x,
                layer_cache,
                tgt_mask=mask,
                **where,
                interventions=interventions.of_layer(number),
                need_weights=need_weights,
            )
            caches.append(layer_cache)
            weights.append(layer_weights)
        return self.norm(x), tuple(caches), weights

    def _new_cache(self) -> tuple[LayerCache, ...]:
        return tuple(layer.new_cache(None) for layer in self.layers)

    def _visible(self, memory: Memory, length: int, past: int) -> torch.Tensor:
        """Return (B, 1, T, S + past + T) bool: all of the source but PAD, and no target token behind oneself."""
        causal = causal_mask(length, past=past, device=memory.mask.device)
        if causal is None:
            causal = torch.ones(1, past + 1, dtype=torch.bool, device=memory.mask.device)
        source = memory.mask.expand(-1, -1, length, -1)
        return torch.cat([source, causal.expand(source.shape[0], 1, -1, -1)], dim=-1)

    def _bias(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        return None if self.slopes is None else alibi_bias(self.slopes, queries, keys)

    def _rotation(self, places: torch.Tensor) -> Rotation | None:
        return None if self.speeds is None else Rotation.of(places, self.speeds)

    def _check_length(self, length: int) -> None:
        if length > self.max_seq_len:
            raise ValueError(f"{length} tokens, BOS and EOS in, are more than max_seq_len={self.max_seq_len}")
