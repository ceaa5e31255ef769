"""Memory that was freed between blocks still in use goes back to the system."""

import sys

import pytest
import torch

from benchmarks.resident_memory import resident_bytes
from core.training.freed_memory import give_back_freed_memory


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU's C library")
def test_blocks_freed_between_others_are_given_back():
    kept = []
    for _ in range(2):  # the first round raises the size up to which the C library keeps blocks
        freed = []
        for _ in range(100):
            freed.append(torch.ones(250_000))  # 1 MB
            kept.append(torch.ones(10_000))
        del freed
    before = resident_bytes()
    give_back_freed_memory()
    assert before - resident_bytes() > 50_000_000
    assert sum(each.sum().item() for each in kept) == 200 * 10_000
