"""The presets called "as told" have the settings that their documents tell, mistakes included."""

from typing import Any

import pytest
import torch

from core.config import PRESET_FOLDER, load_preset
from core.models import build_model, count_parameters
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from core.training.optimizers import Adam, build_optimizer
from core.training.schedules import learning_rate_at, teacher_forcing_ratio_at

WORDS = (
    "the cat sat dog ran big small red blue on in mat hat house car tree bird fish quick lazy brown fox jumps over "
    "eats drinks happy sad fast slow old new hot cold"
)
TOLD: dict[str, dict[str, Any]] = {
    "words-reversal-gru-as-told": {
        "task.family": "words",
        "task.transform": "reverse",
        "task.min_length": 3,
        "task.max_length": 10,
        "task.unk_in_training": False,
        "model.family": "gru",
        "model.d_embedding": 128,
        "model.d_hidden": 256,
        "model.num_layers": 2,
        "model.dropout": 0.1,
        "model.mask_padding": False,
        "training.optimizer": "adam-by-hand",
        "training.weight_decay": 0.0,
        "training.training_sequences": 8_000,
        "training.validation_sequences": 1_000,
        "training.free_running_validation": True,
        "training.steps": 30 * 125,
        "training.evaluate_every": 125,
        "training.batch_size": 64,
        "training.gradient_accumulation_steps": 1,
        "training.group_by_length": False,
        "training.learning_rate": 0.001,
        "training.schedule": "constant",
        "training.warmup_steps": 0,
        "training.max_gradient_norm": 1.0,
        "training.label_smoothing": 0.0,
        "training.teacher_forcing_ratio": 0.5,
        "training.teacher_forcing_schedule": "constant",
        "training.precision": "float32",
        "training.seed": 42,
    },
    "digits-reversal-as-told": {
        "task.family": "digits",
        "task.transform": "reverse",
        "model.family": "transformer",
        "model.d_model": 64,
        "model.num_heads": 4,
        "model.num_encoder_layers": 2,
        "model.num_decoder_layers": 2,
        "model.d_ff": 128,
        "model.embedding_gain": 8.0,  # nn.Embedding's standard deviation of 1
        "training.optimizer": "adam",
        "training.weight_decay": 0.0,
        "training.training_sequences": 10_000,
        "training.steps": 100,
        "training.batch_size": 100,  # all sequences once
        "training.learning_rate": 0.001,
        "training.schedule": "constant",
        "training.warmup_steps": 0,
        "training.max_gradient_norm": 1_000.0,
        "training.label_smoothing": 0.0,
        "training.teacher_forcing_ratio": 1.0,
    },
    "numbers-reversal-as-told": {
        "task.family": "numbers",
        "task.transform": "reverse",
        "task.min_length": 10,
        "task.max_length": 10,
        "task.eos_in_targets": False,
        "task.markers_as_data": True,
        "model.family": "transformer",
        "model.d_model": 64,
        "model.num_heads": 4,
        "model.num_encoder_layers": 2,
        "model.num_decoder_layers": 2,
        "model.d_ff": 128,
        "model.max_seq_len": 30,
        "training.optimizer": "adam",
        "training.weight_decay": 0.0,
        "training.training_sequences": 0,
        "training.steps": 3_001,
        "training.batch_size": 16,
        "training.gradient_accumulation_steps": 1,
        "training.learning_rate": 0.001,
        "training.schedule": "constant",
        "training.warmup_steps": 0,
        "training.max_gradient_norm": 1_000.0,  # the largest allowed: the document clips nothing
        "training.label_smoothing": 0.0,
        "training.teacher_forcing_ratio": 1.0,
        "training.precision": "float32",
    },
}


@pytest.mark.parametrize("name", TOLD)
def test_every_setting_is_the_told_one(name):
    preset = load_preset(name).model_dump()
    actual = {key: preset[key.split(".")[0]][key.split(".")[1]] for key in TOLD[name]}
    assert actual == TOLD[name]
    assert preset["bug"] is None  # the mistakes are settings


