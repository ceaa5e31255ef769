"""Fixtures: a public server with strict limits, and its visitors."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.limits import PUBLIC
from tests.faults.public.session import Session
from tests.serving import SHIPPED
from ui.serving.launch import serve
from ui.serving.visitors import Presence


@dataclass(frozen=True)
class Public:
    """The server: its runs, its address, and the folder of uploads."""

    runs: Runs
    address: str
    uploads: Path


def delete_folder(path: Path) -> None:
    """Delete the folder of a run in training, which may write files at any moment: move it away first."""
    moved = path.rename(path.parent.with_name(f"deleted-{path.name}"))
    shutil.rmtree(moved)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Public]:
    """The page served in public mode."""
    root, uploads = tmp_path_factory.mktemp("checkpoints"), tmp_path_factory.mktemp("uploads")
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(uploads))
        runs = Runs(root, limits=PUBLIC.model_copy(update={"max_upload_mb": 2, "max_uploads_mb_per_visitor": 4}))
        page, address = serve(runs, Presence())
        yield Public(runs, address, uploads)
        runs.close()
        page.close(verbose=False)


@pytest.fixture(scope="module")
def visit(public: Public) -> Iterator[Callable[[], Session]]:
    """Return a function that opens the session of a new visitor."""
    sessions: list[Session] = []

    def open_session() -> Session:
        sessions.append(Session(public.address))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


@pytest.fixture(scope="module")
def brief() -> dict[str, int]:
    """Changes with which the tiny preset trains in a second."""
    return {"training.steps": 60, "training.evaluate_every": 30, "training.validation_sequences": 16}
