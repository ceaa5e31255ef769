"""``bench growth``: time and memory of an update as width, length, vocabulary and batch grow, beside their theory.

In theory, the time grows as the floating-point operations of the matrix products, three times those of the forward
pass, and the memory as the weights with their gradients and Adam's moments, and what the backward pass reads. Each
point is an update of a Transformer with random tokens; processor time of one thread, in turns with all others.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from benchmarks.allocated_memory import highest_allocated_bytes
from benchmarks.interleaved_timing import time_interleaved
from core.config.sections import TransformerConfig
from core.evaluation.accuracy import sequence_loss
from core.models.initialization import initialize
from core.models.transformer import Transformer

FACTORS, ROUNDS = (1, 2, 4, 8, 16), 7
LAYERS, HEADS, FEED_FORWARD = 2, 4, 4  # of encoder and decoder each; of a layer; times the width
FLOAT, COPIES = 4, 4  # bytes; weights, gradients, two moments


@dataclass(frozen=True)
class Sizes:
    """What grows; the defaults are where it begins."""

    width: int = 32
    length: int = 16
    vocabulary: int = 64
    batch: int = 16

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products of an update."""
        tokens, layer = self.batch * self.length, 2 * self.width * self.width
        attention = 4 * layer + 4 * self.length * self.width  # projections, scores and sums, for each token
        feed_forward = 2 * FEED_FORWARD * layer
        forward = LAYERS * (3 * attention + 2 * feed_forward) + 2 * self.width * self.vocabulary
        return 3 * tokens * forward


@dataclass(frozen=True)
class Cost:
    """An update: milliseconds, median; bytes at the peak, and those of weights, optimizer and what backward reads."""

    size: str
    factor: int
    sizes: Sizes
    milliseconds: float
    allocated: int
    needed: int


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print a table; with ``--plot`` also draw it."""
    costs = measure()
    print(f"an update, relative to the first of its kind: median of {ROUNDS} rounds, one thread")
    print(f"  {'':12}{'':>6}{'ms':>9}{'time':>8}{'FLOPs':>8}{'GFLOP/s':>9}{'MB':>9}{'memory':>8}{'needed':>8}")
    for cost in costs:
        first = next(each for each in costs if each.size == cost.size)
        print(
            f"  {cost.size:12}{getattr(cost.sizes, cost.size):6}{cost.milliseconds:9.1f}"
            f"{cost.milliseconds / first.milliseconds:8.2f}{cost.sizes.flops / first.sizes.flops:8.2f}"
            f"{cost.sizes.flops / cost.milliseconds / 1e6:9.1f}{cost.allocated / 1e6:9.1f}"
            f"{cost.allocated / first.allocated:8.2f}{cost.needed / first.needed:8.2f}"
        )
    if options.plot:
        draw(costs, options.plot)
        print(f"drawn: {options.plot}")
    return {"costs": [asdict(cost) | {"flops": cost.sizes.flops} for cost in costs]}


def measure() -> list[Cost]:
    """Return the cost of every size and factor."""
    points = [
        (size, factor, replace(Sizes(), **{size: factor * getattr(Sizes(), size)}))
        for size in ("width", "length", "vocabulary", "batch")
        for factor in FACTORS
    ]
    updates = [_update(sizes) for _, _, sizes in points]
    seconds = time_interleaved(updates, rounds=ROUNDS, clock=time.process_time)
    return [
        Cost(size, factor, sizes, 1000 * median(times), *_memory(update))
        for (size, factor, sizes), update, times in zip(points, updates, seconds, strict=True)
    ]


def _update(sizes: Sizes) -> Callable[[], torch.nn.Module]:
    """Return a function that makes an update and returns the model."""
    config = TransformerConfig(
        family="transformer",
        d_model=sizes.width,
        num_heads=HEADS,
        num_encoder_layers=LAYERS,
        num_decoder_layers=LAYERS,
        d_ff=FEED_FORWARD * sizes.width,
        max_seq_len=sizes.length,
    )
    generator = torch.Generator().manual_seed(0)
    model = Transformer(config, sizes.vocabulary, sizes.vocabulary, generator).train()
    initialize(model, generator)
    optimizer = torch.optim.Adam(model.parameters())
    ids = torch.randint(4, sizes.vocabulary, (sizes.batch, sizes.length), generator=generator)

    def update() -> torch.nn.Module:
        optimizer.zero_grad()
        sequence_loss(model(ids, ids), ids).backward()
        optimizer.step()
        return model

    return update


def _memory(update: Callable[[], torch.nn.Module]) -> tuple[int, int]:
    """Return the peak of an update in bytes, and the bytes that weights, optimizer and the backward pass need."""
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        model = update()
    owned = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    state = COPIES * FLOAT * sum(weight.numel() for weight in model.parameters())
    for weight in model.parameters():
        weight.grad = None
    gradients = state // COPIES  # made in the update, so they are in the peak
    allocated = state - gradients + highest_allocated_bytes(update)
    return allocated, state + sum(size for place, size in saved.items() if place not in owned)


def draw(costs: list[Cost], path: Path) -> None:
    """Draw a panel for each size: time and memory, measured and in theory, relative to the first point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.9), layout="constrained")
    names = list(dict.fromkeys(cost.size for cost in costs))
    for axes, name in zip(figure.subplots(1, len(names), sharey=True), names, strict=True):
        own = [cost for cost in costs if cost.size == name]
        x = [getattr(cost.sizes, name) for cost in own]
        for label, color, measured, theory in (
            ("time", "#4f46e5", [cost.milliseconds for cost in own], [cost.sizes.flops for cost in own]),
            ("memory", "#ea580c", [cost.allocated for cost in own], [cost.needed for cost in own]),
        ):
            axes.plot(x, [each / measured[0] for each in measured], marker="o", markersize=3, color=color, label=label)
            axes.plot(x, [each / theory[0] for each in theory], "--", color=color, label=f"{label}, theory")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(x, [f"{each:,}" for each in x])
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("relative to the first point")
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
