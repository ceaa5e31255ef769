"""Attention snapshots of a run over the course of training: in memory, and in one file of the run's folder."""

import io
import json
import logging
import math
import threading
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from core.config.counting import counted
from core.interpret.health import Health
from core.interpret.snapshots import HeadMasses, PackedMaps, Snapshot, SnapshotInput, SnapshotOutput, snapshot_interval
from core.models.seq2seq import Block
from core.storage.tensor_file import CheckpointError, read_tensors, write_tensors

_log = logging.getLogger(__name__)


class Replay:
    """At most ``MAX_SNAPSHOTS`` evenly spaced snapshots, oldest first. Thread-safe: may be read while appended to.

    Args:
        every: training steps between two evaluations of the run.

    Attributes:
        damage: what is wrong with the file that it was loaded from; "" if nothing is.
    """

    def __init__(self, every: int) -> None:
        self.every, self.damage = every, ""
        self._snapshots: list[Snapshot] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {counted(len(self.snapshots()), 'snapshot')}>"

    def add(self, snapshot: Snapshot) -> None:
        """Append the newest snapshot, and thin out older ones to the spacing that its step requires."""
        interval = snapshot_interval(snapshot.step, every=self.every)
        with self._lock:
            self._snapshots = [each for each in self._snapshots if each.step % interval == 0]
            self._snapshots.append(snapshot)

    def rewind(self, step: int) -> None:
        """Remove snapshots after a step, from which the run is resumed."""
        with self._lock:
            self._snapshots = [each for each in self._snapshots if each.step <= step]

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots, oldest first."""
        with self._lock:
            return list(self._snapshots)

    def save(self, path: Path) -> None:
        """Write all snapshots to a file atomically."""
        snapshots = self.snapshots()
        packed = [maps for each in snapshots for output in each.outputs for maps in output.maps.values()]
        facts = {
            "inputs": [_without_none(vars(each)) for each in (snapshots[-1].inputs if snapshots else ())],
            "snapshots": [
                {
                    "step": each.step,
                    "outputs": [
                        {"tokens": output.tokens, "shapes": {block: maps.shape for block, maps in output.maps.items()}}
                        | ({} if output.reference is None else {"reference": output.reference})
                        for output in each.outputs
                    ],
                    "attention_mass": each.attention_mass,
                    "uniform_mass": each.uniform_mass,
                    "num_scored": each.num_scored,
                    "health": each.health.model_dump() if each.health else None,
                }
                for each in snapshots
            ],
        }
        # All maps in one tensor: writing hundreds of small ones takes longer than computing them. The facts are a
        # tensor too, because the size of a file's header is limited.
        maps = _as_bytes(b"".join(maps.data for maps in packed))
        write_tensors(path, {"weights": maps, "facts": _as_bytes(json.dumps(facts).encode())}, {})

    @classmethod
    def load(cls, path: Path, every: int) -> "Replay":
        """Read the snapshots of a file; empty if the file is missing, or damaged, which ``damage`` says."""
        replay = cls(every)
        if path.is_file():
            try:
                replay._snapshots = _read(path)
            except (CheckpointError, ValidationError, ValueError) as error:
                _log.warning("%s: ignoring a damaged replay: %s", path, error)
                reason = str(error) if isinstance(error, CheckpointError) else f"{path.name} is damaged"
                replay.damage = f"{reason}; attention over the training cannot be shown, the rest can"
        return replay


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class _Input(_Stored):
    symbols: tuple[str, ...]
    expected: tuple[str, ...]
    gold_cells: tuple[tuple[int, int], ...]
    tokens: tuple[str, ...] | None = None


class _Output(_Stored):
    tokens: tuple[str, ...]
    reference: tuple[str, ...] | None = None
    shapes: dict[Block, tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]]


class _StoredSnapshot(_Stored):
    step: int
    outputs: tuple[_Output, ...]
    attention_mass: HeadMasses | None
    uniform_mass: float | None
    num_scored: int
    health: Health | None = None


class _Facts(_Stored):
    inputs: tuple[_Input, ...]
    snapshots: tuple[_StoredSnapshot, ...]


def _read(path: Path) -> list[Snapshot]:
    """Read a file; raises ValueError, CheckpointError or ValidationError if it is damaged."""
    tensors, _ = read_tensors(path)
    if tensors.keys() != {"weights", "facts"} or any(each.dtype != torch.uint8 for each in tensors.values()):
        raise ValueError(f"it holds {', '.join(tensors) or 'nothing'}, not weights and facts as bytes")
    facts = _Facts.model_validate_json(tensors["facts"].numpy().tobytes())
    data = io.BytesIO(tensors["weights"].numpy().tobytes())
    inputs = tuple(SnapshotInput(each.symbols, each.expected, each.gold_cells, each.tokens) for each in facts.inputs)
    snapshots = [
        Snapshot(
            stored.step,
            inputs,
            tuple(_read_output(*pair, data) for pair in zip(inputs, stored.outputs, strict=True)),
            stored.attention_mass,
            stored.uniform_mass,
            stored.num_scored,
            stored.health,
        )
        for stored in facts.snapshots
    ]
    if data.read():
        raise ValueError("it holds more weights than its facts describe")
    return snapshots


def _without_none(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}


def _as_bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _read_output(snapshot_input: SnapshotInput, output: _Output, data: io.BytesIO) -> SnapshotOutput:
    """Read the next maps, after checking their shapes against the numbers of source and generated tokens."""
    source, steps = len(snapshot_input.source), len(output.tokens)
    if output.reference is not None and len(output.reference) != steps:
        raise ValueError(f"{steps} tokens were produced after {len(output.reference)}")
    allowed = {"encoder": [(source, source)], "cross": [(steps, source)]}
    allowed["decoder"] = [(steps, steps), (steps, source + steps)]
    maps = {}
    for block, shape in output.shapes.items():
        maps[block] = PackedMaps(shape, data.read(math.prod(shape)))
        if shape[2:] not in allowed[block] or len(maps[block].data) != math.prod(shape):
            raise ValueError(f"{block} maps of shape {shape} do not fit {source} source and {steps} generated tokens")
    return SnapshotOutput(output.tokens, maps, output.reference)
