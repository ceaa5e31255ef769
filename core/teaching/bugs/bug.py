"""Base classes of the bugs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from core.tasks import Batch, Task
from core.training.state import Modification


class Bug(Modification):
    """A mistake in one part of a run. The base class changes nothing."""


class DataBug(Bug, ABC):
    """A bug in the pairs that a run samples, for training and for validation."""

    def on_task(self, task: Task) -> Task:
        """Return a task that samples broken pairs."""
        return _BrokenTask(task, self.on_pairs)  # type: ignore[return-value]  # it forwards everything else

    @abstractmethod
    def on_pairs(self, pairs: Batch) -> Batch:
        """Return the pairs with the bug."""


class _BrokenTask:
    """A task with changed sampled pairs; all other attributes are those of the original task."""

    def __init__(self, task: Task, change: Callable[[Batch], Batch]) -> None:
        self._task, self._change = task, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def sample(self, *args: Any, **kwargs: Any) -> Batch:
        """Sample pairs; see ``Task.sample``."""
        return self._change(self._task.sample(*args, **kwargs))
