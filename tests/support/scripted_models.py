"""Models for decoding tests: random models that depend on their source, and models with scripted outputs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch.testing import assert_close

from core.config.sections import DecoderOnlyConfig, EncoderOnlyConfig, GRUConfig, TransformerConfig
from core.generation import GenerationResult
from core.models import AttentionMaps
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.seq2seq import Cache, DecoderOutput, Memory, Seq2Seq
from core.models.transformer import Transformer
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

CONFIGS = {
    Transformer: TransformerConfig,
    DecoderOnly: DecoderOnlyConfig,
    EncoderOnly: EncoderOnlyConfig,
    GRUSeq2Seq: GRUConfig,
}


def make_model(
    kind: type[Seq2Seq],
    *,
    src_vocab_size: int = 13,
    tgt_vocab_size: int = 13,
    generator: torch.Generator | None = None,
    **config: Any,
) -> Any:
    """A model of this class with these values in its config section and PyTorch's default weights."""
    section = CONFIGS[kind](**({"dropout": 0.0} | config))
    return kind(section, src_vocab_size, tgt_vocab_size, generator)


def transformer(*, vocab_size: int = 13, seed: int = 1, max_seq_len: int = 16, norm: str = "post") -> Transformer:
    """A random Transformer with outputs that depend on the source; some end early, some late, some never."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "d_ff": 32}
    model = make_model(Transformer, tgt_vocab_size=vocab_size, max_seq_len=max_seq_len, norm=norm, **sizes).eval()
    with torch.no_grad():
        for layer in model.decoder_layers:
            layer.cross_attention.w_v.weight *= 4
            layer.cross_attention.w_o.weight *= 4
        model.output.weight *= 4.5
        model.output.bias[PAD_ID] = -100
    return model


def gru(*, vocab_size: int = 13, seed: int = 4, max_seq_len: int = 16) -> GRUSeq2Seq:
    """A random GRU model with outputs like those of ``transformer``."""
    torch.manual_seed(seed)
    sizes = {"d_embedding": 8, "d_hidden": 12, "num_layers": 2}
    model = make_model(GRUSeq2Seq, tgt_vocab_size=vocab_size, max_seq_len=max_seq_len, **sizes).eval()
    with torch.no_grad():
        model.decoder.attention.w_h.weight *= 3
        model.src_embedding.tokens.weight *= 3
        model.output.weight *= 16
        model.output.bias[PAD_ID] = -100
        model.output.bias[EOS_ID] += 0.5
    return model


def decoder_only(*, positions: str = "sinusoidal", seed: int = 2) -> DecoderOnly:
    """A random decoder-only model with outputs like those of ``transformer``."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32, "max_seq_len": 16}
    model = make_model(DecoderOnly, positions=positions, **sizes).eval()
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attention.w_v.weight *= 3
        model.output.weight *= 4
        model.output.bias[PAD_ID] = -100
    return model


def encoder_only(
    *, positions: str = "sinusoidal", norm: str = "post", seed: int = 7, vocab_size: int = 13
) -> EncoderOnly:
    """A random encoder-only model with outputs like those of ``transformer``."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32, "max_seq_len": 16}
    sizes |= {"src_vocab_size": vocab_size, "tgt_vocab_size": vocab_size}
    model = make_model(EncoderOnly, positions=positions, norm=norm, **sizes).eval()
    with torch.no_grad():
        for layer in model.encoder_layers:
            layer.self_attention.w_v.weight *= 3
        model.output.weight *= 4
        model.output.bias[PAD_ID] = -100
        model.output.bias[EOS_ID] += 1
    return model


RANDOM_MODELS = {"transformer": transformer, "gru": gru}


@dataclass(frozen=True)
class TokenCache:
    """A cache that stores the decoder input (B, T) itself instead of keys and values."""

    tokens: torch.Tensor | None = None

    def select(self, index: torch.Tensor) -> "TokenCache":
        return TokenCache(self.tokens[index])

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> "TokenCache":
        return self.select(index)


class UncachedModel(Seq2Seq):
    """Wraps a model so that every step decodes the whole prefix again, without a key-value cache."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model, self.max_seq_len, self.vocab_sizes = model, model.max_seq_len, model.vocab_sizes

    def encode(self, src: torch.Tensor) -> Memory:
        return self.model.encode(src)

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: TokenCache | None = None) -> DecoderOutput:
        tokens = torch.cat([cache.tokens, tgt_in], dim=1) if cache else tgt_in
        output = self.model.decode(tokens, memory)
        return DecoderOutput(output.logits[:, -1:], TokenCache(tokens))


@dataclass(frozen=True)
class StepCache:
    """A cache that only counts the decoded steps."""

    past: int = 0

    def select(self, index: torch.Tensor) -> Cache:
        return self

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> Cache:
        return self


