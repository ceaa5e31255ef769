"""The GRU encoder-decoder with additive attention (Bahdanau et al. 2015), its encoder reading one way."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from core.models.attention import AdditiveAttention, KeysValues
from core.models.dropout import Dropout
from core.models.embeddings import Embedding
from core.models.heads import NO_INTERVENTIONS, Interventions, heads_of
from core.models.seq2seq import DecoderOutput, Memory, Seq2Seq
from core.text.vocab import PAD_ID


class Encoder(nn.Module):
    """A stack of GRU layers (Cho et al. 2014) with dropout between them.

    The layers are modules of their own because the dropout inside a stacked ``nn.GRU`` draws from PyTorch's global
    generator.
    """

    def __init__(
        self, *, d_embedding: int, d_hidden: int, num_layers: int, dropout: float, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        widths = [d_embedding, *[d_hidden] * (num_layers - 1)]
        self.layers = nn.ModuleList(nn.GRU(width, d_hidden, batch_first=True) for width in widths)
        self.dropout = Dropout(dropout, generator)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read embedded tokens (B, S, E).

        A layer reads from left to right, so what stands behind a sequence cannot change its outputs: it is enough
        to take the final state where the sequence ends.

        Args:
            lengths: (B,) int64, tokens to read of each sequence.

        Returns:
            Outputs of the last layer (B, S, D), and the state of each layer after its last token (L, B, D).
        """
        finals = []
        for number, layer in enumerate(self.layers):
            x, _ = layer(self.dropout(x) if number else x)
            finals.append(_states_at(x, lengths))
        return x, torch.stack(finals)


@dataclass(frozen=True)
class GRUCache:
    """Where the decoder stands.

    Attributes:
        hidden: (L, B, D) float, the state of each layer.
        memory: keys and values of the encoder's outputs, each (B, S, D).
        past: target tokens read so far.
    """

    hidden: torch.Tensor
    memory: KeysValues
    past: int = 0

    def rows(self, index: torch.Tensor) -> "GRUCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        keys, values = self.memory
        return GRUCache(self.hidden[:, index], (keys[index], values[index]), self.past)

    def reordered(self, index: torch.Tensor) -> "GRUCache":
        """Return the cache of rows that go on from others of their sources; see ``Cache.reordered``."""
        return replace(self, hidden=self.hidden[:, index]) if len(index) == self.hidden.shape[1] else self.rows(index)


class Decoder(nn.Module):
    """A stack of GRU layers that, at each step, first looks at the source with its last state."""

    def __init__(
        self, *, d_embedding: int, d_hidden: int, num_layers: int, dropout: float, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        widths = [d_embedding + d_hidden, *[d_hidden] * (num_layers - 1)]
        self.attention = AdditiveAttention(d_hidden=d_hidden)
        self.layers = nn.ModuleList(nn.GRUCell(width, d_hidden) for width in widths)
        self.dropout = Dropout(dropout, generator)

    def new_cache(self, memory: Memory) -> GRUCache:
        """Start where the encoder ended, and project its outputs once for all the steps to come."""
        return GRUCache(memory.final, self.attention.keys_values(memory.states))

    def forward(
        self, x: torch.Tensor, cache: GRUCache, mask: torch.Tensor, interventions: Interventions = NO_INTERVENTIONS
    ) -> tuple[torch.Tensor, GRUCache, torch.Tensor]:
        """Read embedded target tokens (B, T, E), one after the other.

        Args:
            cache: what earlier calls left.
            mask: (B, S) bool, True where the source is not PAD.
            interventions: what is done to the attention, the one head of cross-attention.

        Returns:
            States of the last layer (B, T, D), the cache behind these tokens, and the weights (B, T, S).
        """
        hidden, states, weights = cache.hidden, [], []
        for number, token in enumerate(x.unbind(dim=1), start=cache.past):
            edit = interventions.of_layer(1, past=number).get("cross")
            context, step_weights = self.attention(hidden[-1], cache.memory, mask, edit=edit)
            hidden = self._step(torch.cat([token, context], dim=-1), hidden)
            states.append(hidden[-1])
            weights.append(step_weights)
        cache = replace(cache, hidden=hidden, past=cache.past + x.shape[1])
        return torch.stack(states, dim=1), cache, torch.stack(weights, dim=1)

    def _step(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Update the state of every layer (L, B, D) with one input (B, E + D)."""
        states = []
        for layer, state in zip(self.layers, hidden, strict=True):
            states.append(layer(self.dropout(states[-1]) if states else x, state))
        return torch.stack(states)


class GRUSeq2Seq(Seq2Seq):
    """GRU encoder, additive attention, GRU decoder, and a biased output projection.

    Args:
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        d_embedding: width of every token's vector.
        d_hidden: width of every layer's state.
        num_layers: recurrent layers on each side.
        max_seq_len: most tokens on either side, BOS and EOS included.
        dropout: share zeroed on embeddings, between layers and before the output projection in training.
        mask_padding: False lets the encoder run on over the PAD behind a sequence, so that the decoder starts from
            a state that depends on the batch: a common mistake, kept to be looked at.
        generator: source of the dropout; None draws from PyTorch's global one.
    """

    def __init__(
        self,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        d_embedding: int,
        d_hidden: int,
        num_layers: int,
        max_seq_len: int,
        dropout: float = 0.0,
        mask_padding: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.max_seq_len = max_seq_len
        self.mask_padding = mask_padding
        common = {"dropout": dropout, "generator": generator}
        embedding = common | {"d_model": d_embedding, "max_seq_len": max_seq_len, "positions": "none"}
        self.src_embedding = Embedding(vocab_size=src_vocab_size, **embedding)
        self.tgt_embedding = Embedding(vocab_size=tgt_vocab_size, **embedding)
        stack = common | {"d_embedding": d_embedding, "d_hidden": d_hidden, "num_layers": num_layers}
        self.encoder = Encoder(**stack)
        self.decoder = Decoder(**stack)
        self.dropout = Dropout(dropout, generator)
        self.output = nn.Linear(d_hidden, tgt_vocab_size)
        self.heads = heads_of("cross", [self.decoder.attention])

    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        """Read a source; see ``Seq2Seq.encode``. The encoder has no attention to show."""
        mask = src != PAD_ID
        lengths = mask.sum(dim=1) if self.mask_padding else torch.full_like(src[:, 0], src.shape[1])
        states, final = self.encoder(self.src_embedding(src), lengths)
        return Memory(states, mask[:, None, None, :], final=final, interventions=interventions.checked(self.heads))

    def decode(
        self, tgt_in: torch.Tensor, memory: Memory, cache: GRUCache | None = None, *, need_weights: bool = False
    ) -> DecoderOutput:
        """Read the next target tokens; see ``Seq2Seq.decode``. The one map is of cross-attention: L = H = 1."""
        if cache is None:
            cache = self.decoder.new_cache(memory)
        x = self.tgt_embedding(tgt_in, start=cache.past)
        states, cache, weights = self.decoder(x, cache, memory.mask[:, 0, 0], memory.interventions)
        cross_weights = weights.detach()[None, :, None] if need_weights else None  # (1, B, 1, T, S)
        return DecoderOutput(self.output(self.dropout(states)), cache, cross_weights=cross_weights)


def _states_at(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Take from states (B, S, D) the one after ``lengths`` (B,) tokens, (B, D): zeros, where it all began, after 0."""
    last = states[torch.arange(len(states), device=states.device), (lengths - 1).clamp(min=0)]
    return last * (lengths > 0)[:, None]
