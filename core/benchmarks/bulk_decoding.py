"""Writing 10,000 held-out answers with the model that ships: together, one by one, by beam search, beside a rival.

The rival is Hugging Face's ``generate`` with our weights in their model of the same shape, where ``transformers`` is
installed; both write in batches of the same size, with a cache.
"""

import importlib.util
from dataclasses import dataclass
from statistics import median

import torch

from core.benchmarks.in_turns import median_ratio, seconds_in_turns
from core.decoding import GREEDY, Beam
from core.evaluation import CHUNK, count_exact
from core.inspection import inspect
from core.models import Seq2Seq
from core.run_folder import DEFAULT_ROOT
from core.runs import Runs
from core.tasks import Batch, fixed_pairs

RUN = "digits-reversal-shipped"
SEQUENCES, ALONE, ROUNDS, PAGES = 10_000, 200, 3, 20
BEAM_SIZE = 4


@dataclass(frozen=True)
class BulkFigures:
    """What was measured; medians of ``ROUNDS`` rounds, in turns.

    Attributes:
        sequences_per_second: greedy, in batches of ``CHUNK``.
        alone_ratio: time for a sequence by itself to that for one in a batch.
        beam_ratio: time of beam search to that of greedy decoding.
        rival_ratio: time of Hugging Face's ``generate`` to ours; None without ``transformers``.
        page_milliseconds: one input with the attention of all heads and everything else that a page shows.
    """

    sequences_per_second: float
    alone_ratio: float
    beam_ratio: float
    rival_ratio: float | None
    page_milliseconds: float


def measure_bulk() -> BulkFigures:
    """Time everything in turns."""
    published = Runs(DEFAULT_ROOT).published(RUN)
    model, pairs = published.model, fixed_pairs(published.task, SEQUENCES, split="test")
    steps = pairs.tgt_out.shape[1]
    few = [pairs[place : place + 1] for place in range(min(ALONE, len(pairs)))]
    typed = published.task.examples[0]
    functions = [
        lambda: count_exact(model, pairs, GREEDY, max_steps=steps),
        lambda: count_exact(model, pairs, Beam(beam_size=BEAM_SIZE), max_steps=steps),
        lambda: [count_exact(model, each, GREEDY, max_steps=steps) for each in few],
        lambda: [inspect(model, published.task, typed) for _ in range(PAGES)],
    ]
    if importlib.util.find_spec("transformers"):
        functions.append(_theirs(model, pairs, steps))
    together, beam, alone, page, *theirs = seconds_in_turns(functions, rounds=ROUNDS)
    return BulkFigures(
        len(pairs) / median(together),
        median_ratio(alone, together) * len(pairs) / len(few),
        median_ratio(beam, together),
        median_ratio(theirs[0], together) if theirs else None,
        1000 * median(page) / PAGES,
    )


def _theirs(model: Seq2Seq, pairs: Batch, steps: int):
    """Return what writes the same answers with Hugging Face's ``generate``."""
    from core.benchmarks.hugging_face import copied, generate

    rival = copied(model)

    def write() -> None:
        with torch.no_grad():
            for start in range(0, len(pairs), CHUNK):
                generate(rival, pairs[start : start + CHUNK].src, max_steps=steps)

    return write


def print_bulk(figures: BulkFigures) -> None:
    """Say it in a table."""
    rival = "not measured: pip install -r requirements-parity.txt" if figures.rival_ratio is None else ""
    print(f"\n{RUN}, {SEQUENCES:,} held-out sequences in batches of {CHUNK:,}, medians of {ROUNDS} rounds")
    for what, value, unit in (
        ("greedy", f"{figures.sequences_per_second:.0f}", "sequences/s"),
        ("one by one", f"{figures.alone_ratio:.1f}", f"times as long a sequence ({ALONE} of them)"),
        (f"beam {BEAM_SIZE}", f"{figures.beam_ratio:.2f}", "times as long"),
        ("Hugging Face's generate", rival or f"{figures.rival_ratio:.1f}", "" if rival else "times as long"),
        ("one input, with all attention", f"{figures.page_milliseconds:.1f}", "ms"),
    ):
        print(f"  {what:30} {value:>8} {unit}")
