"""The task of the preset ``tiny``, and test pairs to report on."""

import pytest

from core.config import Preset
from core.tasks import Batch, Task, build_task, fixed_pairs


@pytest.fixture(scope="session")
def task(tiny: Preset) -> Task:
    return build_task(tiny.task)


@pytest.fixture(scope="session")
def pairs(task: Task) -> Batch:
    return fixed_pairs(task, 60, split="test")
