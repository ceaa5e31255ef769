"""The recurrent encoder-decoder, with one of three kinds of attention or none; its encoder reads in one direction.

The cells are GRUs, LSTMs, plain RNNs or stack RNNs. The state of a layer, (…, N), is its hidden state (…, D); beside it
LSTMs have their cell state, so that N = 2 D, and stack RNNs their stack, so that N grows with every token.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import nn

from core.config.sections import GRUConfig
from core.models.additive_attention import AdditiveAttention, LastTokenAttention, LocationSensitiveAttention
from core.models.attention import KeysValues
from core.models.cells import LSTMCell, RecurrentLayer, RNNCell, StackRNNCell
from core.models.embeddings import Embedding
from core.models.hooks import HookPoint, name_hook_points, set_step
from core.models.kernels import Dropout
from core.models.seq2seq import DecoderOutput, Memory, Seq2Seq
from core.models.shape_checks import check_states

ATTENTION = {
    "additive": AdditiveAttention,
    "location-sensitive": LocationSensitiveAttention,
    "last-token": LastTokenAttention,
}
CELLS = {"gru": nn.GRUCell, "lstm": LSTMCell, "rnn": RNNCell, "stack-rnn": StackRNNCell}


class Encoder(nn.Module):
    """A stack of recurrent layers with dropout between them: GRUs (Cho et al. 2014), or other cells.

    The layers are modules of their own because the dropout inside a stacked ``nn.GRU`` draws from PyTorch's global
    generator.
    """

    def __init__(self, config: GRUConfig, generator: torch.Generator | None) -> None:
        super().__init__()
        widths = [config.d_embedding, *[config.d_hidden] * (config.num_layers - 1)]
        self.layers = nn.ModuleList(
            nn.GRU(width, config.d_hidden, batch_first=True)  # equals a layer of GRU cells and is faster
            if config.cell == "gru"
            else RecurrentLayer(CELLS[config.cell](width, config.d_hidden))
            for width in widths
        )
        self.d_embedding, self.d_hidden = config.d_embedding, config.d_hidden
        self.dropout = Dropout(config.dropout, generator)
        self.hook_states, self.hook_final = HookPoint(), HookPoint()

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read embedded tokens (B, S, E).

        A layer reads from left to right, so PAD after a sequence cannot change its outputs: it is sufficient to take
        the final state where the sequence ends.

        Args:
            lengths: (B,) int64, tokens to read of each sequence.

        Returns:
            Hidden states of the last layer (B, S, D), and the state of each layer after its last token (L, B, N).
        """
        check_states("x", x, self.d_embedding)
        if lengths.shape != x.shape[:1]:
            raise ValueError(
                f"lengths is {tuple(lengths.shape)}: it must be (B,) with B={len(x)}, one for each sequence"
            )
        finals = []
        for number, layer in enumerate(self.layers):
            states, _ = layer(self.dropout(x) if number else x)
            finals.append(_states_at(states, lengths))
            x = _hidden(states, self.d_hidden)
        return self.hook_states(x), self.hook_final(torch.stack(finals))


@dataclass(frozen=True)
class GRUCache:
    """The state of the decoder.

    Attributes:
        hidden: (L, B, N) float, the state of each layer.
        memory: keys and values of the encoder's outputs, each (B, S, D); None without attention.
        length: number of target tokens read so far.
        weights: (B, S) float, the attention of the last step; None before the first and without attention.
    """

    hidden: torch.Tensor
    memory: KeysValues | None
    length: int = 0
    weights: torch.Tensor | None = None

    def select(self, index: torch.Tensor) -> "GRUCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        memory = None if self.memory is None else (self.memory[0][index], self.memory[1][index])
        return replace(self._with_states_of(index), memory=memory)

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> "GRUCache":
        """Return the cache of rows that continue others of their sources; see ``Cache.reorder``."""
        if sources is not None or len(index) != self.hidden.shape[1]:
            return self.select(index)
        return self._with_states_of(index)

    def _with_states_of(self, index: torch.Tensor) -> "GRUCache":
        return replace(
            self, hidden=self.hidden[:, index], weights=None if self.weights is None else self.weights[index]
        )