def test_rate_and_forcing_are_constant_and_adam_has_its_usual_constants():
    for name in TOLD:
        preset = load_preset(name)
        training = preset.training
        steps = (1, 2, training.steps)
        assert {learning_rate_at(step, training) for step in steps} == {0.001}
        assert {teacher_forcing_ratio_at(step, training) for step in steps} == {training.teacher_forcing_ratio}
        optimizer = build_optimizer(training, torch.nn.Linear(2, 2))
        assert isinstance(optimizer, Adam if training.optimizer == "adam-by-hand" else torch.optim.Adam)
        assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.9, 0.999), 1e-8)


def test_the_gru_has_the_told_words_and_parameters_and_never_sees_unk():
    preset = load_preset("words-reversal-gru-as-told")
    task = build_task(preset.task)
    assert task.src_vocab.tokens == ("<PAD>", "<BOS>", "<EOS>", "<UNK>", *WORDS.split())
    model = build_model(preset.model, task, torch.Generator())
    embeddings, gates = 2 * 38 * 128, 3 * 256  # encoder and decoder; three gates of 256
    encoder = gates * (128 + 256 + 2) + gates * (256 + 256 + 2)
    decoder = gates * (128 + 256 + 256 + 2) + gates * (256 + 256 + 2)
    assert count_parameters(model) == embeddings + encoder + decoder + (2 * 256 * 256 + 256) + (256 + 1) * 38
    batch = task.sample(2_000, split="train", generator=torch.Generator().manual_seed(0))
    assert not (batch.src == UNK_ID).any()
    assert set(((batch.src > EOS_ID).sum(dim=1)).tolist()) == set(range(3, 11))
    assert task.src_vocab.encode(task.tokenize("the zebra sat"))[1] == UNK_ID


def test_the_numbers_are_drawn_uniformly_from_19_tokens_and_their_targets_do_not_end():
    task = build_task(load_preset("numbers-reversal-as-told").task)
    assert len(task.src_vocab) == 20
    batch = task.sample(20_000, split="train", generator=torch.Generator().manual_seed(0))
    symbols = batch.src[:, 1:-1]
    assert symbols.shape[1] == 10
    frequencies = symbols.flatten().bincount(minlength=20)
    assert frequencies[PAD_ID] == 0
    assert (frequencies[1:] / symbols.numel()).tolist() == pytest.approx([1 / 19] * 19, abs=0.003)
    assert torch.equal(batch.tgt_out[:, :10], symbols.flip(1))  # the flipped source, and no EOS after it
    assert (batch.tgt_out[:, 10:] == PAD_ID).all()
    assert (batch.tgt_in[:, 0] == BOS_ID).all()
    assert torch.equal(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])
    assert task.examples[0] == "5 12 7 3 9 11"


def test_held_out_numbers_have_no_markers_as_data():
    task = build_task(load_preset("numbers-reversal-as-told").task)
    for split in ("validation", "test"):
        batch = task.sample(500, split=split, generator=torch.Generator().manual_seed(0))
        assert (batch.src[:, 1:-1] > EOS_ID).all()


@pytest.mark.parametrize("name", ["digits-reversal", "digits-reversal-fast", "digits-reversal-as-told"])
def test_reversing_digits_has_the_told_shape(name):
    preset = load_preset(name)
    model = preset.model
    assert (model.d_model, model.num_heads, model.d_ff) == (64, 4, 128)
    assert (model.num_encoder_layers, model.num_decoder_layers, model.norm) == (2, 2, "post")
    task = build_task(preset.task)
    assert len(task.src_vocab) == 13
    assert count_parameters(build_model(model, task, torch.Generator())) == 169_933


@pytest.mark.parametrize("name", TOLD)
def test_the_comment_names_mistakes_and_differences(name):
    comment = (PRESET_FOLDER / f"{name}.yaml").read_text().split("\ndescription:")[0]
    for heading in ("# Mistakes kept", "# As in the document:", "# Still different from the document:"):
        assert heading in comment
