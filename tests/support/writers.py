"""Models to decode with in tests: one that looks at its source and stops now and then, and slow or scripted ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch.testing import assert_close

from core.generation import GenerationResult
from core.models import AttentionMaps
from core.models.decoder_only import DecoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.heads import NO_INTERVENTIONS, Interventions
from core.models.layers import Norm
from core.models.seq2seq import Cache, DecoderOutput, Memory, Seq2Seq
from core.models.transformer import Transformer
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def transformer(*, vocab_size: int = 13, seed: int = 1, max_seq_len: int = 16, norm: Norm = "post") -> Transformer:
    """A random model whose answers depend on the source and are short, long and without end, however decoded."""
    torch.manual_seed(seed)
    model = Transformer(
        src_vocab_size=13,
        tgt_vocab_size=vocab_size,
        d_model=16,
        num_heads=2,
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_ff=32,
        max_seq_len=max_seq_len,
        norm=norm,
    ).eval()
    with torch.no_grad():
        for layer in model.decoder_layers:
            layer.cross_attention.w_v.weight *= 4
            layer.cross_attention.w_o.weight *= 4
        model.output.weight *= 4.5
        model.output.bias[PAD_ID] = -100
    return model


def gru(*, vocab_size: int = 13, seed: int = 4, max_seq_len: int = 16) -> GRUSeq2Seq:
    """A random model as the one above."""
    torch.manual_seed(seed)
    model = GRUSeq2Seq(
        src_vocab_size=13,
        tgt_vocab_size=vocab_size,
        d_embedding=8,
        d_hidden=12,
        num_layers=2,
        max_seq_len=max_seq_len,
    ).eval()
    with torch.no_grad():
        model.decoder.attention.w_h.weight *= 3
        model.src_embedding.tokens.weight *= 3
        model.output.weight *= 16
        model.output.bias[PAD_ID] = -100
        model.output.bias[EOS_ID] += 0.5
    return model


def decoder_only(*, positions: str = "sinusoidal", seed: int = 2) -> DecoderOnly:
    """A random model as those above, without an encoder."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32, "max_seq_len": 16}
    model = DecoderOnly(src_vocab_size=13, tgt_vocab_size=13, positions=positions, **sizes).eval()
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attention.w_v.weight *= 3
        model.output.weight *= 4
        model.output.bias[PAD_ID] = -100
    return model


WRITERS = {"transformer": transformer, "gru": gru}


@dataclass(frozen=True)
class Read:
    """All target tokens (B, T) read so far."""

    tokens: torch.Tensor | None = None

    def rows(self, index: torch.Tensor) -> "Read":
        return Read(self.tokens[index])

    reordered = rows


class Recomputing(Seq2Seq):
    """A model that keeps nothing: for each token it reads all those before it again."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model, self.max_seq_len = model, model.max_seq_len

    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        return self.model.encode(src, need_weights=need_weights, interventions=interventions)

    def decode(
        self, tgt_in: torch.Tensor, memory: Memory, cache: Read | None = None, *, need_weights: bool = False
    ) -> DecoderOutput:
        tokens = torch.cat([cache.tokens, tgt_in], dim=1) if cache else tgt_in
        made = self.model.decode(tokens, memory, need_weights=need_weights)
        last = (None if w is None else w[:, :, :, -1:] for w in (made.decoder_weights, made.cross_weights))
        return DecoderOutput(made.logits[:, -1:], Read(tokens), *last)


@dataclass(frozen=True)
class Step:
    """How many tokens were read."""

    past: int = 0

    def rows(self, index: torch.Tensor) -> Cache:
        return self

    reordered = rows


class Reciting(Seq2Seq):
    """Has the same logits for every source: ``logits(past)`` (V,) float after ``past`` tokens, whichever they were."""

    max_seq_len = 512

    def __init__(self, logits: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self.logits = logits

    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        return Memory(src, (src != PAD_ID)[:, None, None, :])

    def decode(
        self, tgt_in: torch.Tensor, memory: Memory, cache: Step | None = None, *, need_weights: bool = False
    ) -> DecoderOutput:
        past = cache.past if cache else 0
        return DecoderOutput(self.logits(past).expand(len(tgt_in), 1, -1), Step(past + 1))


def sequences(lengths: list[int], *, vocab_size: int = 13) -> torch.Tensor:
    """Random rows (B, longest): BOS, symbols, EOS, PAD behind each row's length."""
    rows = torch.randint(3, vocab_size, (len(lengths), max(lengths)))
    ends = torch.tensor(lengths)[:, None]
    rows = rows.masked_fill(torch.arange(max(lengths)) >= ends, PAD_ID).scatter(1, ends - 1, EOS_ID)
    rows[:, 0] = BOS_ID
    return rows


def all_sequences(vocab_size: int, max_steps: int) -> Iterator[tuple[int, ...]]:
    """Everything that can be written: sequences that end with their only EOS, or without one at ``max_steps``."""
    others = [token for token in range(vocab_size) if token != EOS_ID]
    for length in range(1, max_steps + 1):
        for beginning in product(others, repeat=length - 1):
            yield (*beginning, EOS_ID)
    yield from product(others, repeat=max_steps)


def log_prob_of(model: Seq2Seq, row: torch.Tensor, tokens: tuple[int, ...]) -> float:
    """log P(tokens | source), as teacher forcing gives it."""
    logits, _ = model(row[None], torch.tensor([[BOS_ID, *tokens[:-1]]]))
    return logits[0].log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum().item()


def read_tokens(decoded: GenerationResult) -> torch.Tensor:
    """(B, T) int64: what the model read when it wrote ``decoded.tokens``."""
    return torch.nn.functional.pad(decoded.tokens[:, :-1], (1, 0), value=BOS_ID)


def steps_made(decoded: GenerationResult) -> torch.Tensor:
    """Tell which steps of a decode were made, (B, T) bool: what stands behind EOS means nothing."""
    return (decoded.tokens == EOS_ID).cumsum(1) - (decoded.tokens == EOS_ID).long() == 0


def assert_same_maps_where_made(decoded: GenerationResult, maps: AttentionMaps) -> None:
    """The maps of a decode are these, but for the rows of steps that were not made."""
    made = steps_made(decoded)[:, None, :, None]
    for block in ("encoder", "decoder", "cross"):
        ours, theirs = getattr(decoded.maps, block), getattr(maps, block)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            counts = 1 if block == "encoder" else made
            assert_close(ours * counts, theirs * counts, atol=1e-5, rtol=0)
