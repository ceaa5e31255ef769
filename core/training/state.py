"""The state of a training run: what a checkpoint saves and ``core.training.loop.train`` updates in place."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

from core.config import Preset
from core.config.training import TrainingConfig
from core.evaluation.accuracy import Evaluation
from core.models import Seq2Seq, build_model
from core.models.recomputation import recompute_layers
from core.tasks import Task, build_task
from core.training.distributed import ProcessGroup
from core.training.loss import LossFunction, training_loss
from core.training.optimizers import build_optimizer
from core.training.update_norms import UpdateNorms


@dataclass
class TrainingState:
    """The complete state of a run. ``save_state`` in core.training.checkpoint writes what a resumed run needs.

    Attributes:
        generator: source of the run's random draws: initial weights, data, dropout, teacher forcing. The order of a
            fixed training set and the lengths of batches grouped by length depend on the seed only.
        step: optimizer updates completed.
        evaluated_step: step of the last evaluation, -1 before the first.
        best_loss, best_step: lowest validation loss in nats per non-PAD token and its step; the free-running loss if it
            is measured.
        sequences_seen: training sequences used so far.
        loss_sum: sum of the training losses since the last evaluation.
        last_loss, last_gradient_norm: of the last update; None before the first.
        seconds: time spent in updates and evaluations; pauses are not counted.
        threads: torch intra-op threads; bit-exact repetition needs the same number.
        update_norms: of the last update if an evaluation follows it, otherwise None.
        snapshot_rows: by attention block, the rows of attention that the next attention snapshot is compared with.
            The recorder sets it; see ``core.interpret.health``.
        notice: message for the user about this run, "" if there is none. Not saved.
        loss_function: computes the loss of a batch.
        process_group: the processes that train this run together. Not saved.
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
    update_norms: UpdateNorms | None = None
    snapshot_rows: dict[str, torch.Tensor] = field(default_factory=dict)
    notice: str = ""
    loss_function: LossFunction = training_loss
    process_group: ProcessGroup = field(default_factory=ProcessGroup)


class Modification:
    """Replaces parts of a run while ``new_state`` builds it.

    The base class changes nothing; a subclass overrides the parts it replaces, as the bugs in core.teaching.bugs do.
    """

    def on_task(self, task: Task) -> Task:
        """Return the task the run draws its data from."""
        return task

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Return the model. Names and shapes of its parameters must not change."""
        return model

    def on_loss_function(self, loss_function: LossFunction) -> LossFunction:
        """Return the training loss."""
        return loss_function

    def on_training(self, config: TrainingConfig) -> TrainingConfig:
        """Return the training settings."""
        return config


def new_state(
    preset: Preset, *, device: str = "cpu", pairs: Path | None = None, modification: Modification | None = None
) -> TrainingState:
    """Build a run at step 0: task, model with initial weights drawn from the preset's seed, optimizer.

    Initial weights, training set and validation set are the same on every kind of device. Draws during training are
    not (except for the order of a fixed training set): each kind of device draws other numbers from the same seed.

    Args:
        device: "cpu", "cuda" or "mps".
        pairs: the file of the task's own pairs, if it has any; see ``core.tasks.build_task``.
        modification: replaces parts of the run; see ``core.teaching.bugs.new_state``.

    Raises:
        ValueError: the preset names a bug and no modification was passed.
    """
    if modification is None:
        if preset.bug:
            raise ValueError(f"bug={preset.bug!r}: build this run with core.teaching.bugs.new_state")
        modification = Modification()
    generator = torch.Generator(device).manual_seed(preset.training.seed)
    preset = preset.model_copy(update={"training": modification.on_training(preset.training)})
    task = modification.on_task(build_task(preset.task, pairs=pairs))
    model = modification.on_model(build_model(preset.model, task, generator))
    if preset.training.gradient_checkpointing:
        recompute_layers(model)
    optimizer = build_optimizer(preset.training, model)
    loss_function = modification.on_loss_function(training_loss)
    return TrainingState(preset, task, model, optimizer, generator, loss_function=loss_function)
