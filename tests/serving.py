"""Fixtures of the page's tests: a lab with the shipped run, and a server over it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.runs import DEFAULT_ROOT
from core.server import Runs

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before Gradio is imported

SHIPPED = "digits-reversal-shipped"
TRANSLATOR = "translate-en-de-shipped"
REPEATER = "induction-shipped"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A lab of its own, holding nothing but the shipped run."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    runs = Runs(root)
    yield runs
    runs.close()


@pytest.fixture(scope="session")
def address(runs: Runs) -> Iterator[str]:
    """The page, served; its address."""
    from ui.serving.launch import serve  # Gradio takes seconds to import, and pytest reads this file before it starts

    page, address = serve(runs)
    yield address
    page.close()
