"""Bulk decoding of 10,000 held-out sources with the shipped model: greedy, one by one, and beam search.

The project decodes in batches of one source length, as ``python -m core evaluate`` does. The baseline is Hugging Face's
``generate`` with the same weights and a cache, if ``transformers`` is installed: in padded batches of several sizes and
in the project's batches.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from benchmarks.interleaved_timing import median_ratio, time_interleaved
from core.evaluation.outputs import exact_match_unpadded
from core.generation import Beam
from core.interpret.inspection import inspect
from core.models.transformer import Transformer
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.tasks import fixed_pairs, unpadded_batches

RUN = "digits-reversal-shipped"
SEQUENCES, SINGLE_SEQUENCES, ROUNDS, INSPECTIONS = 10_000, 200, 3, 20
BEAM_SIZE = 4
BASELINE_BATCH_SIZES = (64, 256, 1_000)


@dataclass(frozen=True)
class BulkSpeed:
    """Measurements: medians over ``ROUNDS`` interleaved rounds.

    Attributes:
        sequences_per_second: greedy, in batches of one length of up to ``CHUNK`` (core.evaluation.passes) sources.
        single_ratio: time per sequence decoded one by one divided by that in batches.
        beam_ratio: time of beam search divided by that of greedy decoding.
        baseline_ratios: time of Hugging Face's ``generate`` divided by ours, by its batch size; empty without
            ``transformers``.
        baseline_ratio_grouped: the same for our batches; None without ``transformers``.
        inspect_milliseconds: one input decoded with the attention of all heads, as the page does.
    """

    sequences_per_second: float
    single_ratio: float
    beam_ratio: float
    baseline_ratios: dict[int, float]
    baseline_ratio_grouped: float | None
    inspect_milliseconds: float


def measure_bulk() -> BulkSpeed:
    """Time everything, interleaved."""
    loaded = Runs(DEFAULT_ROOT)[RUN].trained()
    model, pairs = loaded.model, fixed_pairs(loaded.task, SEQUENCES, split="test")
    if not isinstance(model, Transformer):
        raise TypeError(f"{RUN} must be an encoder-decoder Transformer")
    singles = [pairs[index : index + 1] for index in range(min(SINGLE_SEQUENCES, len(pairs)))]
    text = loaded.task.examples[0]
    ours: list[Callable[[], object]] = [
        lambda: exact_match_unpadded(model, pairs),
        lambda: exact_match_unpadded(model, pairs, strategy=Beam(beam_size=BEAM_SIZE)),
        lambda: [exact_match_unpadded(model, single) for single in singles],
        lambda: [inspect(model, loaded.task, text) for _ in range(INSPECTIONS)],
    ]
    padded = [pairs.src.split(size) for size in BASELINE_BATCH_SIZES]
    grouped = [batch.src for _, batch in unpadded_batches(pairs)]
    baseline = _baseline_functions(model, [*padded, grouped], pairs.tgt_out.shape[1])
    greedy, beam, single, inspected, *others = time_interleaved(ours + baseline, rounds=ROUNDS)
    ratios = [median_ratio(seconds, greedy) for seconds in others]
    return BulkSpeed(
        sequences_per_second=len(pairs) / median(greedy),
        single_ratio=median_ratio(single, greedy) * len(pairs) / len(singles),
        beam_ratio=median_ratio(beam, greedy),
        baseline_ratios=dict(zip(BASELINE_BATCH_SIZES, ratios, strict=False)),
        baseline_ratio_grouped=ratios[-1] if ratios else None,
        inspect_milliseconds=1000 * median(inspected) / INSPECTIONS,
    )


def _baseline_functions(
    model: Transformer, batchings: list[Sequence[torch.Tensor]], max_steps: int
) -> list[Callable[[], object]]:
    """Return a function per way to batch the sources that decodes them with Hugging Face's ``generate``."""
    if not importlib.util.find_spec("transformers"):
        return []
    from benchmarks.hugging_face import generate, to_hugging_face

    baseline = to_hugging_face(model)

    def decode_all(batches: Sequence[torch.Tensor]) -> list[object]:
        return [generate(baseline, src, max_steps=max_steps) for src in batches]

    return [partial(decode_all, batches) for batches in batchings]


def print_bulk(speed: BulkSpeed) -> None:
    """Print a table."""
    rows = [
        ("greedy", f"{speed.sequences_per_second:.0f}", "sequences/s"),
        ("one by one", f"{speed.single_ratio:.1f}", f"× the time per sequence ({SINGLE_SEQUENCES} of them)"),
        (f"beam {BEAM_SIZE}", f"{speed.beam_ratio:.2f}", "× the time"),
        ("one input with all attention", f"{speed.inspect_milliseconds:.1f}", "ms"),
    ]
    name = "Hugging Face's generate"
    for size, ratio in speed.baseline_ratios.items():
        rows.append((name, f"{ratio:.1f}", f"× the time, in padded batches of {size:,}"))
    if speed.baseline_ratio_grouped is None:
        rows.append((name, "", "not measured: pip install -c requirements-extras.txt -e '.[parity]'"))
    else:
        rows.append((name, f"{speed.baseline_ratio_grouped:.1f}", "× the time, in batches of one length"))
    print(f"\n{RUN}, {SEQUENCES:,} held-out sequences in batches of one length, medians of {ROUNDS} rounds")
    for label, value, unit in rows:
        print(f"  {label:30} {value:>8} {unit}")
