"""What a bug is: a change to some part of a run, made from outside; every part it leaves alone is as it was."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from core.tasks import Batch, Task
from core.training.state import Modification


class Bug(Modification):
    """A mistake in one part of a run; the base class makes none."""


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
