"""Doctor benchmark: examine bugs and presets with a known diagnosis, and compare."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from core.config import BUG_FAMILIES, BugName, Preset, load_preset, preset_names
from core.runs import RunFolder
from core.runs.training import Training, training
from core.teaching.doctor import Examination, examine_preset, examine_state
from core.teaching.doctor.run_checks import TASK, TOKENS
from core.training.history import History
from core.training.loop import StepEvent
from core.training.state import TrainingState

BASE_PRESET = "tiny"  # in which every bug is switched on
GRU = {"model.family": "gru", "model.d_embedding": 32, "model.d_hidden": 64, "model.num_layers": 1}
FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {},
    "decoder-only": {"model.family": "decoder-only"},
    "encoder-only": {"model.family": "encoder-only"},
    "gru": GRU | {"model.dropout": 0.0, "model.max_seq_len": 32},
}
NUM_SEEDS = 3  # of correct presets that need no GPU
FOR_GPUS = ("base", "large", "g2p-english-long")  # not trained here
KNOWN_BUGS: dict[str, BugName] = {  # presets that reproduce a published mistake
    "numbers-reversal-as-told": "no-eos-in-targets",
    "words-reversal-gru-as-told": "encoder-over-pad",
}
MAX_UPDATES = 4_000  # of a preset that is trained to its end
FOLDER = "_doctor"  # of the trained presets, beside the runs; no run can have this name


@dataclass(frozen=True)
class Verdict:
    """An examination and its expected diagnosis: a bug, or None.

    Attributes:
        is_finished: whether training reached its end, so that the model must do its task and produce all its tokens.
    """

    subject: str
    expected: BugName | None
    examination: Examination
    is_finished: bool = True

    @property
    def is_correct(self) -> bool:
        """Whether exactly the expected bug was found; or, without one, whether no check failed."""
        if self.expected:
            return self.examination.bugs == [self.expected]
        alarms = [each for each in self.examination.alarms if self.is_finished or each.check not in (TASK, TOKENS)]
        return not self.examination.bugs and not alarms


def of_bugs(steps: int) -> Iterator[Verdict]:
    """Examine every bug in every family it applies to, after some updates."""
    for bug, families in BUG_FAMILIES.items():
        for family in families:
            preset = load_preset(BASE_PRESET).with_changes(FAMILIES[family]).with_bug(bug)
            yield Verdict(f"{BASE_PRESET}, {family}", bug, examine_preset(preset, steps=steps))


def of_untrained_presets() -> Iterator[Verdict]:
    """Examine every preset before training."""
    for name, seed, preset in _presets():
        yield Verdict(f"{name}, seed {seed}", KNOWN_BUGS.get(name), examine_preset(preset))


def of_trained_presets(root: Path, steps: int) -> Iterator[Verdict]:
    """Examine every preset that needs no GPU after its training, long ones after ``steps`` updates.

    Trained presets are saved in ``FOLDER`` of ``root``: they are not trained again, and interrupted ones are resumed.
    """
    for name, seed, preset in _presets():
        if name not in FOR_GPUS:
            updates = preset.training.steps if preset.training.steps <= MAX_UPDATES else steps
            state, history = _trained(RunFolder(root / FOLDER, f"{name}-seed-{seed}"), preset, updates)
            examination = examine_state(name, state, history)
            is_finished = state.step >= preset.training.steps
            yield Verdict(f"{name}, seed {seed}", KNOWN_BUGS.get(name), examination, is_finished)


def _presets() -> Iterator[tuple[str, int, Preset]]:
    for name in preset_names():
        for seed in range(1 if name in FOR_GPUS or name in KNOWN_BUGS else NUM_SEEDS):
            yield name, seed, load_preset(name).with_changes({"training.seed": seed})


def _trained(folder: RunFolder, preset: Preset, updates: int) -> tuple[TrainingState, History]:
    """Return the state of a run of a preset after at least ``updates`` updates, from its folder or trained now."""
    if folder.exists() and folder.read_preset() != preset:
        shutil.rmtree(folder.path)
    if not folder.exists():
        folder = RunFolder.create(folder.path.parent, preset, name=folder.name)
    with training(folder, command="doctor --all-bugs") as run, _bar(run, updates) as bar:
        if run.state.step < updates:
            for event in run:
                if isinstance(event, StepEvent):
                    bar.update()
                    if updates <= event.step < preset.training.steps:  # after the last one it ends anyway
                        break
    return run.state, run.history


def _bar(run: Training, updates: int) -> tqdm:
    name, step = run.folder.name, run.state.step
    return tqdm(total=updates, initial=step, desc=name, file=sys.stderr, disable=None, leave=False)
