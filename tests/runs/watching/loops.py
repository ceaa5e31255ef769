"""A small training by a loop of one's own, as a function and as a program; ``python -m tests.runs.watching.loops``."""

import argparse
import time
from pathlib import Path

import torch

from benchmarks import model_styles as styles
from core import lab

NAMES = ["<pad>", "<s>", "</s>", *"abcdefghijklmnopq"]
SRC, TGT = styles.make_batch(6, seed=1_000)
BATCH = SRC, TGT[:, :-1], TGT[:, 1:]
OPTIONS = {"pad": styles.PAD, "src_vocab": NAMES, "tgt_vocab": NAMES}


def made(style: str = "nn.Transformer") -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return a model with random weights, the same each time, and its optimizer."""
    torch.manual_seed(0)
    model = styles.STYLES[style]()
    return model, torch.optim.Adam(model.parameters(), lr=3e-3)


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> torch.Tensor:
    """Make an update; return its loss."""
    loss = styles.loss_of(model.train(), *styles.make_batch(16, seed=number))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main() -> None:
    """Train until killed, or for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--name", default="mine")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, optimizer = made()
    watch = lab.watch(
        model,
        BATCH,
        name=options.name,
        root=options.root,
        every=5,
        optimizer=optimizer,
        resume=options.resume,
        **OPTIONS,
    )
    print(f"watching {watch.name} from step {watch.last_step}", flush=True)
    while watch.last_step < options.steps:
        watch.step(update(model, optimizer, watch.last_step))
        time.sleep(options.seconds)


if __name__ == "__main__":
    main()
