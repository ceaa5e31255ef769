"""Run a training to its end, and compare what two trainings leave in their folders."""

from collections.abc import Callable
from typing import Any

import torch
from torch.testing import assert_close

from core.interpret.snapshots import Snapshot
from core.runs import RunFolder, RunInfo
from core.runs.replay import Replay
from core.runs.training import training
from core.runs.training_state import clone_weights, load_state
from core.runs.weights_by_step import WeightsByStep
from core.storage.tensor_file import load_weights
from core.teaching.bugs import new_state
from core.training.loop import Event, StepEvent
from core.training.state import TrainingState
from tests.support.run_helpers import read_rows


def train_run(
    folder: RunFolder,
    state: TrainingState | None = None,
    *,
    stop_after: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    **options: Any,
) -> RunInfo:
    """Train a run from where it is to its end, or until ``stop_after`` steps, and return how it ended."""
    with training(folder, state, **options) as run:
        for event in run:
            on_event(event)
            if isinstance(event, StepEvent) and stop_after is not None and event.step >= stop_after:
                break
    return run.info


def snapshots_of(folder: RunFolder) -> list[Snapshot]:
    """Return the attention snapshots in a run's folder."""
    return Replay.load(folder.replay_file, folder.read_preset().training.evaluate_every).snapshots()


def weights_by_step_of(folder: RunFolder) -> dict[int, dict[str, torch.Tensor]]:
    """Return the weights that a run has kept, by step."""
    kept = WeightsByStep.load(folder.weights_by_step_file)
    return {step: dict(kept.at(step) or {}) for step in kept.steps}


def assert_ends_alike(one: RunFolder, other: RunFolder) -> None:
    """Fail unless two runs have the same files bit for bit, but for names, dates and where they were stopped."""
    assert read_rows(one.metrics) == read_rows(other.metrics)
    preset = one.read_preset()
    first, second = load_state(one.last, preset), load_state(other.last, preset)
    assert_close(clone_weights(first.model), clone_weights(second.model), atol=0, rtol=0)
    best, other_best = new_state(preset).model, new_state(preset).model
    facts, other_facts = load_weights(one.best, best), load_weights(other.best, other_best)
    assert facts.pop("provenance")  # when it was trained, and where it was stopped
    assert other_facts.pop("provenance")
    assert facts == other_facts
    assert_close(clone_weights(best), clone_weights(other_best), atol=0, rtol=0)
    assert snapshots_of(one) == snapshots_of(other) != []
    assert_close(weights_by_step_of(one), weights_by_step_of(other), atol=0, rtol=0)
    assert set(weights_by_step_of(one)) >= {0, preset.training.steps}
    ignored = {"created", "seconds", "provenance", "metrics_sha256"}  # rows may be in another order
    assert one.read_info().model_dump(exclude=ignored) == other.read_info().model_dump(exclude=ignored)
