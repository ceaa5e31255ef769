"""What goes wrong in processes that train: functions that ``Runs(prepare_process=...)`` calls in each of them."""

import ctypes
import os
import resource
import time
from collections.abc import Callable, Iterator

import torch

from core.runs import recorder, training
from core.training.loop import EvaluationEvent, Event
from core.training.state import TrainingState

MEGABYTE = 1 << 20


def _at_evaluation(step: int, run: str, do: Callable[[], object]) -> None:
    """Call ``do`` in the process of the run with this description after it has saved an evaluation.

    Other runs of the same server train as always.
    """
    genuine = training.train

    def train(state: TrainingState) -> Iterator[Event]:
        for event in genuine(state):
            yield event
            if isinstance(event, EvaluationEvent) and event.step == step and state.preset.description == run:
                do()

    training.train = train
    recorder.MIN_SECONDS_BETWEEN_SAVES = 0.0


def segfault(step: int, run: str) -> None:
    """Read address 0 after an evaluation."""
    _at_evaluation(step, run, lambda: ctypes.string_at(0))


def exit_early(step: int, run: str) -> None:
    """End the interpreter without its handlers after an evaluation."""
    _at_evaluation(step, run, lambda: os._exit(7))


def run_out_of_memory(step: int, run: str) -> None:
    """Need more memory than a limit allows after an evaluation."""

    def grow() -> None:
        pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115 - the process ends
        limit = pages * resource.getpagesize() + 200 * MEGABYTE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        torch.zeros(1000 * MEGABYTE)

    _at_evaluation(step, run, grow)


def hang(step: int, run: str) -> None:
    """Hang after an evaluation."""
    _at_evaluation(step, run, lambda: time.sleep(600))
