"""The table of tasks: a class for every family, imported when a task of that family is built."""

import subprocess
import sys
from importlib import import_module
from typing import get_args

import pytest

from core.config.tasks import TaskConfig
from core.tasks import TASKS, Task

LIST_MODULES = "import sys, core.tasks; print(*(name for name in sys.modules if name.startswith('core.tasks.')))"


@pytest.mark.parametrize("section", get_args(TaskConfig), ids=lambda section: section.__name__)
def test_every_family_has_its_class(section):
    module, _, name = TASKS[section].partition(":")
    task = getattr(import_module(module), name)
    assert issubclass(task, Task)
    assert section.__name__ in (f"{name}Config", f"{name.removesuffix('Lines')}Config")


def test_no_family_is_imported_before_it_is_used():
    printed = subprocess.run([sys.executable, "-c", LIST_MODULES], capture_output=True, text=True, check=True).stdout
    assert not {*printed.split()} & {path.partition(":")[0] for path in TASKS.values()}
