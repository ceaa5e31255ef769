"""A training by the ``Trainer`` of transformers; ``python -m tests.runs.watching.transformers_loop``."""

import argparse
import logging
import tempfile
from pathlib import Path

import torch
import transformers

from benchmarks import model_styles as styles
from core import lab
from tests.runs.watching.loops import BATCH, OPTIONS


def train(root: Path, *, steps: int, name: str = "mine", every: int = 1) -> transformers.Trainer:
    """Train a small BART for some updates, with a log every ``every`` of them."""
    transformers.utils.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    config = transformers.BartConfig(
        vocab_size=styles.SIZE,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        pad_token_id=styles.PAD,
        bos_token_id=styles.BOS,
        eos_token_id=styles.EOS,
        decoder_start_token_id=styles.BOS,
    )
    model = transformers.BartForConditionalGeneration(config)
    src, tgt = styles.make_batch(64)
    labels = tgt[:, 1:].masked_fill(tgt[:, 1:] == styles.PAD, -100)
    rows = [
        {"input_ids": one, "attention_mask": (one != styles.PAD).long(), "decoder_input_ids": read, "labels": label}
        for one, read, label in zip(src, tgt[:, :-1], labels, strict=True)
    ]
    watch = lab.watch(model, BATCH, name=name, root=root, every=5, **OPTIONS)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            logging_steps=every,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[watch.transformers()])
        trainer.train()
    return trainer


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--name", default="mine")
    options = parser.parse_args()
    train(options.root, steps=1_000_000, name=options.name)
