"""``bench translate``: sentences per second of ``translate``, compared with CTranslate2 with the same weights.

Both decode ids on one thread, in float32 or with 8-bit products, greedily and with a beam without length penalty, which
the two define differently. Each batches the sources in its own way, or both take batches of the same numbers of
sources. Times are processor time, which other programs affect less.
"""

import argparse
import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.interleaved_timing import median_ratio, time_interleaved
from core.config.counting import percent
from core.generation import Beam, Greedy, Strategy
from core.generation.translation import decode_sources
from core.models.int8 import int8_copy
from core.models.transformer import Transformer
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.storage.errors import InputError
from core.tasks import Batch, Task, fixed_pairs
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

BASELINE_BATCH_SIZE = 32  # sources; CTranslate2's speed differs by less than a tenth with 16 and 64


@dataclass(frozen=True)
class TranslationSpeed:
    """Measurements with one strategy and way of batching: medians over interleaved rounds.

    Attributes:
        batch_size: sources that both decode together; None if each batches in its own way.
        sentences_per_second: of ours.
        mean_tokens: length of the outputs, without EOS.
        ratio: sentences per second of ours divided by those of CTranslate2; None without ``ctranslate2``.
        same: fraction of the sentences for which both give the same tokens.
    """

    strategy: str
    batch_size: int | None
    sentences_per_second: float
    mean_tokens: float
    ratio: float | None = None
    same: float | None = None


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print a table."""
    given = {"sentences": [options.sentences], "rounds": [options.rounds], "batch-sizes": options.batch_sizes or []}
    for name, counts in given.items():
        if any(count < 1 for count in counts):
            raise InputError(f"--{name}={min(counts)} must be at least 1")
    loaded = Runs(options.checkpoints or DEFAULT_ROOT, pairs=options.pairs)[options.run].trained()
    model, sources = loaded.model, sources_of(loaded.task, options.sentences)
    if not isinstance(model, Transformer):
        raise InputError(f"--run={options.run[:60]} must be an encoder-decoder Transformer")
    strategies: dict[str, Strategy] = {
        "greedy": Greedy(),
        f"beam {options.beam_size}": Beam(beam_size=options.beam_size, length_penalty=0),
    }
    speeds = []
    precision = "int8" if options.int8 else "float32"
    print(f"{len(sources)} sentences, 1 thread, {precision}, processor time, medians of {options.rounds} rounds")
    for speed in measure(
        model, sources, strategies, options.batch_sizes or [None], rounds=options.rounds, precision=precision
    ):
        speeds.append(speed)
        batches = "own batches" if speed.batch_size is None else f"batches of {speed.batch_size}"
        print(
            f"{speed.strategy:8} {batches:16} {speed.sentences_per_second:8.1f} sentences/s "
            f"of {speed.mean_tokens:.1f} tokens",
            end="",
        )
        if speed.ratio is None or speed.same is None:
            print("; to compare with CTranslate2: pip install -c requirements-extras.txt -e '.[parity]'")
        else:
            print(f", {speed.ratio:.2f} × CTranslate2; {percent(speed.same)} have the same tokens", flush=True)
    return {
        "run": options.run,
        "sentences": len(sources),
        "precision": precision,
        "strategies": [asdict(speed) for speed in speeds],
    }


def measure(
    model: Transformer,
    sources: list[list[int]],
    strategies: Mapping[str, Strategy],
    batch_sizes: Sequence[int | None],
    *,
    rounds: int,
    precision: str = "float32",
) -> Iterator[TranslationSpeed]:
    """Decode sources with every strategy and batch size, and with CTranslate2 if it is installed."""
    baseline, ours = None, int8_copy(model) if precision == "int8" else model
    if importlib.util.find_spec("ctranslate2"):
        from benchmarks import ctranslate2_baseline

        translator = ctranslate2_baseline.to_ctranslate2(model, precision)
        baseline = partial(ctranslate2_baseline.translate, translator, sources, max_steps=model.max_seq_len)
    for name, strategy in strategies.items():
        for batch_size in batch_sizes:
            decode = partial(decode_sources, ours, sources, strategy=strategy, batch_size=batch_size)
            outputs = decode()
            mean_tokens = sum(map(len, outputs)) / len(outputs)
            if baseline is None:
                (seconds,) = time_interleaved([decode], rounds=rounds, clock=time.process_time, warm_up=False)
                yield TranslationSpeed(name, batch_size, len(sources) / median(seconds), mean_tokens)
                continue
            decode_baseline = partial(
                baseline, beam_size=strategy.sequences_per_source, batch_size=batch_size or BASELINE_BATCH_SIZE
            )
            same = sum(ours == theirs for ours, theirs in zip(outputs, decode_baseline(), strict=True)) / len(outputs)
            seconds, baseline_seconds = time_interleaved(
                [decode, decode_baseline], rounds=rounds, clock=time.process_time, warm_up=False
            )
            ratio = median_ratio(baseline_seconds, seconds)
            yield TranslationSpeed(name, batch_size, len(sources) / median(seconds), mean_tokens, ratio, same)


def sources_of(task: Task, count: int) -> list[list[int]]:
    """Return test sources of a task without BOS and EOS, and training sources if there are not enough."""
    sources = _ids(fixed_pairs(task, count, split="test"))
    if len(sources) < count:
        sources += _ids(fixed_pairs(task, count - len(sources), split="train"))
    return sources


def _ids(pairs: Batch) -> list[list[int]]:
    return [[token for token in row if token not in (PAD_ID, BOS_ID, EOS_ID)] for row in pairs.src.tolist()]
