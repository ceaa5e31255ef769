"""Freed memory returns to the system: on request, and large blocks immediately."""

import subprocess
import sys
from pathlib import Path

import pytest

from core.teaching.bugs import new_state
from core.training import loop

PROGRAM = """
import os
import torch
# Work before this, such as compiling modules, leaves holes as well. Each is smaller than a block that is kept.
holes = [bytearray(50_000) for _ in range(400)]
del holes[::2]
from benchmarks.resident_memory import resident_bytes
from core.training.freed_memory import give_back_freed_memory, give_back_large_blocks
for is_large in (False, True):
    if os.fork():
        os.wait()
        continue
    if is_large:
        give_back_large_blocks()
    give_back_freed_memory()
    kept = []
    for _ in range(2):  # the first round raises the size up to which the C library keeps blocks
        freed = []
        for _ in range(30):
            freed.append(torch.ones(1_100_000))  # 4.4 MB
            kept.append(torch.ones(250_000))
        del freed
    before = resident_bytes()
    give_back_freed_memory()
    print(before - resident_bytes(), sum(each.sum().item() for each in kept), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def kept_when_freed() -> list[float]:
    """Bytes that a process still holds of 132 MB in blocks that it freed, until it gives them back.

    By default, and if it need not give back large blocks.
    """
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    lines = [[*map(float, line.split())] for line in done.stdout.splitlines()]
    assert [kept for _, kept in lines] == [60 * 250_000] * 2
    return [given_back for given_back, _ in lines]


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of GNU's C library")


def test_blocks_freed_between_others_are_given_back(kept_when_freed):
    assert kept_when_freed[0] > 60_000_000


def test_large_blocks_need_not_be_given_back(kept_when_freed):
    assert kept_when_freed[1] < 6_000_000


def test_freed_memory_is_given_back_around_each_evaluation_and_before_it_is_recorded(tiny, monkeypatch):
    calls = []
    evaluate = loop.evaluate
    monkeypatch.setattr(loop, "give_back_freed_memory", lambda: calls.append("give back"))
    monkeypatch.setattr(loop, "evaluate", lambda *args, **kwargs: calls.append("evaluate") or evaluate(*args, **kwargs))
    changes = {"training.steps": 2, "training.warmup_steps": 1, "training.evaluate_every": 2}
    for event in loop.train(new_state(tiny.with_changes(changes))):
        calls.append(type(event).__name__)
    evaluation = ["give back", "evaluate", "give back", "EvaluationEvent", "give back"]
    assert calls == [*evaluation, "StepEvent", "StepEvent", *evaluation, "EndEvent"]
