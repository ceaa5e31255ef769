"""What tests of runs share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.run_folder import RunFolder
from core.run_folder.history import History
from core.run_folder.recording import train_recorded
from core.runs import Runs
from core.runs.limits import Limits
from core.training import new_state


@pytest.fixture
def make(root) -> Iterator[Callable[..., Runs]]:
    """Make ``Runs`` with some limits, which are closed at the end."""
    made: list[Runs] = []

    def new(**limits) -> Runs:
        made.append(Runs(root, limits=Limits(**limits)))
        return made[-1]

    yield new
    for runs in made:
        runs.close()


@pytest.fixture
def runs(make) -> Runs:
    return make()


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny) -> Path:
    """A folder with one finished run, ``done``."""
    root = tmp_path_factory.mktemp("trained")
    folder = RunFolder.create(root, tiny, name="done")
    train_recorded(folder, new_state(tiny), History(8), should_stop=lambda: False, on_event=lambda event: None)
    return root
