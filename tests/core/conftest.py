"""What tests of runs share."""

from collections.abc import Callable, Iterator

import pytest

from core.runs import Runs


@pytest.fixture
def make(root) -> Iterator[Callable[..., Runs]]:
    """Make ``Runs`` that are closed at the end."""
    made: list[Runs] = []

    def new(**settings) -> Runs:
        made.append(Runs(root, **settings))
        return made[-1]

    yield new
    for runs in made:
        runs.close()


@pytest.fixture
def runs(make) -> Runs:
    return make()
