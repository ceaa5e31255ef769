"""A run that is paused, saved and resumed is the run that was never paused, bit for bit, with every option."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from core.config import Preset, preset_to_yaml, read_preset
from core.runs.training_state import load_state
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.loop import EndEvent, Event, StepEvent, train
from core.training.state import TrainingState
from tests.support.training_events import comparable

OPTIONS = {
    "plain": {},
    "epochs": {"training.training_sequences": 20},
    "adamw": {"training.optimizer": "adamw", "training.weight_decay": 0.1},
    "adam by hand": {"training.optimizer": "adam-by-hand", "training.teacher_forcing_ratio": 0.5},
    "muon": {"training.optimizer": "muon", "training.muon_learning_rate": 0.02},
    "rate of embeddings": {"training.embedding_learning_rate": 0.001, "training.adam_beta2": 0.98},
    "accumulation": {"training.gradient_accumulation_steps": 3},
    "accumulation, epochs": {"training.gradient_accumulation_steps": 3, "training.training_sequences": 20},
    "fresh by length": {"training.group_by_length": True},
    "curriculum": {"training.group_by_length": True, "training.curriculum_steps": 3},
    "epochs by length": {"training.group_by_length": True, "training.training_sequences": 20},
    "fresh by tokens": {"training.group_by_length": True, "training.tokens_per_batch": 40},
    "epochs by tokens": {
        "training.group_by_length": True,
        "training.tokens_per_batch": 40,
        "training.training_sequences": 20,
        "training.gradient_accumulation_steps": 2,
    },
    "scheduled sampling": {"training.teacher_forcing_ratio": 0.2, "training.teacher_forcing_schedule": "linear"},
    "label smoothing": {"training.label_smoothing": 0.1},
    "bfloat16": {"training.precision": "bfloat16"},
    "inverse-sqrt": {"training.schedule": "inverse-sqrt"},
    "cosine": {"training.schedule": "cosine"},
    "each gradient clipped": {"training.gradient_clipping": "per-parameter", "training.max_gradient_norm": 0.1},
    "polynomial": {"training.schedule": "polynomial", "training.decay_power": 2.0},
    "one-cycle": {"training.schedule": "one-cycle", "training.warmup_steps": 0},
    "many": {
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
FAMILIES = ("transformer", "gru", "decoder-only", "encoder-only")
DEFAULT_SUITE = {("transformer", name) for name in OPTIONS} | {(family, "many") for family in FAMILIES}
EVERY_OPTION = pytest.mark.parametrize(
    ("family", "option"),
    [
        pytest.param(family, option, marks=() if (family, option) in DEFAULT_SUITE else pytest.mark.slow)
        for family in FAMILIES
        for option in OPTIONS
    ],
)


def assert_same_state(one: TrainingState, other: TrainingState) -> None:
    """Weights, optimizer, generator and counters are equal bit for bit."""
    assert_close(dict(one.model.state_dict()), dict(other.model.state_dict()), atol=0, rtol=0)
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert_close(one.optimizer.state.get(mine), other.optimizer.state.get(theirs), atol=0, rtol=0)
    assert torch.equal(one.generator.get_state(), other.generator.get_state())
    fields = ("step", "evaluated_step", "best_loss", "best_step", "last_evaluation", "loss_sum", "sequences_seen")
    for name in (*fields, "last_loss", "last_gradient_norm"):
        assert getattr(one, name) == getattr(other, name), name


def events_with_pauses(state: TrainingState, path: Path, pauses: set[tuple[type[Event], int]]) -> Iterator:
    """Train to the end; at each pause save the state and resume from the file. Yield events, last the state."""
    events = train(state)
    for event in events:
        yield event
        if (type(event), event.step) in pauses:
            events.close()
            torch.rand(3)  # global draws between runs must not matter
            save_state(path, state)
            resumed = load_state(path, state.preset)
            assert_same_state(resumed, state)
            assert resumed.seconds == state.seconds
            yield from events_with_pauses(resumed, path, pauses - {(type(event), event.step)})
            return
    yield state


@pytest.fixture(scope="module")
def preset_of(tiny: Preset, tiny_gru: Preset):
    """Presets with dropout, so that the generator's state matters: six steps, evaluated at 0, 3 and 6."""
    short = {"training.steps": 6, "training.evaluate_every": 3}
    dropout = {"model.dropout": 0.2, "model.max_seq_len": 32}
    presets = {family: tiny.with_changes(dropout | {"model.family": family}) for family in FAMILIES if family != "gru"}
    return lambda family, option: (presets | {"gru": tiny_gru})[family].with_changes(short | OPTIONS[option])


@pytest.fixture(scope="module")
def straight(preset_of):
    """Events and final state of a run that was never paused, trained once; no test may change them."""

    @cache
    def trained(family: str, option: str) -> tuple[list[Event], TrainingState]:
        state = new_state(preset_of(family, option))
        return list(train(state)), state

    return trained


@EVERY_OPTION
def test_a_resumed_run_with_any_option_is_bit_exact(preset_of, straight, family, option, tmp_path):
    expected, never_paused = straight(family, option)
    pauses = {(StepEvent, 2), (StepEvent, 4)}  # before and after an evaluation
    *events, resumed = events_with_pauses(new_state(preset_of(family, option)), tmp_path / "last.safetensors", pauses)
    assert comparable(events) == comparable(expected)
    assert_same_state(resumed, never_paused)


@pytest.mark.parametrize("option", ["plain", "epochs"])
def test_a_run_may_be_paused_and_resumed_after_any_event(preset_of, straight, option, tmp_path):
    preset = preset_of("transformer", option)
    expected, never_paused = straight("transformer", option)
    pauses = {(type(event), event.step) for event in expected if not isinstance(event, EndEvent)}
    *events, resumed = events_with_pauses(new_state(preset), tmp_path / "last.safetensors", pauses)
    assert comparable(events) == comparable(expected)
    assert_same_state(resumed, never_paused)
    in_memory, events = new_state(preset), []
    for _ in expected:
        events.append(next(train(in_memory)))  # a new iterator for every event
    assert comparable(events) == comparable(expected)
    assert_same_state(in_memory, never_paused)


@EVERY_OPTION
def test_every_option_changes_the_run_and_survives_yaml(preset_of, straight, family, option):
    preset = preset_of(family, option)
    assert read_preset(preset_to_yaml(preset), name="x") == preset
    if option != "plain":
        changed, plain = (comparable(straight(family, each)[0]) for each in (option, "plain"))
        assert changed != plain