class ScriptedModel(Seq2Seq):
    """Outputs the tokens ``answers(src)`` (B, T) for sources ``src`` (B, S), whatever the decoder input is."""

    def __init__(
        self, answers: Callable[[torch.Tensor], torch.Tensor], max_seq_len: int = 64, vocab_size: int = 13
    ) -> None:
        super().__init__()
        self.answers, self.max_seq_len, self.vocab_sizes = answers, max_seq_len, (vocab_size, vocab_size)

    def encode(self, src: torch.Tensor) -> Memory:
        return Memory(src, (src != PAD_ID)[:, None, None, :])

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: StepCache | None = None) -> DecoderOutput:
        past = cache.past if cache else 0
        end = past + tgt_in.shape[1]
        answers = self.answers(memory.states)
        answers = torch.nn.functional.pad(answers, (0, max(0, end - answers.shape[1])))[:, past:end]
        return DecoderOutput(torch.nn.functional.one_hot(answers, self.vocab_sizes[1]) * 50.0, StepCache(end))


class FixedLogitsModel(Seq2Seq):
    """Returns ``logits(past)``, (V,) float, after ``past`` tokens, whatever the source and the prefix."""

    max_seq_len, vocab_sizes = 512, (512, 512)

    def __init__(self, logits: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self.logits = logits

    def encode(self, src: torch.Tensor) -> Memory:
        return Memory(src, (src != PAD_ID)[:, None, None, :])

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: StepCache | None = None) -> DecoderOutput:
        past = cache.past if cache else 0
        return DecoderOutput(self.logits(past).expand(len(tgt_in), 1, -1), StepCache(past + 1))


def random_sequences(lengths: list[int], *, vocab_size: int = 13) -> torch.Tensor:
    """Random ids (B, max(lengths)) int64: BOS, symbols, EOS, then PAD."""
    rows = torch.randint(3, vocab_size, (len(lengths), max(lengths)))
    ends = torch.tensor(lengths)[:, None]
    rows = rows.masked_fill(torch.arange(max(lengths)) >= ends, PAD_ID).scatter(1, ends - 1, EOS_ID)
    rows[:, 0] = BOS_ID
    return rows


def unended_sequences(lengths: list[int], width: int) -> torch.Tensor:
    """Random ids (B, width) int64: BOS, symbols, then PAD after each row's length."""
    rows = torch.randint(3, 13, (len(lengths), width))
    rows[:, 0] = BOS_ID
    return rows.masked_fill(torch.arange(width) >= torch.tensor(lengths)[:, None], PAD_ID)


def all_sequences(vocab_size: int, max_steps: int) -> Iterator[tuple[int, ...]]:
    """Every possible output: sequences that end with their only EOS, and those of ``max_steps`` tokens without one."""
    others = [token for token in range(vocab_size) if token != EOS_ID]
    for length in range(1, max_steps + 1):
        for prefix in product(others, repeat=length - 1):
            yield (*prefix, EOS_ID)
    yield from product(others, repeat=max_steps)


def sequence_log_prob(model: Seq2Seq, row: torch.Tensor, tokens: tuple[int, ...]) -> float:
    """log P(tokens | source) under teacher forcing."""
    logits = model(row[None], torch.tensor([[BOS_ID, *tokens[:-1]]]))
    return logits[0].log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum().item()


def decoder_inputs(decoded: GenerationResult) -> torch.Tensor:
    """The decoder input (B, T) int64 of a result: its tokens shifted right, BOS first."""
    return torch.nn.functional.pad(decoded.tokens[:, :-1], (1, 0), value=BOS_ID)


def valid_steps(decoded: GenerationResult) -> torch.Tensor:
    """Mask (B, T) bool of the steps up to and including EOS; later steps are padding."""
    return (decoded.tokens == EOS_ID).cumsum(1) - (decoded.tokens == EOS_ID).long() == 0


def assert_same_maps_at_valid_steps(decoded: GenerationResult, maps: AttentionMaps) -> None:
    """Assert that the maps of a result equal ``maps`` in all rows up to EOS."""
    valid = valid_steps(decoded)[:, None, :, None]
    for block in ("encoder", "decoder", "cross"):
        ours, theirs = getattr(decoded.maps, block), getattr(maps, block)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            mask = 1 if block == "encoder" else valid
            assert_close(ours * mask, theirs * mask, atol=1e-5, rtol=0)


def reversing(src: torch.Tensor) -> torch.Tensor:
    """The correct outputs, with EOS."""
    rows = []
    for row in src.tolist():
        symbols = row[1 : row.index(EOS_ID)]
        rows.append([*symbols[::-1], EOS_ID] + [PAD_ID] * (src.shape[1] - len(symbols)))
    return torch.tensor(rows)
