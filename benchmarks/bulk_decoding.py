"""Writing 10,000 held-out answers with the model that ships: together, one by one, by beam search, beside a rival.

Ours are in batches of one source length, as ``python -m core evaluate`` decodes each by itself. The rival is Hugging
Face's ``generate`` with our weights in their model of the same shape and a cache, where ``transformers`` is installed:
in padded batches of several sizes, of which it may choose the best, and once more in our batches.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.interleaved_timing import median_ratio, seconds_in_turns
from core.evaluation.accuracy import exact_match_unpadded, unpadded_batches
from core.generation import Beam
from core.interpret.inspection import inspect
from core.models import Seq2Seq
from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.tasks import fixed_pairs

RUN = "digits-reversal-shipped"
SEQUENCES, ALONE, ROUNDS, PAGES = 10_000, 200, 3, 20
BEAM_SIZE = 4
RIVAL_BATCHES = (64, 256, 1_000)


@dataclass(frozen=True)
class BulkFigures:
    """What was measured; medians of ``ROUNDS`` rounds, in turns.

    Attributes:
        sequences_per_second: greedy, in batches of one length, each of up to ``CHUNK`` in core.evaluation.accuracy.
        alone_ratio: time for a sequence by itself to that for one in a batch.
        beam_ratio: time of beam search to that of greedy decoding.
        rival_ratios: time of Hugging Face's ``generate`` to ours, for each size of its batches; none without
            ``transformers``.
        rival_ratio_grouped: the same for our batches.
        page_milliseconds: one input with the attention of all heads and everything else that a page shows.
    """

    sequences_per_second: float
    alone_ratio: float
    beam_ratio: float
    rival_ratios: dict[int, float]
    rival_ratio_grouped: float | None
    page_milliseconds: float


def measure_bulk() -> BulkFigures:
    """Time everything in turns."""
    loaded = Runs(DEFAULT_ROOT).loaded(RUN)
    model, pairs = loaded.model, fixed_pairs(loaded.task, SEQUENCES, split="test")
    few = [pairs[place : place + 1] for place in range(min(ALONE, len(pairs)))]
    typed = loaded.task.examples[0]
    ours = [
        lambda: exact_match_unpadded(model, pairs),
        lambda: exact_match_unpadded(model, pairs, strategy=Beam(beam_size=BEAM_SIZE)),
        lambda: [exact_match_unpadded(model, each) for each in few],
        lambda: [inspect(model, loaded.task, typed) for _ in range(PAGES)],
    ]
    padded = [pairs.src.split(size) for size in RIVAL_BATCHES]
    theirs = _theirs(model, [*padded, [each.src for _, each in unpadded_batches(pairs)]], pairs.tgt_out.shape[1])
    together, beam, alone, page, *rival = seconds_in_turns(ours + theirs, rounds=ROUNDS)
    *ratios, grouped = [median_ratio(each, together) for each in rival] or [None]
    return BulkFigures(
        len(pairs) / median(together),
        median_ratio(alone, together) * len(pairs) / len(few),
        median_ratio(beam, together),
        dict(zip(RIVAL_BATCHES, ratios, strict=False)),
        grouped,
        1000 * median(page) / PAGES,
    )


def _theirs(model: Seq2Seq, divided: list[Sequence[torch.Tensor]], steps: int) -> list[Callable[[], object]]:
    """Return what writes the same answers with Hugging Face's ``generate``, for sources divided in several ways."""
    if not importlib.util.find_spec("transformers"):
        return []
    from benchmarks.hugging_face import copied, generate

    rival = copied(model)
    return [lambda batches=batches: [generate(rival, src, max_steps=steps) for src in batches] for batches in divided]


def print_bulk(figures: BulkFigures) -> None:
    """Say it in a table."""
    theirs = "Hugging Face's generate"
    rows = [
        ("greedy", f"{figures.sequences_per_second:.0f}", "sequences/s"),
        ("one by one", f"{figures.alone_ratio:.1f}", f"times as long a sequence ({ALONE} of them)"),
        (f"beam {BEAM_SIZE}", f"{figures.beam_ratio:.2f}", "times as long"),
        ("one input, with all attention", f"{figures.page_milliseconds:.1f}", "ms"),
    ]
    for size, ratio in figures.rival_ratios.items():
        rows.append((theirs, f"{ratio:.1f}", f"times as long, in padded batches of {size:,}"))
    if figures.rival_ratio_grouped is None:
        rows.append((theirs, "", "not measured: pip install -r requirements-parity.txt"))
    else:
        rows.append((theirs, f"{figures.rival_ratio_grouped:.1f}", "times as long, in our batches"))
    print(f"\n{RUN}, {SEQUENCES:,} held-out sequences in batches of one length, medians of {ROUNDS} rounds")
    for what, value, unit in rows:
        print(f"  {what:30} {value:>8} {unit}")
