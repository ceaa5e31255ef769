"""Trimming removes padding only; fixed sets are the same for every run."""

import torch

from core.config import load_preset
from core.tasks import Batch, build_task, fixed_pairs
from tests.support.batches import numbered_pairs


def test_trimming_removes_only_columns_that_are_pad_in_all_rows():
    batch = numbered_pairs([2, 3, 1, 5])
    assert batch[:3].trimmed().src.tolist() == [[1, 1, 0], [2, 2, 2], [3, 0, 0]]
    assert batch.trimmed().src.shape == (4, 5)
    sides = Batch(batch.src[:1], batch.tgt[3:]).trimmed()
    assert (sides.src.shape, sides.tgt.shape) == ((1, 2), (1, 5))


# --- fixed sets


def test_the_words_presets_share_training_and_test_sentences():
    presets = [load_preset(f"words-reversal-{model}") for model in ("gru", "transformer", "gru-as-told")]
    for split, count in (("train", 8_000), ("validation", 1_000), ("test", 1_000)):
        sets = [fixed_pairs(build_task(preset.task), count, split=split) for preset in presets]
        assert [len(pairs) for pairs in sets] == [count] * 3
        assert torch.equal(sets[0].src, sets[1].src)
        assert split == "train" or torch.equal(sets[0].src, sets[2].src)  # without UNK others are drawn
    for preset in presets:
        config = preset.training
        assert (config.training_sequences, config.validation_sequences) == (8_000, 1_000)
        assert config.steps * config.batch_size == 30 * 8_000
        assert config.evaluate_every * config.batch_size == 8_000
