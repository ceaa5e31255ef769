"""Replays as versions before the recorded health wrote them."""

import json
from pathlib import Path

import torch

from core.storage.tensor_file import read_tensors, write_tensors


def remove_health(path: Path) -> None:
    """Rewrite a replay as earlier versions wrote it."""
    tensors, _ = read_tensors(path)
    facts = json.loads(tensors["facts"].numpy().tobytes())
    for each in facts["snapshots"]:
        del each["health"]
    tensors["facts"] = torch.frombuffer(bytearray(json.dumps(facts).encode()), dtype=torch.uint8)
    write_tensors(path, tensors, {})
