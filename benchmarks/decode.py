"""``bench decode``: how fast a model writes."""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.bulk_decoding import measure_bulk, print_bulk
from benchmarks.interleaved_timing import median_ratio, seconds_in_turns
from core.config import load_preset
from core.generation import GREEDY, Beam, Strategy, generate
from core.models import Seq2Seq, build_model, count_parameters
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID

# The preset's own sizes, and a larger model; both with room for LONG tokens.
MODELS: dict[str, dict[str, Any]] = {
    "digits-reversal": {},
    "d_model 128, 4 heads, 2 + 2 layers": {"model.d_model": 128, "model.d_ff": 512},
}
PRESET = "digits-reversal"
ROUNDS = 7
BATCH, TOKENS, BEAM_SIZE = 8, 50, 4
LONG, PART = 500, 100


@dataclass(frozen=True)
class Figures:
    """What was measured of a model: medians of ``ROUNDS`` rounds.

    Attributes:
        tokens_per_second: greedy, one source.
        sequences_per_second: greedy, a batch of ``BATCH`` sources, ``TOKENS`` tokens read and written.
        beam_ratio, beam_ratio_batch: time of beam search to that of greedy decoding, one source and a batch.
        cache_bytes_per_token: (after ``PART`` tokens, after ``LONG``) what the cache grew by for each token so far.
        seconds_per_token: (of the first ``PART`` tokens, of the last) of ``LONG``, medians.
    """

    model: str
    parameters: int
    tokens_per_second: float
    sequences_per_second: float
    beam_ratio: float
    beam_ratio_batch: float
    cache_bytes_per_token: tuple[float, float]
    seconds_per_token: tuple[float, float]


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure untrained models that are kept from ending, and print a table."""
    measured = [measure(name, _endless(changes)) for name, changes in MODELS.items()]
    print(f"decoding on the CPU, 1 thread, medians of {ROUNDS} rounds")
    for figures in measured:
        _print(figures)
    bulk = measure_bulk()
    print_bulk(bulk)
    return {"models": [asdict(each) for each in measured], "bulk": asdict(bulk)}


def measure(name: str, model: Seq2Seq) -> Figures:
    """Time every kind of decode. Those that are compared alternate, so that a busy machine slows them alike."""
    one, batch = _sources(1), _sources(BATCH)
    beam = Beam(beam_size=BEAM_SIZE)
    runs = [(one, GREEDY), (one, beam), (batch, GREEDY), (batch, beam)]
    alone, alone_beam, together, together_beam = seconds_in_turns(
        [_decoding(model, *each) for each in runs], rounds=ROUNDS
    )
    beam_ratio, beam_ratio_batch = median_ratio(alone_beam, alone), median_ratio(together_beam, together)
    cache_bytes, seconds = _long_decode(model, one)
    return Figures(
        model=name,
        parameters=count_parameters(model),
        tokens_per_second=TOKENS / median(alone),
        sequences_per_second=BATCH / median(together),
        beam_ratio=beam_ratio,
        beam_ratio_batch=beam_ratio_batch,
        cache_bytes_per_token=cache_bytes,
        seconds_per_token=seconds,
    )


def _endless(changes: dict[str, Any]) -> Seq2Seq:
    """Build an untrained model that never writes EOS."""
    preset = load_preset(PRESET).with_changes(changes | {"model.max_seq_len": LONG + 2})
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.output.bias[EOS_ID] = -1e4
    return model


def _sources(count: int) -> torch.Tensor:
    """Return (count, TOKENS) int64 random sources of digits."""
    symbols = torch.randint(3, 13, (count, TOKENS), generator=torch.Generator().manual_seed(0))
    symbols[:, 0], symbols[:, -1] = BOS_ID, EOS_ID
    return symbols


def _decoding(model: Seq2Seq, src: torch.Tensor, strategy: Strategy) -> Callable[[], object]:
    return lambda: generate(model, src, max_steps=TOKENS, strategy=strategy)


@torch.no_grad()
def _long_decode(model: Seq2Seq, src: torch.Tensor) -> tuple[tuple[float, float], tuple[float, float]]:
    """Write LONG tokens one by one; see ``Figures.cache_bytes_per_token`` and ``Figures.seconds_per_token``."""
    memory, token, cache = model.encode(src), src[:, :1], None
    seconds, sizes = [], []
    for _ in range(LONG):
        started = time.perf_counter()
        step = model.decode(token, memory, cache)
        token, cache = step.logits.argmax(dim=-1), step.cache
        seconds.append(time.perf_counter() - started)
        sizes.append(sum(tensor.nbytes for tensor in _tensors_in(cache)))
    growth = tuple((sizes[count - 1] - sizes[0]) / (count - 1) for count in (PART, LONG))
    return growth, (median(seconds[:PART]), median(seconds[-PART:]))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Find the tensors of a cache, which is made of dataclasses and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors_in(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors_in(getattr(value, field.name))


def _print(figures: Figures) -> None:
    first, last = (1000 * seconds for seconds in figures.seconds_per_token)
    early, late = figures.cache_bytes_per_token
    print(f"\n{figures.model}: {figures.parameters:,} parameters")
    of_batch = f"{BATCH} sources of {TOKENS} tokens"
    for what, value, unit in (
        ("greedy, one source", f"{figures.tokens_per_second:.0f}", "tokens/s"),
        (f"greedy, {of_batch}", f"{figures.sequences_per_second:.1f}", "sequences/s"),
        (f"beam {BEAM_SIZE}, one source", f"{figures.beam_ratio:.2f}", "times as long as greedy"),
        (f"beam {BEAM_SIZE}, {of_batch}", f"{figures.beam_ratio_batch:.2f}", "times as long as greedy"),
        (f"cache after {LONG} tokens", f"{late:.0f}", f"bytes a token (after {PART}: {early:.0f})"),
        (f"one token, last {PART} of {LONG}", f"{last:.2f}", f"ms (first {PART}: {first:.2f})"),
    ):
        print(f"  {what:30} {value:>8} {unit}")
