"""Estimate how long training a preset takes on this machine, from a few measured updates, an evaluation and a snapshot.

With one thread on the CPU, the parts are timed with the clock of that thread, which stands still while other threads
and programs run: the estimate is that of a quiet machine, even if this one is not. ``TrainingTime.beside`` adds what
other trainings cost. With several threads, and on another device, where the thread mostly waits, they are timed with
the clock on the wall.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch

from core.config import Preset
from core.evaluation.passes import DECODED, evaluation_mode, sequences_per_pass
from core.generation import generate
from core.interpret.snapshots import SnapshotTaker, count_snapshots
from core.models import Seq2Seq, parameters_of
from core.runs.recorder import MIN_SECONDS_BETWEEN_SAVES
from core.tasks import POOL_BATCHES, Batch, Batches, build_task, fixed_pairs, training_batches
from core.text.vocab import BOS_ID
from core.training.loop import TRAINING_SAMPLE, StepEvent, batches_of, train
from core.training.optimizers import clip_gradients
from core.training.state import TrainingState, new_state

_MARGIN = 0.2  # of the estimate, in both directions
_MEASURED_OPERATIONS = 2e10  # floating-point operations of a measured update: under a second on one core
_EVALUATED_OPERATIONS = 3e10  # of a measured evaluation or snapshot
_WARM_UP_STEPS, _WARM_UP_SECONDS = 2, 0.2  # the first updates allocate memory and the optimizer's state
_TIMED_STEPS, _TIMED_SECONDS = 64, 0.6  # limits: updates, and seconds after the first one
_KNOWN_BATCHES = 4 * POOL_BATCHES  # whose sizes are compared with those of the timed ones
_SECONDS_PER_SAVE = 0.03  # beside the bytes: a few files are synced and renamed
_SAVED_BYTES_PER_SECOND = 2e8
_BYTES_PER_PARAMETER = 16  # best weights, latest weights and the two moments of the optimizer, in float32


@dataclass(frozen=True)
class TrainingTime:
    """A range of seconds that training a preset takes, evaluations, attention snapshots and saves included."""

    low: float
    high: float

    @property
    def midpoint(self) -> float:
        """The estimate for a machine that does nothing else, in seconds."""
        return (self.low + self.high) / 2

    def beside(self, active_runs: int) -> "TrainingTime":
        """Return the range for a run that starts while others train in the same process.

        At best they end at once. At worst, all take turns to the end, whatever the number of cores: the threads of one
        process compete for the interpreter lock, and two trainings of a small model are no faster than one.
        """
        return TrainingTime(self.low, self.high * (active_runs + 1))


@dataclass(frozen=True)
class _Costs:
    """Seconds of one update, one evaluation, one attention snapshot and one save."""

    update: float
    evaluation: float
    snapshot: float
    save: float


@dataclass(frozen=True)
class _EvaluationCost:
    """Seconds of an evaluation: those of a pass of any size, those of each sequence, and sequences per pass."""

    per_pass: float
    per_sequence: float
    together: int

    def seconds(self, sequences: int) -> float:
        """Return the seconds for a number of sequences."""
        return -(-sequences // self.together) * self.per_pass + sequences * self.per_sequence


def estimate_training_time(
    preset: Preset,
    *,
    pairs: Path | None = None,
    device: str = "cpu",
    threads: int = 1,
    wait_for_others: Callable[[], None] = lambda: None,
) -> TrainingTime | None:
    """Estimate the time to train a preset from the first update to the last.

    Trains a copy of the preset for a moment, and evaluates it once. It takes about a second, at most three for a large
    model, beside the time to read the task's data. Large batches and validation sets are measured in part.

    Args:
        pairs: the file of the task's own pairs, if it has any.
        device: the device to train on: "cpu", "cuda" or "mps".
        threads: torch threads to train with.
        wait_for_others: called before each part and, with one thread on the CPU, before each update; it may wait as
            long as it likes, as the clock of a waiting thread stands still.

    Returns:
        None if even an update with one sequence takes too long to measure, or if its loss is not finite.

    Raises:
        LabError: the task's data cannot be read.
    """
    tokens = preset.task.longest_source + preset.task.longest_answer
    parameters = parameters_of(preset.model, build_task(preset.task, pairs=pairs))
    batch_size = min(preset.sequences_per_batch, int(_MEASURED_OPERATIONS / (6 * parameters * tokens)))
    if not batch_size:
        return None
    wait_for_others()
    with _torch_threads(threads):
        state = new_state(_trial(preset, batch_size), device=device, pairs=pairs)
        update = _seconds_per_update(state, sequences=preset.sequences_per_step, wait_for_others=wait_for_others)
        if update is None:
            return None
        wait_for_others()
        # An evaluation is a teacher-forced forward pass and a decode, each two operations per parameter and token.
        affordable = max(1, int(_EVALUATED_OPERATIONS / (4 * parameters * tokens)))
        sequences, on_device = preset.training.validation_sequences, str(state.generator.device)
        validation = fixed_pairs(state.task, sequences, split="validation", device=on_device)
        evaluation = _evaluation_cost(state, validation, affordable)
        taker = SnapshotTaker(state.task, state.model)
        is_affordable = affordable >= taker.num_decoded
        snapshot = _seconds_per_snapshot(state, taker) if is_affordable else evaluation.seconds(taker.num_decoded)
    save = _SECONDS_PER_SAVE + parameters * _BYTES_PER_PARAMETER / _SAVED_BYTES_PER_SECOND
    evaluated = evaluation.seconds(len(validation)) + evaluation.seconds(min(TRAINING_SAMPLE, sequences))
    seconds = _total(preset, _Costs(update, evaluated, snapshot, save))
    return TrainingTime((1 - _MARGIN) * seconds, (1 + _MARGIN) * seconds)


def _total(preset: Preset, costs: _Costs) -> float:
    """Return the seconds of a whole training."""
    steps, every = preset.training.steps, preset.training.evaluate_every
    evaluations = -(-steps // every) + 1
    seconds = steps * costs.update + evaluations * costs.evaluation
    seconds += count_snapshots(steps, every=every) * costs.snapshot
    saves = min(evaluations, 1 + int(seconds / MIN_SECONDS_BETWEEN_SAVES))
    return seconds + saves * costs.save


def _trial(preset: Preset, batch_size: int) -> Preset:
    """Return the preset to measure: its updates cost the same, but hardly change the weights, and are not evaluated."""
    changes = {
        "training.steps": max(preset.training.steps, 1_000),
        "training.batch_size": batch_size,
        "training.tokens_per_batch": batch_size * preset.longest_sequence if preset.training.tokens_per_batch else 0,
        "training.gradient_accumulation_steps": 1,
        "training.learning_rate": 1e-6,  # a high one could make the loss infinite
        "training.teacher_forcing_schedule": "constant",  # the linear one begins with its fastest updates
        "training.validation_sequences": 1,
        "training.evaluate_every": 100_000,
    }
    for rate in ("muon_learning_rate", "embedding_learning_rate"):
        if getattr(preset.training, rate):
            changes[f"training.{rate}"] = 1e-6
    return preset.with_bug(None).with_changes(changes)


def _seconds_per_update(
    state: TrainingState, *, sequences: int, wait_for_others: Callable[[], None] = lambda: None
) -> float | None:
    """Return the mean time of an update with this many sequences; None if the loss is not finite.

    All but the optimizer's part is proportional to the number of sequences.
    """
    steps = _steps(state, wait_for_others)
    _run(steps, _device(state), most=_WARM_UP_STEPS, seconds=_WARM_UP_SECONDS)
    first = state.step
    seconds = _run(steps, _device(state), most=_TIMED_STEPS, seconds=_TIMED_SECONDS)
    timed = state.step - first
    if not timed:
        return None
    scale = sequences / state.preset.sequences_per_batch
    optimizer = _seconds_per_optimizer_step(state) if scale > 1 else 0.0
    rest = max(0.0, seconds / timed - optimizer) / _relative_size(state, range(first + 1, state.step + 1))
    return optimizer + rest * scale


def _steps(state: TrainingState, wait_for_others: Callable[[], None]) -> Iterator[StepEvent]:
    """Train, calling ``wait_for_others`` after each update if the clock stands still meanwhile."""
    for event in train(state):
        if isinstance(event, StepEvent):
            yield event
            if _stands_still(_device(state)):
                wait_for_others()


def _run(steps: Iterator[StepEvent], device: str, *, most: int, seconds: float) -> float:
    """Make updates, at least one, until there have been that many or the time is over; return the time they took."""
    started = _now(device)
    for _ in islice(steps, most):
        if _now(device) - started > seconds:
            break
    return _now(device) - started


def _device(state: TrainingState) -> str:
    return state.generator.device.type


def _now(device: str) -> float:
    """Return the time in seconds, once the device has done its work; see above for the clock."""
    if _stands_still(device):
        return time.thread_time()
    if device != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def _stands_still(device: str) -> bool:
    """Whether the clock stands still while others run, and the measuring thread waits."""
    return device == "cpu" and torch.get_num_threads() == 1


def _seconds_per_optimizer_step(state: TrainingState) -> float:
    """Return the time to clip and apply the gradients that the last update left."""
    started = _now(_device(state))
    clip_gradients(state.model.parameters(), state.preset.training.max_gradient_norm)
    state.optimizer.step()
    return _now(_device(state)) - started


def _relative_size(state: TrainingState, numbers: range) -> float:
    """Return the mean size of these batches divided by that of many; 1 unless batches differ in length.

    The many are those after a curriculum: its first batches are smaller, which the estimate leaves out.
    """
    config = state.preset.training
    if not config.group_by_length:
        return 1.0
    without_curriculum = training_batches(
        state.task,
        sequences=config.training_sequences,
        batch_size=config.batch_size,
        group_by_length=True,
        tokens_per_batch=config.tokens_per_batch,
        seed=config.seed,
    )

    def mean_size(batches: Batches, numbers: range) -> float:
        return fmean(_num_tokens(batches.at(number, state.generator)) for number in numbers)

    return mean_size(batches_of(state), numbers) / mean_size(without_curriculum, range(1, _KNOWN_BATCHES + 1))


def _num_tokens(batch: Batch) -> int:
    """Count the tokens of a batch, PAD included."""
    return batch.src.numel() + batch.tgt.numel()


@torch.no_grad()
def _evaluation_cost(state: TrainingState, pairs: Batch, measured: int) -> _EvaluationCost:
    """Return the time to evaluate validation pairs, from the times for one pair and for several.

    A long output is decoded in many steps, most of whose time does not depend on the number of sequences.

    An untrained model may end all its outputs at once. Here none ends before the last step, as in training, where a
    batch is decoded until its longest output ends.
    """
    together = min(DECODED, sequences_per_pass(state.model, state.preset.longest_sequence))
    steps, measured = pairs.tgt_out.shape[1], min(measured, together, len(pairs))

    def seconds(sequences: int) -> float:
        started = _now(_device(state))
        _evaluate(state.model, pairs[:sequences], steps)
        return _now(_device(state)) - started

    with evaluation_mode(state.model):
        _evaluate(state.model, pairs[:1], 1)  # warms up
        one = seconds(1)
        if measured == 1:
            return _EvaluationCost(0.0, one, together)
        per_sequence = max(0.0, seconds(measured) - one) / (measured - 1)
    return _EvaluationCost(max(0.0, one - per_sequence), per_sequence, together)


def _evaluate(model: Seq2Seq, pairs: Batch, steps: int) -> None:
    """Compute what ``core.evaluation.accuracy.evaluate`` does, decoding for exactly ``steps`` steps."""
    model(pairs.src, pairs.tgt_in)
    generate(model, pairs.src, max_steps=steps, prefix=torch.full((steps,), BOS_ID, device=pairs.src.device))


def _seconds_per_snapshot(state: TrainingState, taker: SnapshotTaker) -> float:
    started = _now(_device(state))
    taker.snapshot(state.model, state.step)
    return _now(_device(state)) - started


@contextmanager
def _torch_threads(number: int) -> Iterator[None]:
    """Set the number of torch threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
