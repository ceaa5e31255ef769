"""Digests of everything a run saves: equal for two runs only if the runs are equal bit for bit."""

import hashlib
import json
from pathlib import Path

from core.runs import RunFolder
from core.storage.tensor_file import read_tensors

_NOT_REPEATED = {"seconds", "provenance"}  # times, and where the run was stopped


def fingerprint(folder: RunFolder) -> dict[str, str]:
    """Return a digest of each part of what a run saves."""
    tensors, facts = read_tensors(folder.last)
    best, best_facts = read_tensors(folder.best)
    replay, _ = read_tensors(folder.replay_file)
    by_step = (
        read_tensors(folder.weights_by_step_file)[0] if folder.weights_by_step_file.exists() else {}
    )  # large models
    return {
        "weights": _digest({name: each for name, each in tensors.items() if name.startswith("model.")}),
        "optimizer": _digest({name: each for name, each in tensors.items() if name.startswith("optimizer.")}),
        "generator": _digest({"generator": tensors["generator"]}),
        "facts": json.dumps(
            {name: value for name, value in facts.items() if name not in _NOT_REPEATED}, sort_keys=True
        ),
        "best": _digest(best)
        + json.dumps({name: value for name, value in best_facts.items() if name not in _NOT_REPEATED}, sort_keys=True),
        "replay": _digest(replay),
        "weights by step": _digest(by_step),
        "metrics": _metrics(folder.metrics),
    }


def _digest(tensors: dict) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


def _metrics(path: Path) -> str:
    return hashlib.sha256("\n".join(sorted(path.read_text().splitlines())).encode()).hexdigest()
