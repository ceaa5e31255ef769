"""What a bug is: a change to some part of a run, made from outside; every part it leaves alone is as it was."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from core.config.sections import TrainingConfig
from core.models import Seq2Seq
from core.tasks import Batch, Task

Objective = Callable[..., torch.Tensor]  # core.objective.training_loss, or what stands in for it


class Bug:
    """No bug: each part is handed back as it came. A bug overrides the method of the part that it breaks."""

    def on_task(self, task: Task) -> Task:
        """Return the task that the run draws its data from."""
        return task

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Return the model, changed in place where it is broken; the names of its weights stay."""
        return model

    def on_objective(self, objective: Objective) -> Objective:
        """Return what computes the loss that an update makes smaller."""
        return objective

    def on_training(self, config: TrainingConfig) -> TrainingConfig:
        """Return the settings that the run trains with."""
        return config


class DataBug(Bug, ABC):
    """A bug in the pairs that a run draws, those it is validated on included."""

    def on_task(self, task: Task) -> Task:
        """Return a task that draws broken pairs."""
        return _BrokenTask(task, self.on_pairs)

    @abstractmethod
    def on_pairs(self, pairs: Batch) -> Batch:
        """Return the pairs as this bug leaves them."""


class _BrokenTask:
    """A task whose drawn pairs are changed; all else is the task's own."""

    def __init__(self, task: Task, change: Callable[[Batch], Batch]) -> None:
        self._task, self._change = task, change

    def __getattr__(self, name: str) -> object:
        return getattr(self._task, name)

    def sample(self, *args: object, **kwargs: object) -> Batch:
        """Draw pairs; see ``Task.sample``."""
        return self._change(self._task.sample(*args, **kwargs))