class Decoder(nn.Module):
    """A stack of recurrent layers that, at each step, first attends to the source with its last hidden state.

    It starts from the encoder's final state, and reads the context beside the token. With last-token attention it does
    neither: only the output layer reads the source, so the answer is a linear function of the encoder's final state.
    Without attention it only starts from that state (Sutskever et al. 2014).
    """

    def __init__(self, config: GRUConfig, generator: torch.Generator | None) -> None:
        super().__init__()
        self.output_reads_context = config.attention_type == "last-token"
        d_context = config.d_hidden if config.attention_type not in ("last-token", "none") else 0
        widths = [config.d_embedding + d_context, *[config.d_hidden] * (config.num_layers - 1)]
        self.attention = None if config.attention_type == "none" else ATTENTION[config.attention_type](config.d_hidden)
        self.layers = nn.ModuleList(CELLS[config.cell](width, config.d_hidden) for width in widths)
        self.d_embedding, self.d_hidden = config.d_embedding, config.d_hidden
        self.dropout = Dropout(config.dropout, generator)
        self.hook_state = HookPoint()  # (L, B, N), after each step

    def new_cache(self, memory: Memory) -> GRUCache:
        """Return the cache before the first token, with the encoder's outputs projected once for all steps."""
        if memory.final is None:
            raise ValueError("this memory has no final state: it is not of a recurrent encoder")
        start = torch.zeros_like(memory.final) if self.output_reads_context else memory.final
        return GRUCache(start, None if self.attention is None else self.attention.keys_values(memory.states))

    def forward(self, x: torch.Tensor, cache: GRUCache, mask: torch.Tensor) -> tuple[torch.Tensor, GRUCache]:
        """Read embedded target tokens (B, T, E), one after the other.

        Args:
            mask: (B, 1, 1, S) bool, True where the source is not PAD.

        Returns:
            Hidden states of the last layer (B, T, D), with last-token attention each beside its context (B, T, 2 D);
            and the cache after these tokens.
        """
        check_states("x", x, self.d_embedding, batch=cache.hidden.shape[1])
        hidden, weights, states = cache.hidden, cache.weights, []
        for step, token in enumerate(x.unbind(dim=1), start=cache.length):
            set_step(step)
            context = token[:, :0]  # without attention, nothing
            if self.attention is not None:
                query = _hidden(hidden[-1], self.d_hidden)
                context, weights = self.attention(query, cast(KeysValues, cache.memory), mask, weights)
            read = token if self.output_reads_context else torch.cat([token, context], dim=-1)
            hidden = self.hook_state(self._step(read, hidden))
            state = _hidden(hidden[-1], self.d_hidden)
            states.append(torch.cat([state, context], dim=-1) if self.output_reads_context else state)
        length = cache.length + x.shape[1]
        return torch.stack(states, dim=1), replace(cache, hidden=hidden, length=length, weights=weights)

    def _step(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Update the state of every layer (L, B, N) with one input (B, E + D) or (B, E)."""
        states: list[torch.Tensor] = []
        for layer, state in zip(self.layers, hidden, strict=True):
            x = self.dropout(_hidden(states[-1], self.d_hidden)) if states else x
            states.append(layer(x, state))
        return torch.stack(states)


class GRUSeq2Seq(Seq2Seq):
    """Recurrent encoder, attention (Bahdanau et al. 2015), recurrent decoder, and a biased output projection.

    Args:
        config: sizes and options; see ``core.config.sections.GRUConfig``. ``mask_padding=False`` lets the encoder read
            the PAD after a sequence, so that the decoder starts from a state that depends on the batch: a common
            mistake, kept to be studied.
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        generator: source of the dropout; None draws from PyTorch's global generator.
    """

    def __init__(
        self, config: GRUConfig, src_vocab_size: int, tgt_vocab_size: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.max_seq_len, self.vocab_sizes = config.max_seq_len, (src_vocab_size, tgt_vocab_size)
        self.mask_padding, self.source_eos = config.mask_padding, config.source_eos
        self.src_embedding, self.tgt_embedding = (
            Embedding(size, config.d_embedding, Dropout(config.dropout, generator))
            for size in (src_vocab_size, tgt_vocab_size)
        )
        self.encoder = Encoder(config, generator)
        self.decoder = Decoder(config, generator)
        self.dropout = Dropout(config.dropout, generator)
        self.output = nn.Linear(config.d_hidden * (2 if self.decoder.output_reads_context else 1), tgt_vocab_size)
        self.hook_logits = HookPoint()
        self.attention = {} if self.decoder.attention is None else {("cross", 1): self.decoder.attention}
        name_hook_points(self)

    def encode(self, src: torch.Tensor) -> Memory:
        """Read a source (B, S) int64; see ``Seq2Seq.encode``. The encoder has no attention."""
        self.check_src(src)
        mask = self.source_mask(src)
        lengths = mask.sum(dim=-1)[:, 0, 0] if self.mask_padding else torch.full_like(src[:, 0], src.shape[1])
        states, final = self.encoder(self.src_embedding(src), lengths)
        return Memory(states, mask, final=final)

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: GRUCache | None = None) -> DecoderOutput:
        """Read the next target tokens (B, T) int64; see ``Seq2Seq.decode``."""
        self.check_tgt_in(tgt_in, memory, 0 if cache is None else cache.length)
        if cache is None:
            cache = self.decoder.new_cache(memory)
        states, cache = self.decoder(self.tgt_embedding(tgt_in), cache, memory.mask)
        return DecoderOutput(self.hook_logits(self.output(self.dropout(states))), cache)


def _hidden(state: torch.Tensor, d_hidden: int) -> torch.Tensor:
    """Return the hidden state (…, D) of a state (…, N)."""
    return state if state.shape[-1] == d_hidden else state[..., :d_hidden]


def _states_at(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Take from states (B, S, N) the one after ``lengths`` (B,) tokens; zeros, the initial state, after 0."""
    last = states[torch.arange(len(states), device=states.device), (lengths - 1).clamp(min=0)]
    return last * (lengths > 0)[:, None]
