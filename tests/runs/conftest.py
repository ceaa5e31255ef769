"""Fixtures of the tests of runs."""

import os

import pytest

from core.runs import RunFolder
from core.runs.recorder import train_recorded
from core.tasks.ingest import PairFiles, prepare_preset
from core.teaching.bugs import new_state
from core.training.history import History

SMALL = {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.steps": 4, "training.warmup_steps": 0}


@pytest.fixture(scope="session")
def own(tmp_path_factory) -> RunFolder:
    """A finished run trained on own pairs, whose original file was deleted; tests must not change it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "p.tsv").write_text("".join(f"{number}\t{number % 7} x\n" for number in range(100, 160)))
    _, preset = prepare_preset(PairFiles(folder / "p.tsv"), folder / "kept", kinds=("character", "symbol"), name="own")
    preset = preset.with_changes(SMALL)
    run = RunFolder.create(folder / "runs", preset, name="own", pairs=folder / "kept")
    train_recorded(run, new_state(preset, pairs=run.pairs), History())
    os.remove(folder / "kept")
    return run
