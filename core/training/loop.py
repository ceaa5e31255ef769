"""The training loop: an iterator of events that knows no thread, no file and no printer.

Whoever consumes it may stop between two events. The state is the caller's and always consistent there, so
breaking off is pausing: a new ``train(state)`` continues as if nothing had happened.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from core.config import Preset
from core.config.sections import TrainingConfig
from core.evaluation.accuracy import Evaluation, evaluate
from core.models import Seq2Seq, build_model
from core.tasks import Batch, Batches, Task, build_task, fixed_pairs, training_batches
from core.text.vocab import PAD_ID
from core.training.distributed import LostWorkerError, Workers
from core.training.loss import LossFunction, training_loss
from core.training.nan_check import first_non_finite
from core.training.optimizers import build_optimizer, clip_gradients, set_learning_rate
from core.training.schedules import learning_rate_at, teacher_forcing_ratio_at


@dataclass(frozen=True)
class StepEvent:
    """One update was made.

    Attributes:
        step: updates made so far, from 1.
        loss: nats per non-PAD token of the update's batches, before it; label smoothing, if any, included.
        learning_rate: of this update.
        gradient_norm: before clipping.
        tokens_per_second: target tokens trained on, PAD not counted.
    """

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float


@dataclass(frozen=True)
class EvaluationEvent:
    """The model was measured on the validation set after ``step`` updates; a good moment to save.

    Attributes:
        train_loss: mean of the training losses since the evaluation before; None at the first.
    """

    step: int
    evaluation: Evaluation
    is_best: bool
    train_loss: float | None


@dataclass(frozen=True)
class EndEvent:
    """Training is over: ``reason`` is "finished", or, with a message that says where, "diverged" or "lost"."""

    step: int
    reason: str
    message: str = ""


Event = StepEvent | EvaluationEvent | EndEvent


@dataclass
class TrainingState:
    """Everything a run is made of; what a checkpoint holds and a resumed run needs.

    Attributes:
        generator: source of the run's random draws: weights, data, dropout, teacher forcing. The order of a fixed set
            and batches of like lengths come from the seed alone.
        step: updates made.
        evaluated_step: the last step at which the model was evaluated, -1 before the first.
        best_loss, best_step: lowest validation loss and where it was measured.
        loss_sum: of the training losses since the last evaluation.
        last_loss, last_gradient_norm: of the last update; None before the first.
        seconds: time spent training and evaluating, pauses not counted.
        threads: torch threads the run computes with; part of what makes it repeat bit for bit.
        notice: what whoever watches the run should know about it; "" if nothing is unusual. It is not saved.
        objective: computes the loss of a batch.
        workers: the processes that train it together; not part of a checkpoint.
    """

    preset: Preset
    task: Task
    model: Seq2Seq
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step: int = 0
    evaluated_step: int = -1
    best_loss: float = math.inf
    best_step: int = -1
    last_evaluation: Evaluation | None = None
    sequences_seen: int = 0
    loss_sum: float = 0.0
    last_loss: float | None = None
    last_gradient_norm: float | None = None
    seconds: float = 0.0
    threads: int = field(default_factory=torch.get_num_threads)
    notice: str = ""
    loss_function: LossFunction = training_loss
    workers: Workers = field(default_factory=Workers)


class Modification:
    """Replaces parts of a run as it is built; the base class changes nothing. The bugs are made of these."""

    def on_task(self, task: Task) -> Task:
        """Return the task that the run draws its data from."""
        return task

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Return the model; names and shapes of its parameters must stay."""
        return model

    def on_loss_function(self, loss_function: LossFunction) -> LossFunction:
        """Return the training loss."""
        return loss_function

    def on_training(self, config: TrainingConfig) -> TrainingConfig:
        """Return the training settings."""
        return config


def new_state(preset: Preset, *, device: str = "cpu", modification: Modification | None = None) -> TrainingState:
    """Prepare a run: its task, its model with initial weights from the preset's seed, its optimiser.

    Initial weights, training set and validation set are the same on every kind of device. What is drawn in training
    is not, but for batches of like lengths: each kind draws other numbers from the same seed.

    Args:
        modification: replaces parts of the run; see ``core.teaching.bugs.new_state``.

    Raises:
        ValueError: the preset names a bug, and no modification was given.
    """
    if modification is None:
        if preset.bug:
            raise ValueError(f"bug={preset.bug!r}: build this run with core.teaching.bugs.new_state")
        modification = Modification()
    generator = torch.Generator(device).manual_seed(preset.training.seed)
    preset = preset.model_copy(update={"training": modification.on_training(preset.training)})
    task = modification.on_task(build_task(preset.task))
    model = modification.on_model(build_model(preset.model, task, generator))
    optimizer = build_optimizer(preset.training, model)
    loss_function = modification.on_loss_function(training_loss)
    return TrainingState(preset, task, model, optimizer, generator, loss_function=loss_function)


