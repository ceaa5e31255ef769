"""Examine a model, trained or not: what is wrong with it, in words, and the figure behind every word.

The checks look at what model, data and loss do, and at nothing that a preset says of a bug.
"""

import time
from pathlib import Path

from core.checkpoint import load_weights
from core.config import Preset
from core.doctor import attention_checks, data_checks, learning_checks, run_checks, what_moves
from core.doctor.finding import Examination, Finding, Light
from core.doctor.patient import Patient
from core.run_folder import RunError, RunFolder
from core.run_folder.history import History
from core.training import EndEvent, TrainingState, new_state, train

__all__ = ["Examination", "Finding", "Light", "examine_preset", "examine_run", "examine_state"]


def examine_run(root: Path, name: str) -> Examination:
    """Examine a run by its best weights.

    Raises:
        RunError: there is no such run, or it has no weights yet.
    """
    folder = RunFolder(root, name)
    preset = folder.preset()
    if not folder.best.exists():
        raise RunError(f"run={name!r} has no weights yet; it is {folder.info().status}")
    state = new_state(preset)
    state.step = load_weights(folder.best, state.model)["step"]
    return examine_state(name, state, History.load(folder.metrics, preset.training.steps))


def examine_preset(preset: Preset, *, steps: int = 0) -> Examination:
    """Examine the model of a preset as it begins, or after some updates."""
    state, history = new_state(preset), History(preset.training.steps)
    for event in train(state, with_snapshots=False) if steps else ():
        if isinstance(event, EndEvent) or state.step >= steps:
            break
        history.add(event)
    return examine_state(preset.name, state, history)


def examine_state(name: str, state: TrainingState, history: History | None) -> Examination:
    """Examine a model with what it is trained on and by; its weights and its random numbers stay as they are.

    Args:
        name: what to call it.
        history: of its training so far.
    """
    started = time.perf_counter()
    was_training = state.model.training
    state.model.eval()
    try:
        findings = _findings(Patient(state, history))
    finally:
        state.model.train(was_training)
    return Examination(name, state.step, tuple(findings), time.perf_counter() - started)


def _findings(patient: Patient) -> list[Finding]:
    maps, calls = patient.watched()
    found = [
        data_checks.shift_of_targets(patient),
        data_checks.ends_of_targets(patient),
        data_checks.places_that_count(patient),
        what_moves.causal_leak(patient),
        what_moves.pad_influence(patient),
        what_moves.order_of_source(patient),
        attention_checks.row_sums(calls),
        attention_checks.score_scale(calls),
        attention_checks.picture(maps, calls),
        attention_checks.alike_heads(calls),
        attention_checks.entropy(calls, is_trained=patient.is_trained),
        attention_checks.embedding_scale(patient.model),
        learning_checks.residuals(patient),
        learning_checks.gradients(patient),
        learning_checks.first_loss(patient),
        learning_checks.size_of_updates(patient),
    ]
    return [*found, run_checks.gap(patient), run_checks.loss_curve(patient)] if patient.is_trained else found
