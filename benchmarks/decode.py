"""``bench decode``: decoding speed of untrained models, then bulk decoding with the shipped one."""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.bulk_decoding import measure_bulk, print_bulk
from benchmarks.interleaved_timing import median_ratio, time_interleaved
from core.config import load_preset
from core.generation import GREEDY, Beam, Strategy, generate
from core.models import Seq2Seq, build_model, count_parameters
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID

# The preset's sizes and a larger model, both with room for MANY_TOKENS tokens.
MODELS: dict[str, dict[str, Any]] = {
    "digits-reversal": {},
    "d_model 128, 4 heads, 2 + 2 layers": {"model.d_model": 128, "model.d_ff": 512},
}
PRESET = "digits-reversal"
ROUNDS = 7
BATCH_SIZE, TOKENS, BEAM_SIZE = 8, 50, 4
MANY_TOKENS, SOME_TOKENS = 500, 100


@dataclass(frozen=True)
class DecodingSpeed:
    """Measurements of one model: medians over ``ROUNDS`` rounds.

    Attributes:
        tokens_per_second: greedy, one source.
        sequences_per_second: greedy, a batch of ``BATCH_SIZE`` sources, ``TOKENS`` tokens in and out.
        beam_ratio, beam_ratio_batch: time of beam search divided by that of greedy decoding, one source and a batch.
        cache_bytes_per_token: mean growth of the cache over ``SOME_TOKENS`` and over ``MANY_TOKENS`` tokens.
        seconds_per_token: medians over the first and the last ``SOME_TOKENS`` of ``MANY_TOKENS`` tokens.
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
    """Measure and print a table."""
    speeds = [measure(name, _build_endless_model(changes)) for name, changes in MODELS.items()]
    print(f"decoding on the CPU, 1 thread, medians of {ROUNDS} rounds")
    for speed in speeds:
        _print(speed)
    bulk = measure_bulk()
    print_bulk(bulk)
    return {"models": [asdict(speed) for speed in speeds], "bulk": asdict(bulk)}


def measure(name: str, model: Seq2Seq) -> DecodingSpeed:
    """Time greedy decoding and beam search of one source and of a batch, interleaved; then a long output."""
    single, batch = _random_sources(1), _random_sources(BATCH_SIZE)
    beam = Beam(beam_size=BEAM_SIZE)
    seconds = time_interleaved(
        [
            _decode_function(model, single, GREEDY),
            _decode_function(model, single, beam),
            _decode_function(model, batch, GREEDY),
            _decode_function(model, batch, beam),
        ],
        rounds=ROUNDS,
    )
    greedy_single, beam_single, greedy_batch, beam_batch = seconds
    cache_bytes, seconds_per_token = _measure_long_output(model, single)
    return DecodingSpeed(
        model=name,
        parameters=count_parameters(model),
        tokens_per_second=TOKENS / median(greedy_single),
        sequences_per_second=BATCH_SIZE / median(greedy_batch),
        beam_ratio=median_ratio(beam_single, greedy_single),
        beam_ratio_batch=median_ratio(beam_batch, greedy_batch),
        cache_bytes_per_token=cache_bytes,
        seconds_per_token=seconds_per_token,
    )


def _build_endless_model(changes: dict[str, Any]) -> Seq2Seq:
    """Build an untrained model that never predicts EOS."""
    preset = load_preset(PRESET).with_changes(changes | {"model.max_seq_len": MANY_TOKENS + 2})
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.get_parameter("output.bias")[EOS_ID] = -1e4
    return model


def _random_sources(count: int) -> torch.Tensor:
    """Return random digits as sources, (count, TOKENS) int64."""
    sources = torch.randint(3, 13, (count, TOKENS), generator=torch.Generator().manual_seed(0))
    sources[:, 0], sources[:, -1] = BOS_ID, EOS_ID
    return sources


def _decode_function(model: Seq2Seq, src: torch.Tensor, strategy: Strategy) -> Callable[[], object]:
    return lambda: generate(model, src, max_steps=TOKENS, strategy=strategy)


@torch.no_grad()
def _measure_long_output(model: Seq2Seq, src: torch.Tensor) -> tuple[tuple[float, float], tuple[float, float]]:
    """Decode MANY_TOKENS tokens; return ``cache_bytes_per_token`` and ``seconds_per_token`` of ``DecodingSpeed``."""
    memory, token, cache = model.encode(src), src[:, :1], None
    seconds, sizes = [], []
    for _ in range(MANY_TOKENS):
        started = time.perf_counter()
        step = model.decode(token, memory, cache)
        token, cache = step.logits.argmax(dim=-1), step.cache
        seconds.append(time.perf_counter() - started)
        sizes.append(sum(tensor.nbytes for tensor in _tensors_in(cache)))
    some, many = ((sizes[count - 1] - sizes[0]) / (count - 1) for count in (SOME_TOKENS, MANY_TOKENS))
    return (some, many), (median(seconds[:SOME_TOKENS]), median(seconds[-SOME_TOKENS:]))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a cache, which consists of dataclasses and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors_in(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors_in(getattr(value, field.name))


def _print(speed: DecodingSpeed) -> None:
    first, last = (1000 * seconds for seconds in speed.seconds_per_token)
    early, late = speed.cache_bytes_per_token
    print(f"\n{speed.model}: {speed.parameters:,} parameters")
    batch = f"{BATCH_SIZE} sources of {TOKENS} tokens"
    for label, value, unit in (
        ("greedy, one source", f"{speed.tokens_per_second:.0f}", "tokens/s"),
        (f"greedy, {batch}", f"{speed.sequences_per_second:.1f}", "sequences/s"),
        (f"beam {BEAM_SIZE}, one source", f"{speed.beam_ratio:.2f}", "× the time of greedy"),
        (f"beam {BEAM_SIZE}, {batch}", f"{speed.beam_ratio_batch:.2f}", "× the time of greedy"),
        (f"cache after {MANY_TOKENS} tokens", f"{late:.0f}", f"bytes per token (after {SOME_TOKENS}: {early:.0f})"),
        (f"one token, last {SOME_TOKENS} of {MANY_TOKENS}", f"{last:.2f}", f"ms (first {SOME_TOKENS}: {first:.2f})"),
    ):
        print(f"  {label:30} {value:>8} {unit}")
