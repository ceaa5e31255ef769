"""Examine a model, trained or not: what is wrong with it, in words, and the figure behind every word.

The checks look at what model, data and loss do, and at nothing that a preset says of a bug.
"""

import time
from pathlib import Path

from core.config import Preset
from core.teaching.bugs import new_state
from core.teaching.doctor import attention_checks, data_checks, learning_checks, perturbation_checks, run_checks
from core.teaching.doctor.finding import Examination, Finding, Light
from core.teaching.doctor.subject import Subject
from core.training.history import History
from core.training.loop import EndEvent, train
from core.training.state import TrainingState

__all__ = ["Examination", "Finding", "Light", "examine_preset", "examine_state"]


def examine_preset(preset: Preset, *, steps: int = 0, pairs: Path | None = None) -> Examination:
    """Examine the model of a preset as it begins, or after some updates."""
    state, history = new_state(preset, pairs=pairs), History(preset.training.steps)
    for event in train(state) if steps else ():
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
        findings = _findings(Subject(state, history))
    finally:
        state.model.train(was_training)
    return Examination(name, state.step, tuple(findings), time.perf_counter() - started)


def _findings(subject: Subject) -> list[Finding]:
    maps, calls = subject.watched()
    found = [
        data_checks.shift_of_targets(subject),
        data_checks.ends_of_targets(subject),
        data_checks.places_that_count(subject),
        perturbation_checks.causal_leak(subject),
        perturbation_checks.pad_influence(subject),
        perturbation_checks.order_of_source(subject),
        attention_checks.row_sums(calls),
        attention_checks.score_scale(calls),
        attention_checks.picture(maps, calls),
        attention_checks.alike_heads(calls),
        attention_checks.entropy(calls, is_trained=subject.is_trained),
        attention_checks.embedding_scale(subject.model),
        learning_checks.residuals(subject),
        learning_checks.gradients(subject),
        learning_checks.first_loss(subject),
        learning_checks.size_of_updates(subject),
    ]
    return [*found, run_checks.gap(subject), run_checks.loss_curve(subject)] if subject.is_trained else found
