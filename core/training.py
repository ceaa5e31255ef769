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
from core.evaluation import Evaluation, evaluate, sequence_loss
from core.models import Seq2Seq, build_model
from core.optim import build_optimizer, clip_gradients, learning_rate_at
from core.tasks import Batch, Epochs, FreshBatches, Task, build_task, fixed_pairs, training_batches


@dataclass(frozen=True)
class StepEvent:
    """One update was made.

    Attributes:
        step: updates made so far, from 1.
        loss: nats per non-PAD token, of this batch before the update.
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
    """Training is over: ``reason`` is "finished", or "diverged" with a message that says where."""

    step: int
    reason: str
    message: str = ""


Event = StepEvent | EvaluationEvent | EndEvent


@dataclass
class TrainingState:
    """Everything a run is made of; what a checkpoint holds and a resumed run needs.

    Attributes:
        generator: source of every random draw of the run: weights, data, dropout, teacher forcing.
        step: updates made.
        evaluated_step: the last step at which the model was evaluated, -1 before the first.
        best_loss, best_step: lowest validation loss and where it was measured.
        loss_sum: of the training losses since the last evaluation.
        seconds: time spent training and evaluating, pauses not counted.
        threads: torch threads the run computes with; part of what makes it repeat bit for bit.
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
    seconds: float = 0.0
    threads: int = field(default_factory=torch.get_num_threads)


def new_state(preset: Preset, *, device: str = "cpu") -> TrainingState:
    """Prepare a run: its task, its model with initial weights from the preset's seed, its optimiser."""
    generator = torch.Generator(device).manual_seed(preset.training.seed)
    task = build_task(preset.task)
    model = build_model(preset.model, task, generator)
    optimizer = build_optimizer(preset.training, model.parameters())
    return TrainingState(preset, task, model, optimizer, generator)


def train(state: TrainingState) -> Iterator[Event]:
    """Train from where ``state`` is to the preset's last step.

    Updates ``state`` in place before each event. The model is evaluated before the first step, every
    ``evaluate_every`` steps and after the last.

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
        seed=config.seed,
        device=device,
    )
    state.model.train()
    while True:
        due = state.step % config.evaluate_every == 0 or state.step == config.steps
        if due and state.evaluated_step != state.step:
            yield _evaluate(state, validation)
        if state.step >= config.steps:
            yield EndEvent(state.step, "finished")
            return
        event = _update(state, batches)
        yield event
        if isinstance(event, EndEvent):
            return


def _update(state: TrainingState, batches: FreshBatches | Epochs) -> StepEvent | EndEvent:
    """Make one update, or refuse one that is not finite and leave the weights as they are."""
    started = time.perf_counter()
    config = state.preset.training
    step = state.step + 1
    batch = batches.at(step, state.generator)
    logits = _logits(state.model, batch, config.teacher_forcing, state.generator)
    loss = sequence_loss(logits, batch.tgt_out)
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    gradient_norm = clip_gradients(state.model.parameters(), config.max_gradient_norm)
    if not (math.isfinite(loss.item()) and math.isfinite(gradient_norm)):
        return _diverged(state, step, loss.item(), gradient_norm)
    learning_rate = learning_rate_at(step, config)
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate
    state.optimizer.step()
    seconds = time.perf_counter() - started
    state.step = step
    state.sequences_seen += len(batch)
    state.loss_sum += loss.item()
    state.seconds += seconds
    tokens = int((batch.tgt_out != 0).sum())
    return StepEvent(step, loss.item(), learning_rate, gradient_norm, tokens / seconds)


def _logits(model: Seq2Seq, batch: Batch, teacher_forcing: float, generator: torch.Generator) -> torch.Tensor:
    """Score the targets of a batch, (B, T, V), with that share of true tokens in the decoder's input."""
    if teacher_forcing == 1:
        return model(batch.src, batch.tgt_in)[0]
    is_true = torch.empty(batch.tgt_in.shape, device=generator.device).bernoulli_(teacher_forcing, generator=generator)
    return stepwise_logits(model, batch, is_true.bool())


def stepwise_logits(model: Seq2Seq, batch: Batch, is_true: torch.Tensor) -> torch.Tensor:
    """Score the targets of a batch step by step, the model reading some of its own choices.

    Gradients flow through the logits, not through the choices.

    Args:
        is_true: (B, T) bool, True where the decoder reads the true token, False where it reads the one it found
            likeliest the step before. The first is BOS in any case.

    Returns:
        (B, T, V) logits.
    """
    memory, cache, logits = model.encode(batch.src), None, []
    for place, truth in enumerate(batch.tgt_in.split(1, dim=1)):
        token = torch.where(is_true[:, place, None], truth, logits[-1].argmax(dim=-1)) if logits else truth  # (B, 1)
        step = model.decode(token, memory, cache)
        cache = step.cache
        logits.append(step.logits)
    return torch.cat(logits, dim=1)


def _diverged(state: TrainingState, step: int, loss: float, gradient_norm: float) -> EndEvent:
    last = state.last_evaluation
    known = f"; last validation loss {last.loss:.4f} after step {state.evaluated_step}" if last else ""
    message = f"step {step}: loss={loss}, gradient norm={gradient_norm}: not finite, so the update was not made{known}"
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
