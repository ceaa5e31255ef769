"""Fixtures for trainings that are watched."""

import pytest


@pytest.fixture
def every_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the norm of the gradients take all of the time, so that it is measured however slow the machine is."""
    monkeypatch.setattr("core.runs.watching.watch.NORM_SHARE", 1e9)
