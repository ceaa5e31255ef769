"""Fixtures of all tests: presets that train in milliseconds, folders for runs, and seeded random numbers."""

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import settings

from core import plugins
from core.config import Preset, load_preset
from core.runs import RunFolder
from core.server import Runs
from core.server.limits import Limits
from tests.support.scripted_models import ScriptedModel
from tests.support.trainings import train_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile("lab", deadline=None, derandomize=True, max_examples=50, database=None)
settings.load_profile("lab")
torch.set_num_threads(1)  # fixtures of modules and sessions run before `seeded` does
os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start: with more, they wait for each other


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run the whole suite on all cores; run a selection, or a run with ``-s``, in this process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return None if whole and config.option.capture != "no" else 0  # None: as many as there are cores


@pytest.hookimpl(tryfirst=True)  # before ``-m`` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that drive a browser, and skip them where there is none."""
    if browsing := [item for item in items if "chromium" in getattr(item, "fixturenames", ())]:
        from tests.browser.chromium import CHROMIUM  # most tests need no browser

        reason = "no Chromium on this machine: apt-get install chromium"
        for item in browsing:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.skipif(CHROMIUM is None, reason=reason))


def pytest_collection_finish() -> None:
    """Leave what is imported by now out of garbage collection, which would look through all of PyTorch again."""
    gc.collect()
    gc.freeze()


SMALL = {
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.max_seq_len": 16,
    "training.steps": 8,
    "training.batch_size": 8,
    "training.learning_rate": 0.01,
    "training.warmup_steps": 2,
    "training.evaluate_every": 4,
    "training.validation_sequences": 16,
}


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Python's own handler of Ctrl+C, which a program that a shell starts in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Seed PyTorch's global generator and use one thread, so that no test depends on another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="session")
def unsynced() -> Iterator[None]:
    """Do not wait for the disk: no test has a power failure, and those on crash safety look at the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """A headless Chromium; one for all tests of a process, as Playwright starts no second one beside it."""
    from playwright.sync_api import sync_playwright  # most tests need no browser

    from tests.browser.chromium import CHROMIUM, FLAGS

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tiny() -> Preset:
    """A smaller tiny preset: 8 steps of 8 sequences, evaluated at steps 0, 4 and 8."""
    return load_preset("tiny").with_changes(SMALL)


@pytest.fixture(scope="session")
def tiny_gru(tiny: Preset) -> Preset:
    """``tiny`` with a two-layer GRU and dropout instead of the Transformer."""
    sizes = {"model.d_embedding": 8, "model.d_hidden": 12, "model.num_layers": 2, "model.dropout": 0.1}
    return tiny.with_changes({"model.family": "gru"} | sizes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A path for runs that does not exist yet."""
    return tmp_path / "checkpoints"


@pytest.fixture
def own_plugins() -> Iterator[None]:
    """Take back after the test what it registers with ``core.plugins``."""
    before = plugins.snapshot()
    yield
    plugins.restore(before)


@pytest.fixture(scope="session")
def scripted() -> type[ScriptedModel]:
    """The class of models that output given tokens."""
    return ScriptedModel


@pytest.fixture
def make_runs(root: Path) -> Iterator[Callable[..., Runs]]:
    """Return a function that creates ``Runs`` with the given limits; all are closed after the test."""
    opened: list[Runs] = []

    def create(**limits: Any) -> Runs:
        opened.append(Runs(root, limits=Limits(**limits)))
        return opened[-1]

    yield create
    for runs in opened:
        runs.close()


@pytest.fixture
def runs(make_runs: Callable[..., Runs]) -> Runs:
    """``Runs`` without limits."""
    return make_runs()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: Preset) -> Path:
    """The folder of a finished run, ``done``; tests get a copy of it from ``trained``."""
    folder = RunFolder.create(tmp_path_factory.mktemp("finished"), tiny, name="done")
    train_run(folder)
    return folder.path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    """A folder with one finished run, ``done``."""
    root = tmp_path_factory.mktemp("trained")
    shutil.copytree(finished, root / "done")
    return root
