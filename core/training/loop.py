"""The training loop: an iterator of events. It starts no thread, writes no file and prints nothing.

The caller may stop between any two events. The state belongs to the caller and is consistent at every event, so a
caller that stops iterating only pauses the run: a new ``train(state)`` resumes bit for bit.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from core.config.counting import counted
from core.evaluation.accuracy import Evaluation, evaluate, score_references
from core.evaluation.outputs import decode_padded
from core.tasks import Batch, Batches, fixed_pairs, training_batches, training_sample
from core.text.vocab import PAD_ID
from core.training.distributed import LostWorkerError
from core.training.freed_memory import give_back_freed_memory, give_back_large_blocks
from core.training.guided_alignment import check_alignments, guided_loss
from core.training.nan_check import first_non_finite
from core.training.optimizers import clip_each_gradient, clip_gradients, set_learning_rate
from core.training.schedules import learning_rate_at, teacher_forcing_ratio_at
from core.training.state import TrainingState
from core.training.update_norms import UpdateMeasurement


@dataclass(frozen=True)
class StepEvent:
    """One optimizer update was made.

    Attributes:
        step: updates completed, from 1.
        loss: training loss before the update, in nats per non-PAD token of its batches; includes label smoothing and
            guided alignment.
        learning_rate: used for this update.
        gradient_norm: L2 norm of all gradients before clipping.
        tokens_per_second: non-PAD target tokens per second of this update.
    """

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float


@dataclass(frozen=True)
class EvaluationEvent:
    """The model was evaluated on the validation set after ``step`` updates. This is a good time to save.

    Attributes:
        is_best: whether the validation loss is the lowest so far: the free-running loss if it is measured.
        train_loss: mean training loss since the previous evaluation; None at the first.
    """

    step: int
    evaluation: Evaluation
    is_best: bool
    train_loss: float | None


@dataclass(frozen=True)
class EndEvent:
    """Training ended. It is the last event.

    Attributes:
        reason: "finished", "diverged" (a loss or gradient is not finite) or "lost" (another process is gone).
        message: what happened, for "diverged" and "lost", and for a run that finished before its last step.
    """

    step: int
    reason: str
    message: str = ""


Event = StepEvent | EvaluationEvent | EndEvent
TRAINING_SAMPLE = 64  # training pairs whose answers are measured at each evaluation: a small part of its time


def train(state: TrainingState) -> Iterator[Event]:
    """Train from the current step of ``state`` to the preset's last step, or until its ``patience`` is over.

    Updates ``state`` in place before each event. The model is evaluated before the first update, every
    ``evaluate_every`` updates and after the last one; with several processes only rank 0 evaluates.

    Yields:
        A ``StepEvent`` per update, an ``EvaluationEvent`` per evaluation, one ``EndEvent`` at the end.

    Raises:
        InputError: the preset guides an alignment, and the training pairs have none.
    """
    config = state.preset.training
    device = str(state.generator.device)
    validation = fixed_pairs(state.task, config.validation_sequences, split="validation", device=device)
    sample_size = min(TRAINING_SAMPLE, config.validation_sequences)
    sample = training_sample(state.task, sample_size, training_sequences=config.training_sequences, device=device)
    check_alignments(state, sample)
    batches = batches_of(state)
    if config.micro_batch_tokens:
        give_back_large_blocks()
    state.model.train()
    while True:
        if _is_evaluation_due(state):
            give_back_freed_memory()  # of the updates, so memory does not add up with that of the evaluation
            yield _evaluate(state, validation, sample)
            give_back_freed_memory()  # of the caller's work, such as snapshots
        if state.step >= config.steps:
            yield EndEvent(state.step, "finished")
            return
        if end := _early_end(state):
            yield end
            return
        event = _update(state, batches)
        yield event
        if isinstance(event, EndEvent):
            return


def batches_of(state: TrainingState) -> Batches:
    """Return the training batches of a run."""
    config = state.preset.training
    return training_batches(
        state.task,
        sequences=config.training_sequences,
        batch_size=config.batch_size,
        group_by_length=config.group_by_length,
        tokens_per_batch=config.tokens_per_batch,
        curriculum=config.curriculum_steps * config.gradient_accumulation_steps,
        seed=config.seed,
        device=str(state.generator.device),
    )


def _is_evaluation_due(state: TrainingState) -> bool:
    return _is_evaluation_step(state, state.step) and state.evaluated_step != state.step


def _is_evaluation_step(state: TrainingState, step: int) -> bool:
    """Whether this process evaluates the model after ``step`` updates."""
    config = state.preset.training
    return (step % config.evaluate_every == 0 or step == config.steps) and state.process_group.rank == 0


def _early_end(state: TrainingState) -> EndEvent | None:
    """Return the end of a run whose patience is over at this step; only rank 0 evaluates, and it tells the others."""
    config, step = state.preset.training, state.step
    if not config.patience or step % config.evaluate_every:
        return None
    waited = (step - state.best_step) // config.evaluate_every if state.best_step >= 0 else 0
    try:
        is_over = state.process_group.any_of(waited >= config.patience, device=state.generator.device)
    except LostWorkerError as error:
        return EndEvent(step, "lost", f"step {step}: {error}; resume continues from here")
    if not is_over:
        return None
    message = f"stopped early at step {step:,}: no better validation loss in {counted(config.patience, 'evaluation')}"
    return EndEvent(step, "finished", f"{message} after step {state.best_step:,}, whose weights are the best")


def _evaluate(state: TrainingState, validation: Batch, sample: Batch) -> EvaluationEvent:
    """Evaluate the model on the validation set, and its accuracy on a sample of training pairs."""
    started = time.perf_counter()
    own_loss = state.preset.training.free_running_validation
    evaluation = evaluate(state.model, validation, free_running_loss=own_loss, task=state.task)
    memorized = decode_padded(state.model, sample, max_steps=sample.tgt_out.shape[1]).exact_match(state.task)
    token_accuracy = score_references(state.model, sample).token_accuracy
    evaluation = replace(evaluation, train_token_accuracy=token_accuracy, train_exact_match=memorized)
    give_back_freed_memory()  # before the caller records the event and saves the state
    loss = evaluation.loss if evaluation.free_running_loss is None else evaluation.free_running_loss
    is_best = loss < state.best_loss
    if is_best:
        state.best_loss, state.best_step = loss, state.step
    updates = state.step - max(state.evaluated_step, 0)
    train_loss = state.loss_sum / updates if updates else None
    state.last_evaluation = evaluation
    state.evaluated_step = state.step
    state.loss_sum = 0.0
    state.seconds += time.perf_counter() - started
    return EvaluationEvent(state.step, evaluation, is_best, train_loss)


def _update(state: TrainingState, batches: Batches) -> StepEvent | EndEvent:
    """Make one update. If it is not finite or another process is gone, keep the weights and return an ``EndEvent``."""
    started = time.perf_counter()
    config = state.preset.training
    step = state.step + 1
    rng_before_data = state.generator.get_state()
    update_batches = draw_batches(state, batches, step)
    rng_before_forward = state.generator.get_state()
    try:
        loss = accumulate_gradients(state, update_batches)
    except LostWorkerError as error:
        state.generator.set_state(rng_before_data)  # a resumed run repeats this update
        return EndEvent(state.step, "lost", f"step {step}: {error}, so the update was not made; resume repeats it")
    measurement = UpdateMeasurement(state.model) if _is_evaluation_step(state, step) else None  # before clipping
    clip = clip_each_gradient if config.gradient_clipping == "per-parameter" else clip_gradients
    gradient_norm = clip(state.model.parameters(), config.max_gradient_norm)
    if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
        return _diverged(state, update_batches, rng_before_forward, loss, gradient_norm)
    learning_rate = learning_rate_at(step, config)
    set_learning_rate(state.optimizer, learning_rate)
    state.optimizer.step()
    state.update_norms = measurement.norms() if measurement else None
    seconds = time.perf_counter() - started
    state.step = step
    state.sequences_seen += sum(len(batch) for batch in update_batches)
    state.loss_sum += loss
    state.last_loss, state.last_gradient_norm = loss, gradient_norm
    state.seconds += seconds
    tokens_per_second = sum(_count_tokens(batch) for batch in update_batches) / seconds
    return StepEvent(step, loss, learning_rate, gradient_norm, tokens_per_second)


def draw_batches(state: TrainingState, batches: Batches, step: int) -> list[Batch]:
    """Draw the batches for which update ``step``, from 1, accumulates gradients."""
    count = state.preset.training.gradient_accumulation_steps
    return [batches.at(number, state.generator) for number in range((step - 1) * count + 1, step * count + 1)]


@torch.enable_grad()  # a notebook may have turned gradients off
def accumulate_gradients(state: TrainingState, update_batches: list[Batch]) -> float:
    """Store the gradients of the next update in ``parameter.grad`` and return its loss, both over all processes."""
    state.optimizer.zero_grad(set_to_none=True)
    loss = 0.0
    for weighted_loss in _weighted_losses(state, update_batches):
        weighted_loss.backward()
        loss += weighted_loss.item()
    gradients = [parameter.grad for parameter in state.model.parameters() if parameter.grad is not None]
    return state.process_group.all_reduce(loss, gradients)


def _weighted_losses(state: TrainingState, update_batches: list[Batch]) -> Iterator[torch.Tensor]:
    """Yield, for each batch, the loss of this rank's rows weighted by their share of the update's tokens.

    Their sum over batches and ranks is the mean loss over all tokens of the update.
    """
    config = state.preset.training
    teacher_forcing_ratio = teacher_forcing_ratio_at(state.step + 1, config)
    tokens = sum(_count_tokens(batch) for batch in update_batches)
    loss_function = guided_loss(state)
    with state.process_group.rank_specific_rng(state.generator, seed=config.seed, step=state.step):
        for batch in update_batches:
            rows = batch[state.process_group.rows]
            for part in _parts(rows, config.micro_batch_tokens):
                weight = _count_tokens(part) / tokens
                # The end of an epoch may have fewer sequences than ranks, and all ranks must call all_reduce.
                part = part if len(part) else batch[:1]
                loss = loss_function(
                    state.model, part, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=state.generator
                )
                yield loss * weight


def _parts(batch: Batch, tokens: int) -> list[Batch]:
    """Split a batch into parts of about equal size, each with at most ``tokens`` tokens per side, PAD included.

    A part has at least one row; 0 tokens is no split.
    """
    length = max(batch.src.shape[1], batch.tgt_in.shape[1])
    if not tokens or len(batch) * length <= tokens:
        return [batch]
    count = math.ceil(len(batch) / max(1, tokens // length))
    size = math.ceil(len(batch) / count)
    return [batch[first : first + size] for first in range(0, len(batch), size)]


def _count_tokens(batch: Batch) -> int:
    """Count the target tokens that are not PAD."""
    return int((batch.tgt_out != PAD_ID).sum())


def _diverged(
    state: TrainingState,
    update_batches: list[Batch],
    rng_before_forward: torch.Tensor,
    loss: float,
    gradient_norm: float,
) -> EndEvent:
    """Describe where the update stopped being finite, and the last finite values.

    Args:
        rng_before_forward: state of the generator before the losses were computed, to repeat the same dropout.
    """
    rng_after = state.generator.get_state()
    state.generator.set_state(rng_before_forward)
    cause = first_non_finite(state.model, lambda: list(_weighted_losses(state, update_batches)))
    state.generator.set_state(rng_after)
    message = f"step {state.step + 1}: loss={loss}, gradient norm={gradient_norm}: not finite, so the update was not "
    message += f"made; {cause}"
    if state.last_loss is not None:
        message += f"; last finite training loss {state.last_loss:.4f} and gradient norm "
        message += f"{state.last_gradient_norm:.4f} at step {state.step}"
    if state.last_evaluation:
        message += f"; last validation loss {state.last_evaluation.loss:.4f} after step {state.evaluated_step}"
    message += ". Resume continues from the last save; if it diverges again, lower training.learning_rate"
    return EndEvent(state.step, "diverged", message)
