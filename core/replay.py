"""The snapshots of a run, from its first evaluation to its latest: kept in memory, and in one file of its folder."""

import logging
import threading
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from core.checkpoint import CheckpointError, read_tensors, write_tensors
from core.probes import BLOCKS, PackedMaps, ProbeAnswer, ProbeInput, Shares, Snapshot, spacing

_log = logging.getLogger(__name__)


class Replay:
    """At most ``MAX_SNAPSHOTS`` snapshots, oldest first, evenly spaced. Safe to read while added to.

    Args:
        every: steps between two evaluations of the run.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._snapshots: list[Snapshot] = []
        self._lock = threading.Lock()

    def add(self, snapshot: Snapshot) -> None:
        """Add the newest snapshot, and drop those that lie between the ones that are still kept at its step."""
        between = spacing(snapshot.step, every=self.every)
        with self._lock:
            self._snapshots = [each for each in self._snapshots if each.step % between == 0]
            self._snapshots.append(snapshot)

    def rewind(self, step: int) -> None:
        """Forget what came after a step: the run goes on from there."""
        with self._lock:
            self._snapshots = [each for each in self._snapshots if each.step <= step]

    def snapshots(self) -> list[Snapshot]:
        """Return them all, oldest first."""
        with self._lock:
            return list(self._snapshots)

    def save(self, path: Path) -> None:
        """Write all snapshots anew, atomically."""
        snapshots = self.snapshots()
        tensors = {
            _name(snapshot.step, place, block): torch.from_numpy(maps.array().copy())
            for snapshot in snapshots
            for place, answer in enumerate(snapshot.answers)
            for block, maps in answer.maps.items()
        }
        facts = _Facts(
            inputs=[_Input(**vars(each)) for each in (snapshots[-1].inputs if snapshots else ())],
            snapshots=[
                _Taken(
                    step=each.step,
                    answers=[answer.tokens for answer in each.answers],
                    shares=each.shares,
                    uniform=each.uniform,
                )
                for each in snapshots
            ],
        )
        write_tensors(path, tensors, facts.model_dump())

    @classmethod
    def load(cls, path: Path, every: int) -> "Replay":
        """Read the snapshots of a file; a missing one has none, and so has a damaged one, which is logged."""
        replay = cls(every)
        if path.is_file():
            try:
                replay._snapshots = _read(path)
            except (CheckpointError, ValidationError, ValueError) as error:
                _log.warning("%s: a damaged replay is left out: %s", path, error)
        return replay


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class _Input(_Stored):
    symbols: tuple[str, ...]
    expected: tuple[str, ...]
    true_cells: tuple[tuple[int, int], ...]


class _Taken(_Stored):
    step: int
    answers: tuple[tuple[str, ...], ...]
    shares: Shares | None
    uniform: float | None


class _Facts(_Stored):
    inputs: tuple[_Input, ...]
    snapshots: tuple[_Taken, ...]


def _name(step: int, place: int, block: str) -> str:
    return f"{step}.{place}.{block}"


def _read(path: Path) -> list[Snapshot]:
    """Read a file; ValueError, CheckpointError or ValidationError say that it is damaged."""
    tensors, raw = read_tensors(path)
    facts = _Facts.model_validate(raw)
    inputs = tuple(ProbeInput(each.symbols, each.expected, each.true_cells) for each in facts.inputs)
    snapshots = []
    for taken in facts.snapshots:
        answers = tuple(
            ProbeAnswer(tokens, _maps(tensors, taken.step, place, source=len(each.symbols) + 2, steps=len(tokens)))
            for place, (each, tokens) in enumerate(zip(inputs, taken.answers, strict=True))
        )
        snapshots.append(Snapshot(taken.step, inputs, answers, taken.shares, taken.uniform))
    return snapshots


def _maps(tensors: dict[str, torch.Tensor], step: int, place: int, *, source: int, steps: int) -> dict[str, PackedMaps]:
    """Return the maps of one answer, having checked that they are those of so many tokens read and written."""
    sides = {"encoder": [(source, source)], "cross": [(steps, source)]}
    sides["decoder"] = [(steps, steps), (steps, source + steps)]
    found = {block: tensors[name] for block in BLOCKS if (name := _name(step, place, block)) in tensors}
    for block, weights in found.items():
        if weights.dtype != torch.uint8 or weights.ndim != 4 or tuple(weights.shape[2:]) not in sides[block]:
            raise ValueError(f"step {step}, input {place + 1}: {block} maps are {weights.dtype} {[*weights.shape]}")
    return {block: PackedMaps(tuple(weights.shape), weights.numpy().tobytes()) for block, weights in found.items()}
