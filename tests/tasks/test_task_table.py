"""The table of tasks: a class for every family, imported when a task of that family is built."""

from importlib import import_module
from typing import get_args

import pytest

from core.config.tasks import TaskConfig
from core.tasks import TASKS, Task


@pytest.mark.parametrize("section", get_args(TaskConfig), ids=lambda section: section.__name__)
def test_every_family_has_its_class(section):
    module, _, name = TASKS[section].partition(":")
    task = getattr(import_module(module), name)
    assert issubclass(task, Task)
    assert section.__name__ in (f"{name}Config", f"{name.removesuffix('Lines')}Config")