def train(state: TrainingState) -> Iterator[Event]:
    """Train from where ``state`` is to the preset's last step.

    Updates ``state`` in place before each event. The model is evaluated before the first step, every
    ``evaluate_every`` steps and after the last; of several processes only the first does so.

    Yields:
        A ``StepEvent`` an update, an ``EvaluationEvent`` an evaluation, one ``EndEvent`` last.
    """
    config = state.preset.training
    device = str(state.generator.device)
    validation = fixed_pairs(state.task, config.validation_sequences, split="validation", device=device)
    batches = training_batches(
        state.task,
        sequences=config.training_sequences,
        batch_size=config.batch_size,
        group_by_length=config.group_by_length,
        seed=config.seed,
        device=device,
    )
    state.model.train()
    while True:
        due = state.step % config.evaluate_every == 0 or state.step == config.steps
        if due and state.evaluated_step != state.step and state.workers.rank == 0:
            yield _evaluate(state, validation)
        if state.step >= config.steps:
            yield EndEvent(state.step, "finished")
            return
        event = _update(state, batches)
        yield event
        if isinstance(event, EndEvent):
            return


def _update(state: TrainingState, batches: Batches) -> StepEvent | EndEvent:
    """Make one update, or leave the weights as they are: it is not finite, or another process is gone."""
    started = time.perf_counter()
    config = state.preset.training
    step = state.step + 1
    began = state.generator.get_state()
    parts = [batches.at(number, state.generator) for number in _batch_numbers(step, config.gradient_accumulation_steps)]
    before = state.generator.get_state()
    try:
        loss = _loss_and_gradients(state, parts)
    except LostWorkerError as error:
        state.generator.set_state(began)  # whoever resumes makes this very update
        return EndEvent(state.step, "lost", f"step {step}: {error}, so the update was not made; resume goes on with it")
    gradient_norm = clip_gradients(state.model.parameters(), config.max_gradient_norm)
    if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
        return _diverged(state, parts, before, loss, gradient_norm)
    learning_rate = learning_rate_at(step, config)
    set_learning_rate(state.optimizer, learning_rate)
    state.optimizer.step()
    seconds = time.perf_counter() - started
    state.step = step
    state.sequences_seen += sum(len(part) for part in parts)
    state.loss_sum += loss
    state.last_loss, state.last_gradient_norm = loss, gradient_norm
    state.seconds += seconds
    return StepEvent(step, loss, learning_rate, gradient_norm, sum(_tokens(part) for part in parts) / seconds)


def _batch_numbers(step: int, gradient_accumulation_steps: int) -> range:
    """Return the numbers, from 1, of the batches that an update adds up."""
    return range((step - 1) * gradient_accumulation_steps + 1, step * gradient_accumulation_steps + 1)


def _loss_and_gradients(state: TrainingState, parts: list[Batch]) -> float:
    """Return the loss of the next update, and leave its gradients with the weights; both are those of all workers."""
    state.optimizer.zero_grad(set_to_none=True)
    loss = 0.0
    for part_loss in _losses(state, parts):
        part_loss.backward()
        loss += part_loss.item()
    gradients = [parameter.grad for parameter in state.model.parameters() if parameter.grad is not None]
    return state.workers.add_up(loss, gradients)


def _losses(state: TrainingState, parts: list[Batch]) -> Iterator[torch.Tensor]:
    """Yield what this worker's rows of each part add to the loss of the next update.

    All rows of all parts add up to its mean over their tokens.
    """
    config = state.preset.training
    teacher_forcing_ratio = teacher_forcing_ratio_at(state.step + 1, config)
    tokens = sum(_tokens(part) for part in parts)
    with state.workers.own_draws(state.generator, seed=config.seed, step=state.step):
        for part in parts:
            own = part[state.workers.rows]
            loss = state.loss_function(
                state.model, own, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=state.generator
            )
            yield loss * (_tokens(own) / tokens)


def _tokens(batch: Batch) -> int:
    """Count the target tokens that are not PAD."""
    return int((batch.tgt_out != PAD_ID).sum())


def _diverged(
    state: TrainingState, parts: list[Batch], before: torch.Tensor, loss: float, gradient_norm: float
) -> EndEvent:
    """Say what is not finite, since when, and how things stood before.

    Args:
        before: the generator's state when the losses of the parts were about to be computed.
    """
    after = state.generator.get_state()
    state.generator.set_state(before)  # the same dropout once more
    where = first_non_finite(state.model, lambda: list(_losses(state, parts)))
    state.generator.set_state(after)
    message = f"step {state.step + 1}: loss={loss}, gradient norm={gradient_norm}: not finite, so the update was not "
    message += f"made; {where}"
    if state.last_loss is not None:
        message += f"; last finite training loss {state.last_loss:.4f} and gradient norm "
        message += f"{state.last_gradient_norm:.4f} at step {state.step}"
    if state.last_evaluation:
        message += f"; last validation loss {state.last_evaluation.loss:.4f} after step {state.evaluated_step}"
    message += ". Resume goes on from what was saved; if it happens again, train with a lower training.learning_rate"
    return EndEvent(state.step, "diverged", message)


def _evaluate(state: TrainingState, validation: Batch) -> EvaluationEvent:
    started = time.perf_counter()
    evaluation = evaluate(state.model, validation)
    is_best = evaluation.loss < state.best_loss
    if is_best:
        state.best_loss, state.best_step = evaluation.loss, state.step
    updates = state.step - max(state.evaluated_step, 0)
    train_loss = state.loss_sum / updates if updates else None
    state.last_evaluation = evaluation
    state.evaluated_step = state.step
    state.loss_sum = 0.0
    state.seconds += time.perf_counter() - started
    return EvaluationEvent(state.step, evaluation, is_best, train_loss)
