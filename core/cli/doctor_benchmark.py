"""Verdicts of the doctor where it is known what there is to find: bugs switched on, and the presets."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from core.config import Preset, load_preset, preset_names
from core.config.bugs import BUG_FAMILIES, BugName
from core.runs import RunFolder
from core.runs.recorder import train_recorded
from core.runs.training_state import resume_state
from core.teaching.doctor import Examination, examine_preset, examine_state
from core.training.history import History
from core.training.loop import StepEvent
from core.training.state import TrainingState

PATIENT = "tiny"  # what every bug is switched on in
GRU = {"model.family": "gru", "model.d_embedding": 32, "model.d_hidden": 64, "model.num_layers": 1}
FAMILIES = {
    "transformer": {},
    "decoder-only": {"model.family": "decoder-only"},
    "gru": GRU | {"model.dropout": 0.0, "model.max_seq_len": 32},
}
SEEDS = 3  # of good presets that are not for a GPU
FOR_GPUS = ("base", "large", "g2p-english-long")  # not trained
TOLD = {"numbers-reversal-as-reported": "no-eos-in-targets", "words-reversal-gru-as-reported": "encoder-over-pad"}
MAX_UPDATES = 4_000  # of a preset that is trained to its end
KEPT = "_doctor"  # a folder beside the runs, in which trained presets are; no run can be called so


@dataclass(frozen=True)
class Verdict:
    """What was found where it is known what there is to find."""

    subject: str
    truth: BugName | None
    found: Examination

    @property
    def is_right(self) -> bool:
        """Whether the bug, and no other, was named; or, where there is none, whether all lights are green."""
        if self.truth:
            return self.found.bugs == [self.truth]
        return not self.found.bugs and not self.found.alarms


def of_bugs(steps: int) -> Iterator[Verdict]:
    """Examine every bug in every family of models that can have it, after some updates."""
    for bug, families in BUG_FAMILIES.items():
        for family in families:
            preset = load_preset(PATIENT).with_changes(FAMILIES[family]).with_bug(bug)
            yield Verdict(f"{PATIENT}, {family}", bug, examine_preset(preset, steps=steps))


def of_untrained_presets() -> Iterator[Verdict]:
    """Examine every preset as it begins."""
    for name, seed, preset in _presets():
        yield Verdict(f"{name}, seed {seed}", TOLD.get(name), examine_preset(preset))


def of_trained_presets(root: Path, steps: int) -> Iterator[Verdict]:
    """Examine every preset that a laptop can train at its end; the long ones after some updates.

    What is trained is kept in a folder of ``root``: what is there is not trained again, what was broken off goes on.
    """
    for name, seed, preset in _presets():
        if name not in FOR_GPUS:
            updates = preset.training.steps if preset.training.steps <= MAX_UPDATES else steps
            state, history = _trained(RunFolder(root / KEPT, f"{name}-seed-{seed}"), preset, updates)
            yield Verdict(f"{name}, seed {seed}", TOLD.get(name), examine_state(name, state, history))


def _presets() -> Iterator[tuple[str, int, Preset]]:
    for name in preset_names():
        for seed in range(1 if name in FOR_GPUS or name in TOLD else SEEDS):
            yield name, seed, load_preset(name).with_changes({"training.seed": seed})


def _trained(folder: RunFolder, preset: Preset, updates: int) -> tuple[TrainingState, History]:
    """Return a run of a preset as it is after so many updates, or after more where it has them."""
    if folder.exists() and folder.preset() != preset:
        shutil.rmtree(folder.path)
    if not folder.exists():
        folder = RunFolder.create(folder.path.parent, preset, name=folder.name)
    lock = folder.lock()
    try:
        state, history = resume_state(folder), History.load(folder.metrics, preset.training.steps)
        history.rewind(state.step, evaluated_step=state.evaluated_step)
        if state.step < updates:
            _train(folder, state, history, updates)
    finally:
        lock.release()
    return state, history


def _train(folder: RunFolder, state: TrainingState, history: History, updates: int) -> None:
    with tqdm(total=updates, initial=state.step, desc=folder.name, file=sys.stderr, mininterval=2, leave=False) as bar:
        train_recorded(
            folder,
            state,
            history,
            should_stop=lambda: updates <= state.step < state.preset.training.steps,  # which ends by itself
            on_event=lambda event: bar.update(isinstance(event, StepEvent)),
        )
