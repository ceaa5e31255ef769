"""Fixtures of the tests of runs."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.config import Preset
from core.runs import RunFolder
from core.tasks.ingest import PairFiles, prepare_preset
from tests.support.hub_stub import Hub, serving
from tests.support.trainings import train_run

SMALL = {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.steps": 4, "training.warmup_steps": 0}


@pytest.fixture(scope="session")
def own(tmp_path_factory) -> RunFolder:
    """A finished run trained on own pairs, whose original file was deleted; tests must not change it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "p.tsv").write_text("".join(f"{number}\t{number % 7} x\n" for number in range(100, 160)))
    _, preset = prepare_preset(PairFiles(folder / "p.tsv"), folder / "kept", kinds=("character", "symbol"), name="own")
    preset = preset.with_changes(SMALL)
    run = RunFolder.create(folder / "runs", preset, name="own", pairs=folder / "kept")
    train_run(run)
    os.remove(folder / "kept")
    return run


@pytest.fixture(scope="module")
def preset(tiny: Preset) -> Preset:
    """A tiny preset with dropout, which draws random numbers in each update."""
    return tiny.with_changes({"model.dropout": 0.2})


@pytest.fixture
def folder(root: Path, preset: Preset) -> RunFolder:
    """A run of it that has not been trained."""
    return RunFolder.create(root, preset, name="a")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, preset: Preset) -> RunFolder:
    """The same training in another folder, never stopped; tests must not change it."""
    other = RunFolder.create(tmp_path_factory.mktemp("straight"), preset, name="straight")
    train_run(other)
    return other


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Export a large text in place of a model's graph, which takes seconds to trace."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    model = onnx.ModelProto(doc_string="-" * 20_000)
    monkeypatch.setattr("core.runs.onnx_export.forward_graph", lambda _: SimpleNamespace(to_onnx=lambda *_: model))


@pytest.fixture(scope="session")
def served() -> Iterator[Hub]:
    """A local server with the API of the Hugging Face Hub."""
    with serving() as hub:
        yield hub


@pytest.fixture
def hub(served: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    """The server, empty, in place of the Hub."""
    from huggingface_hub import constants

    served.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which the page is
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its protocol is not what the server speaks
    monkeypatch.setattr(constants, "ENDPOINT", served.address)
    template = served.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", "hf_told")
    return served
