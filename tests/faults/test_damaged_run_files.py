"""Every kind of file in a run's folder, damaged at random: what is read is unchanged, or the damage is named."""

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.config import ConfigError
from core.interpret.ablation import AblationGrid, ablation_grid, latest_grid, save_grid
from core.runs.names import write_title
from core.runs.run import Run, Runs
from core.server.ownership import Ownership, read_ownership, write_ownership
from core.storage.errors import LabError
from core.tasks import fixed_pairs
from core.tasks.ingest import PairFiles, prepare_preset
from tests.faults.damage import mutated
from tests.support.run_helpers import read_rows
from tests.support.trainings import train_run

NAME = "damaged"
TITLE = "Without dropout, at the second attempt, with a long title"
SIZES = {
    "model.d_model": 8,
    "model.d_ff": 8,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "training.steps": 12,
    "training.warmup_steps": 0,
    "training.batch_size": 8,
    "training.evaluate_every": 4,
    "training.validation_sequences": 8,
}
FILES = (
    "ablate.json",
    "access.json",
    "best.previous.safetensors",
    "best.safetensors",
    "last.previous.safetensors",
    "last.safetensors",
    "metrics.jsonl",
    "pairs.tsv",
    "preset.yaml",
    "replay.safetensors",
    "run.json",
    "subwords.json",
    "title.json",
    "weights-by-step.safetensors",
)


@pytest.fixture
def stopped(tmp_path) -> Run:
    """A run that was stopped after 9 of 12 steps and resumes bit for bit, with every kind of file."""
    source = tmp_path / "numbers.tsv"
    source.write_text("".join(f"the number {n} counts\tdie Zahl {n} zählt\n" for n in range(100, 300)))
    _, preset = prepare_preset(PairFiles(source), tmp_path / "own.pairs.tsv", kinds=("subword", "subword"), name="own")
    run = Runs(tmp_path / "intact").create(preset.with_changes(SIZES), name=NAME, pairs=tmp_path / "own.pairs.tsv")
    for steps in (5, 9):
        train_run(run.folder, stop_after=steps)
    loaded = run.trained()
    cells = tuple(ablation_grid(loaded.model, loaded.task, fixed_pairs(loaded.task, 4, split="validation")))
    save_grid(run.folder.ablation, AblationGrid(step=loaded.step, sequences=4, ablation="zero", cells=cells))
    write_title(run.folder.path, TITLE)
    write_ownership(run.folder, Ownership(owner="0123456789abcdef" * 4, shared=True))
    return run


def weights_of(trained: Any) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in trained.model.state_dict().items()}


READ: dict[str, Callable[[Run], Any]] = {
    "preset": lambda run: run.preset,
    "info": lambda run: run.info.model_dump(exclude={"message"}),
    "title": lambda run: run.title,
    "owner": lambda run: read_ownership(run.folder),
    "history": lambda run: (run.history.points(), run.history.evaluations()),
    "replay": lambda run: run.replay.snapshots(),
    "earlier weights": lambda run: {step: weights_of(run.trained(step)) for step in run.weights_by_step.steps},
    "weights": lambda run: weights_of(run.trained()),
    "subwords": lambda run: run.task().subwords,
    "pairs": lambda run: fixed_pairs(run.task(), 20, split="train").src.tolist(),
    "ablation": lambda run: latest_grid(run.folder.ablation, run.trained().model.heads, ablation="zero"),
    "message": lambda run: run.info.message,
}


def everything(run: Run) -> dict[str, Any]:
    """What is read of a run, by name; the text of the error where reading is refused."""
    found = {}
    for name, read in READ.items():
        try:
            found[name] = read(run)
        except (LabError, ConfigError) as error:
            found[name] = f"refused: {error}"
    return found


def resumed(run: Run) -> tuple[Any, str]:
    """The metrics after the run was resumed to its end, and its message; nothing and the reason if it is refused."""
    try:
        train_run(run.folder)
    except (LabError, ConfigError) as error:
        return None, f"refused: {error}"
    return read_rows(run.folder.metrics), run.info.message


def copied(run: Run, root: Path) -> Run:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(run.folder.path, root / NAME)
    return Runs(root)[NAME]


@pytest.mark.parametrize("damages", [84, pytest.param(500, marks=pytest.mark.slow)])
def test_a_damaged_file_of_a_run_is_named_or_makes_no_difference(stopped, tmp_path, caplog, damages):
    assert {file.name for file in stopped.folder.path.iterdir()} - {".lock"} == set(FILES)
    caplog.set_level(logging.WARNING)
    expected, (metrics, message) = everything(stopped), resumed(copied(stopped, tmp_path / "resumed"))
    assert message == ""
    rng, silent, named = random.Random(7), [], 0
    for number in range(damages):
        file = FILES[number % len(FILES)]
        run = copied(stopped, tmp_path / "damaged")
        (run.folder.path / file).write_bytes(mutated((run.folder.path / file).read_bytes(), rng))
        caplog.clear()
        found = everything(run)
        refusals = [value for value in found.values() if isinstance(value, str)]  # and the title and the message
        is_named = file in caplog.text or any(file in text for text in refusals)
        others = [name for name, value in found.items() if value != expected[name] and name != "message"]
        if others and not is_named:
            silent.append((number, file, others))
        rows, why = resumed(copied(run, tmp_path / "resumed"))
        if rows != metrics and file not in why and not why.startswith("refused"):
            silent.append((number, file, "resumed", why))
        named += is_named
    assert silent == []
    assert named > damages / 2
