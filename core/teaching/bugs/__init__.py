"""Bugs for teaching: each is a ``Modification`` that breaks one part while a run is built.

Models, tasks and the loss contain no code for them. Build a run with ``new_state`` of this package; a preset without a
bug is built unchanged.
"""

from pathlib import Path

from core.config import BugName, Preset
from core.teaching.bugs.bug import Bug
from core.teaching.bugs.data_bugs import LearningRateTooHigh, NoEosInTargets, PadInTheLoss, TargetsNotShifted
from core.teaching.bugs.model_bugs import (
    EncoderOverPad,
    HeadsAlike,
    NoCausalMask,
    NoEmbeddingScaling,
    NoPositions,
    NoResidual,
    NoScoreScaling,
    PadAttendedTo,
    SelfPlottedAsCross,
    SoftmaxOverQueries,
)
from core.training import state as training_state

__all__ = ["BUGS", "Bug", "bug_of", "new_state"]

BUGS: dict[BugName | None, Bug] = {
    None: Bug(),
    "no-causal-mask": NoCausalMask(),
    "targets-not-shifted": TargetsNotShifted(),
    "pad-attended-to": PadAttendedTo(),
    "pad-in-the-loss": PadInTheLoss(),
    "no-positions": NoPositions(),
    "no-score-scaling": NoScoreScaling(),
    "no-embedding-scaling": NoEmbeddingScaling(),
    "softmax-over-queries": SoftmaxOverQueries(),
    "no-residual": NoResidual(),
    "no-eos-in-targets": NoEosInTargets(),
    "encoder-over-pad": EncoderOverPad(),
    "learning-rate-too-high": LearningRateTooHigh(),
    "heads-alike": HeadsAlike(),
    "self-plotted-as-cross": SelfPlottedAsCross(),
}


def bug_of(preset: Preset) -> Bug:
    """Return the bug of a preset, or a modification that changes nothing."""
    return BUGS[preset.bug]


def new_state(preset: Preset, *, device: str = "cpu", pairs: Path | None = None) -> training_state.TrainingState:
    """Build the state of a new run with the preset's bug, if any; see ``core.training.state.new_state``."""
    return training_state.new_state(preset, device=device, pairs=pairs, modification=bug_of(preset))
