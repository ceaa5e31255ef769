"""What there is to learn: one module a family of tasks."""

from core.config import DigitsConfig
from core.tasks.digits import Digits
from core.tasks.task import Batch, Task, sample_distinct

__all__ = ["Batch", "Task", "build_task", "sample_distinct"]


def build_task(config: DigitsConfig) -> Task:
    """Return the task that a preset's ``task`` section describes."""
    return Digits(transform=config.transform, min_length=config.min_length, max_length=config.max_length)
