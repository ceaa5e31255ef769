"""The command line, called in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from core.__main__ import main


@pytest.fixture
def lab(root: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command below a folder: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(root), *arguments])
        return code, *capsys.readouterr()

    return run
