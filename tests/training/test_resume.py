"""Every option of training that draws numbers or keeps state: a run that is stopped and resumed is the same run."""

from itertools import islice

import pytest
import torch

from core.config import preset_to_yaml, read_preset
from core.runs.training_state import load_state
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.loop import train
from tests.training.test_loop import assert_same, essence, order

OPTIONS = {
    "adamw": {"training.optimizer": "adamw", "training.weight_decay": 0.1},
    "muon": {"training.optimizer": "muon", "training.muon_learning_rate": 0.02},
    "accumulated": {"training.gradient_accumulation_steps": 3},
    "accumulated epochs": {"training.gradient_accumulation_steps": 3, "training.training_sequences": 20},
    "fresh by length": {"training.group_by_length": True},
    "epochs by length": {"training.group_by_length": True, "training.training_sequences": 20},
    "scheduled sampling": {"training.teacher_forcing_ratio": 0.2, "training.teacher_forcing_schedule": "linear"},
    "smoothed": {"training.label_smoothing": 0.1},
    "bfloat16": {"training.precision": "bfloat16"},
    "inverse-sqrt": {"training.schedule": "inverse-sqrt"},
    "cosine": {"training.schedule": "cosine"},
    "quadratic": {"training.schedule": "quadratic"},
    "one-cycle": {"training.schedule": "one-cycle", "training.warmup_steps": 0},
    "all at once": {
        "training.optimizer": "adamw",
        "training.weight_decay": 0.1,
        "training.schedule": "one-cycle",
        "training.warmup_steps": 0,
        "training.gradient_accumulation_steps": 2,
        "training.training_sequences": 20,
        "training.group_by_length": True,
        "training.label_smoothing": 0.1,
        "training.teacher_forcing_ratio": 0.2,
        "training.teacher_forcing_schedule": "linear",
        "training.precision": "bfloat16",
    },
}

ALWAYS = (
    "all at once",
    "muon",
    "scheduled sampling",
    "epochs by length",
)  # the others are a sweep, run by its own command
EVERY_OPTION = pytest.mark.parametrize(
    "options",
    [
        pytest.param(changes, id=name, marks=() if name in ALWAYS else pytest.mark.slow)
        for name, changes in OPTIONS.items()
    ],
)


@pytest.fixture(params=["transformer", "gru", "decoder-only"])
def preset(tiny, tiny_gru, request):
    """A preset with dropout, so that the generator's state matters."""
    if request.param == "gru":
        return tiny_gru
    return tiny.with_changes({"model.family": request.param, "model.dropout": 0.2, "model.max_seq_len": 32})


@EVERY_OPTION
def test_a_run_with_any_option_continues_bit_for_bit(preset, options, tmp_path):
    preset = preset.with_changes(options)
    straight = new_state(preset)
    expected = list(train(straight))
    for pause in ("step 3", "evaluation 4", "step 5"):
        paused = new_state(preset)
        events = list(islice(train(paused), order(expected).index(pause) + 1))
        torch.rand(3)  # what others draw meanwhile changes nothing
        save_state(tmp_path / "last.safetensors", paused)
        state = load_state(tmp_path / "last.safetensors", preset)
        assert_same(state, paused)
        assert (state.last_loss, state.last_gradient_norm) == (paused.last_loss, paused.last_gradient_norm)
        events += train(state)
        assert essence(events) == essence(expected), pause
        assert_same(state, straight)


@EVERY_OPTION
def test_every_option_changes_the_run_and_survives_yaml(preset, options):
    changed = preset.with_changes(options)
    assert read_preset(preset_to_yaml(changed), name="x") == changed
    assert essence(train(new_state(changed))) != essence(train(new_state(preset)))
