"""The snapshots of a run, from its first evaluation to its latest: kept in memory, and in one file of its folder."""

import io
import json
import logging
import math
import threading
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from core.interpret.snapshots import HeadMasses, PackedMaps, Snapshot, SnapshotInput, SnapshotOutput, snapshot_interval
from core.models.heads import Block
from core.storage.tensor_file import CheckpointError, read_tensors, write_tensors

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
        between = snapshot_interval(snapshot.step, every=self.every)
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
        packed = [maps for each in snapshots for output in each.outputs for maps in output.maps.values()]
        facts = {
            "inputs": [vars(each) for each in (snapshots[-1].inputs if snapshots else ())],
            "snapshots": [
                {
                    "step": each.step,
                    "outputs": [
                        {"tokens": output.tokens, "shapes": {block: maps.shape for block, maps in output.maps.items()}}
                        for output in each.outputs
                    ],
                    "attention_mass": each.attention_mass,
                    "uniform_mass": each.uniform_mass,
                    "num_scored": each.num_scored,
                }
                for each in snapshots
            ],
        }
        # All maps are one tensor: hundreds of small ones would take longer to write than to make. What is told of
        # them is another: a header may hold little.
        maps = _as_bytes(b"".join(maps.data for maps in packed))
        write_tensors(path, {"weights": maps, "facts": _as_bytes(json.dumps(facts).encode())}, {})

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
    gold_cells: tuple[tuple[int, int], ...]


class _Output(_Stored):
    tokens: tuple[str, ...]
    shapes: dict[Block, tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]]


class _Taken(_Stored):
    step: int
    outputs: tuple[_Output, ...]
    attention_mass: HeadMasses | None
    uniform_mass: float | None
    num_scored: int


class _Facts(_Stored):
    inputs: tuple[_Input, ...]
    snapshots: tuple[_Taken, ...]


def _read(path: Path) -> list[Snapshot]:
    """Read a file; ValueError, CheckpointError or ValidationError say that it is damaged."""
    tensors, raw = read_tensors(path)
    if "facts" in tensors:  # they were in the header once
        raw = json.loads(tensors.pop("facts").numpy().tobytes())
    facts = _Facts.model_validate(raw)
    if tensors.keys() != {"weights"} or tensors["weights"].dtype != torch.uint8:
        raise ValueError(f"it holds {', '.join(tensors) or 'nothing'}, not a byte a weight")
    data = io.BytesIO(tensors["weights"].numpy().tobytes())
    inputs = tuple(SnapshotInput(each.symbols, each.expected, each.gold_cells) for each in facts.inputs)
    snapshots = [
        Snapshot(
            taken.step,
            inputs,
            tuple(_taken_output(*pair, data) for pair in zip(inputs, taken.outputs, strict=True)),
            taken.attention_mass,
            taken.uniform_mass,
            taken.num_scored,
        )
        for taken in facts.snapshots
    ]
    if data.read():
        raise ValueError("it holds more weights than it tells of")
    return snapshots


def _as_bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _taken_output(given: SnapshotInput, output: _Output, data: io.BytesIO) -> SnapshotOutput:
    """Read the next maps, having checked that they are those of so many tokens read and written."""
    source, steps = len(given.symbols) + 2, len(output.tokens)
    sides = {"encoder": [(source, source)], "cross": [(steps, source)]}
    sides["decoder"] = [(steps, steps), (steps, source + steps)]
    maps = {}
    for block, shape in output.shapes.items():
        maps[block] = PackedMaps(shape, data.read(math.prod(shape)))
        if shape[2:] not in sides[block] or len(maps[block].data) != math.prod(shape):
            raise ValueError(f"{block} maps of shape {shape} do not fit {source} tokens read and {steps} written")
    return SnapshotOutput(output.tokens, maps)
