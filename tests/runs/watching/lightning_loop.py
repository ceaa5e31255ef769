"""The training of ``loops`` by Lightning; ``python -m tests.runs.watching.lightning_loop``."""

import argparse
import logging
import warnings
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import model_styles as styles
from core import lab
from tests.runs.watching.loops import BATCH, OPTIONS, made


class Module(lightning.LightningModule):
    """A module as Lightning trains it."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.made = made()

    def forward(self, src, tgt_in):
        return self.model(src, tgt_in)

    def training_step(self, batch, index):
        return styles.loss_of(self, *batch)

    def configure_optimizers(self):
        return self.made


def fit(root: Path, *, steps: int, name: str = "mine", accumulate: int = 1) -> Module:
    """Train for some updates."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    module = Module()
    watch = lab.watch(module, BATCH, name=name, root=root, every=5, **OPTIONS)
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=accumulate,
        callbacks=[watch.lightning()],
    )
    trainer.fit(module, DataLoader(TensorDataset(*styles.make_batch(64)), batch_size=16))
    return module


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--name", default="mine")
    options = parser.parse_args()
    fit(options.root, steps=1_000_000, name=options.name)
