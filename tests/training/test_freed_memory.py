"""Memory that was freed between blocks still in use goes back to the system."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
from benchmarks.resident_memory import resident_bytes
from core.training.freed_memory import give_back_freed_memory
kept = []
for _ in range(2):  # the first round raises the size up to which the C library keeps blocks
    freed = []
    for _ in range(100):
        freed.append(torch.ones(250_000))  # 1 MB
        kept.append(torch.ones(10_000))
    del freed
before = resident_bytes()
give_back_freed_memory()
print(before - resident_bytes(), sum(each.sum().item() for each in kept))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU's C library")
def test_blocks_freed_between_others_are_given_back():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True)
    given_back, kept = map(float, done.stdout.split())
    assert given_back > 50_000_000
    assert kept == 200 * 10_000
