"""An input is in the split from which it is drawn."""

import pytest
import torch

from core.config import load_preset
from core.tasks import build_task

PRESETS = ("digits-reversal", "words-reversal-transformer", "addition", "addition-10-digits", "plurals")


@pytest.mark.parametrize("preset", PRESETS)
def test_an_input_is_in_the_split_that_it_is_drawn_from(preset: str):
    task = build_task(load_preset(preset).task)
    for split in ("train", "validation", "test"):
        batch = task.sample(50, split=split, generator=torch.Generator().manual_seed(0))
        inputs = [task.src_vocab.decode([each for each in row if each > 2]) for row in batch.src.tolist()]
        read = [symbols for symbols in inputs if "<UNK>" not in symbols]  # a word that training hides
        assert len(read) > 20
        assert {task.split_of(symbols) for symbols in read} == {split}


def test_other_inputs_are_in_none():
    assert build_task(load_preset("plurals").task).split_of(list("blorf")) is None  # among no pairs
    assert build_task(load_preset("digits-reversal").task).split_of(list("12")) is None  # shorter than in training
    assert build_task(load_preset("addition").task).split_of([*"12345", "+", "1"]) is None
    words = build_task(load_preset("words-reversal-transformer").task)
    assert words.split_of(words.tokenize("the xylophone sat")) is None  # training hides words of its own inputs
