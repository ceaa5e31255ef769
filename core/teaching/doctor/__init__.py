"""The doctor: examines a model, trained or not, and reports problems, with the number behind each finding.

``examine_state`` and ``examine_preset`` examine runs of the lab, ``diagnose`` any sequence-to-sequence module. The
checks measure the behavior of model, data and loss. They never read the bug of a preset. A check that cannot be made is
gray and says why; it is never green.
"""

import time
from pathlib import Path

from core.config import Preset
from core.interpret.any_module.kept_states import random_states_kept
from core.teaching.bugs import new_state
from core.teaching.doctor import attention_checks, data_checks, learning_checks, perturbation_checks, run_checks
from core.teaching.doctor.diagnosis import diagnose
from core.teaching.doctor.finding import Examination, Finding, Light, not_checked
from core.teaching.doctor.forward_check import check_forward
from core.teaching.doctor.health_checks import Course, check_health
from core.teaching.doctor.subject import Subject
from core.training.history import History
from core.training.loop import EndEvent, train
from core.training.state import TrainingState

COMPARED = ("rows of a batch", "causal leak", "PAD influence", "source order", "target order")

__all__ = ["Examination", "Finding", "Light", "check_health", "diagnose", "examine_preset", "examine_state"]


def examine_preset(preset: Preset, *, steps: int = 0, pairs: Path | None = None) -> Examination:
    """Examine the model of a preset, untrained or after some updates.

    Args:
        preset: of the run to build.
        steps: updates to make first.
        pairs: the file of the task's own pairs, if it has any.
    """
    state, history = new_state(preset, pairs=pairs), History()
    for event in train(state) if steps else ():
        if isinstance(event, EndEvent) or state.step >= steps:
            break
        history.add(event)
    return examine_state(preset.name, state, history)


def examine_state(name: str, state: TrainingState, history: History | None, course: Course = ()) -> Examination:
    """Examine a model in its training state; its weights, its mode and its random generators are unchanged.

    Args:
        name: of the examination.
        state: model, task and loss function as training uses them.
        history: metrics of the training so far.
        course: step and health of its attention snapshots, if they were recorded.
    """
    started = time.perf_counter()
    was_training = state.model.training
    state.model.eval()
    try:
        findings = [*_findings(Subject(state, history)), *check_health(course)]
    finally:
        state.model.train(was_training)
    return Examination(name, state.step, tuple(findings), time.perf_counter() - started)


def _findings(subject: Subject) -> list[Finding]:
    pairs, special = subject.pairs, subject.special
    gpus = sorted({each.device.index for each in subject.model.parameters() if each.is_cuda})
    with random_states_kept(gpus):
        forward, unusable = check_forward(subject)
    findings = [
        forward,
        data_checks.check_target_shift(pairs.tgt_in, pairs.tgt_out, special),
        data_checks.check_eos_in_targets(pairs.tgt_out, special),
        data_checks.check_pad_in_loss(*data_checks.loss_gradient(subject)),
        *(_not_compared(unusable) if unusable else _compared(subject)),
        attention_checks.check_embedding_scaling(subject.model),
        learning_checks.check_residuals(subject.model, *subject.few),
        learning_checks.check_gradients(subject.model, lambda: learning_checks.training_loss(subject.state, subject)),
        learning_checks.check_initial_loss(subject),
        learning_checks.check_update_size(subject),
    ]
    return [*findings, *_run_findings(subject)]


def _compared(subject: Subject) -> list[Finding]:
    """Compare logits under perturbations, and examine attention."""
    maps, calls = subject.record_attention()
    genuine = attention_checks.genuine_calls(calls)
    return [
        *(perturbation_checks.CHECKS[name](subject) for name in COMPARED),
        attention_checks.check_row_sums(genuine),
        attention_checks.check_score_scaling(genuine),
        attention_checks.check_reported_maps(maps, calls),
        attention_checks.check_queries(genuine),
        attention_checks.check_head_diversity(genuine),
        attention_checks.check_entropy(genuine, is_trained=subject.is_trained),
    ]


def _not_compared(reason: str) -> list[Finding]:
    attention = ("rows", "queries", "entropy")
    others = ("score scaling", "reported attention", "head diversity")
    return [not_checked(name, reason) for name in (*COMPARED, *(f"attention {each}" for each in attention), *others)]


def _run_findings(subject: Subject) -> list[Finding]:
    """Run the checks that need a trained model."""
    if not subject.is_trained:
        names = (run_checks.TASK, run_checks.TOKENS, run_checks.GAP, run_checks.CURVE)
        return [not_checked(name, "the model is not trained yet.") for name in names]
    outputs = run_checks.decode_held_out(subject)
    evaluation = run_checks.measure(subject, outputs)
    return [
        run_checks.check_task(subject, evaluation),
        run_checks.check_produced_tokens(subject, outputs),
        run_checks.check_free_running_gap(subject, evaluation),
        run_checks.check_loss_curve(subject),
    ]
