"""A run's weights at a few training steps: which steps, and one file of the run's folder that holds them.

Attention snapshots hold maps only. With the weights of a step, everything else that the model computed can be computed
again.
"""

import logging
import re
from pathlib import Path

import torch

from core.interpret.snapshots import snapshot_interval
from core.storage.error_messages import short_repr
from core.storage.tensor_file import CheckpointError, read_tensors, write_tensors

MAX_BYTES = 8_000_000  # of all steps of a run
MIN_STEPS = 3  # fewer show no course, and none are kept
_FRACTIONS = (1 / 8, 1 / 2, 1 / 32)  # of a training, besides its start and its end; the first matters most
_NAME = re.compile(r"(0|[1-9][0-9]{0,8})\.(.+)")
_log = logging.getLogger(__name__)


def steps_to_keep(steps: int, *, every: int, num_bytes: int) -> tuple[int, ...]:
    """Return the training steps at which a run keeps its weights, in ascending order.

    They are 0, the last step, and the steps nearest to 1/32, 1/8 and 1/2 of the training that have an attention
    snapshot when it has ended. If ``MAX_BYTES`` is not enough for all, 1/32 and then 1/2 are left out; if it is not
    enough for ``MIN_STEPS``, none are kept.

    Args:
        steps: number of steps of the whole training.
        every: steps between two evaluations.
        num_bytes: size of the model's weights.
    """
    affordable = MAX_BYTES // num_bytes
    if affordable < MIN_STEPS:
        return ()
    interval = snapshot_interval(steps, every=every)
    inner = (interval * int(steps * fraction / interval + 0.5) for fraction in _FRACTIONS)
    return tuple(sorted(list(dict.fromkeys((0, steps, *inner)))[:affordable]))


class WeightsByStep:
    """The weights of a model after some training steps. Thread-safe: may be read while it is added to.

    Attributes:
        damage: what is wrong with the file that they were loaded from; "" if nothing is.
    """

    def __init__(self) -> None:
        self.damage = ""
        self._weights: dict[int, dict[str, torch.Tensor]] = {}  # replaced, never changed
        self._is_saved = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, steps {', '.join(map(str, self.steps)) or 'none'}>"

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps, in ascending order."""
        return tuple(sorted(self._weights))

    def at(self, step: int) -> dict[str, torch.Tensor] | None:
        """Return the state dict after a step, the same object at every call; None if it was not kept."""
        return self._weights.get(step)

    def add(self, step: int, weights: dict[str, torch.Tensor]) -> None:
        """Add the state dict after a step, which the caller must not change any more."""
        self._weights = self._weights | {step: weights}
        self._is_saved = False

    def rewind(self, step: int) -> None:
        """Remove the weights of later steps than the one that the run is resumed from."""
        earlier = {each: weights for each, weights in self._weights.items() if each <= step}
        self._is_saved = self._is_saved and len(earlier) == len(self._weights)
        self._weights = earlier

    def save(self, path: Path) -> None:
        """Write all weights to a file atomically, unless nothing has changed since the last time."""
        if self._is_saved:
            return
        kept = self._weights
        write_tensors(path, {f"{step}.{name}": kept[step][name] for step in kept for name in kept[step]}, {})
        self._is_saved = True

    @classmethod
    def load(cls, path: Path) -> "WeightsByStep":
        """Read the weights of a file; none if the file is missing, or damaged, which ``damage`` says."""
        loaded = cls()
        if path.is_file():
            try:
                loaded._weights = _by_step(read_tensors(path)[0])
            except CheckpointError as error:
                _log.warning("%s: ignoring damaged weights by step: %s", path, error)
                loaded.damage = f"{error}; earlier steps of the training cannot be opened, the rest can"
        return loaded


def _by_step(tensors: dict[str, torch.Tensor]) -> dict[int, dict[str, torch.Tensor]]:
    weights: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if not match:
            raise CheckpointError(f"its tensor {short_repr(name)} is not named STEP.NAME")
        weights.setdefault(int(match[1]), {})[match[2]] = tensor
    return weights
