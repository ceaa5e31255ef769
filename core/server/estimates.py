"""Training times of presets on this server, measured in the background."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from core.config import Preset
from core.runs.estimate import TrainingTime, estimate_training_time
from core.storage.errors import LabError

MAX_MEASURED = 500  # presets whose times are remembered
MAX_WAITING = 200  # presets that wait to be measured, of each kind
SECONDS_BETWEEN_CHECKS = 0.5  # whether trainings have ended
MAX_PAUSE = 15.0  # seconds that a measurement waits for others, in all
_log = logging.getLogger(__name__)

Answer = TrainingTime | Literal["pending"] | None
_Key = tuple[Any, ...]


class Estimates:
    """Measures the training times of presets one after another, in one background thread. Thread-safe.

    A preset is measured once while the process lives, whatever its name. Those requested for a list wait until no run
    trains, because each would slow the other down; a selected one is measured next in any case.

    Args:
        active_runs: returns how many runs train now.
        max_runs: how many runs train at the same time.
        device: the device that runs train on.
        wait_for_inference: called between the updates of a measurement, to let a visitor's request go first.
    """

    def __init__(
        self,
        active_runs: Callable[[], int],
        *,
        max_runs: int,
        device: str = "cpu",
        wait_for_inference: Callable[[], None] = lambda: None,
    ) -> None:
        self._device = device
        self._active_runs, self._max_runs, self._wait_for_inference = active_runs, max_runs, wait_for_inference
        self._times: OrderedDict[_Key, TrainingTime | None] = OrderedDict()
        self._selected: OrderedDict[_Key, tuple[Preset, Path | None]] = OrderedDict()
        self._listed: OrderedDict[_Key, tuple[Preset, Path | None]] = OrderedDict()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._paused_until = 0.0  # by the monotonic clock

    def get(self, preset: Preset, pairs: Path | None = None) -> Answer:
        """Return the training time of a run that would start now, beside those that train.

        Args:
            pairs: the file of the task's own pairs, if it has any.

        Returns:
            "pending" if it has not been measured; None if it cannot be.
        """
        key = _key(preset, pairs)
        with self._changed:
            if key not in self._times:
                return "pending"
            self._times.move_to_end(key)
            measured = self._times[key]
        return None if measured is None else measured.beside(min(self._active_runs(), self._max_runs - 1))

    def request(self, presets: Iterable[tuple[Preset, Path | None]]) -> None:
        """Measure presets in this order, each with the file of its own pairs, while no run trains."""
        with self._changed:
            for preset, pairs in presets:
                key = _key(preset, pairs)
                if key not in self._times and len(self._listed) < MAX_WAITING:
                    self._listed.setdefault(key, (preset, pairs))
            self._wake()

    def select(self, preset: Preset, pairs: Path | None = None) -> None:
        """Measure a preset next, even while runs train."""
        key = _key(preset, pairs)
        with self._changed:
            if key not in self._times:
                self._selected[key] = preset, pairs
                self._selected.move_to_end(key, last=False)
                while len(self._selected) > MAX_WAITING:
                    self._selected.popitem()
                self._wake()

    def wait(self, preset: Preset, pairs: Path | None = None, *, seconds: float) -> Answer:
        """Select a preset, and return what ``get`` returns once it is measured, or after ``seconds``."""
        self.select(preset, pairs)
        key = _key(preset, pairs)
        with self._changed:
            self._changed.wait_for(lambda: key in self._times or self._closed, timeout=seconds)
        return self.get(preset, pairs)

    def pause(self, *, seconds: float) -> None:
        """Measure nothing for so long, also not the rest of the measurement in progress: a person waits for something.

        A measurement is put off by at most ``MAX_PAUSE`` seconds, however often others pause it.
        """
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def close(self, *, seconds: float = 5.0) -> None:
        """Measure nothing more, and wait for the measurement in progress to end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _wake(self) -> None:
        """Wake the thread, which the first request starts. Requires the lock."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name="estimate training times", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while (waiting := self._next()) is not None:
            measured = _measure(*waiting, self._device, self._patience())
            key = _key(*waiting)
            with self._changed:
                self._selected.pop(key, None)
                self._listed.pop(key, None)
                self._times[key] = measured
                while len(self._times) > MAX_MEASURED:
                    self._times.popitem(last=False)
                self._changed.notify_all()

    def _patience(self) -> Callable[[], None]:
        """Return a function that waits until nobody needs the processor more, up to ``MAX_PAUSE`` seconds in all."""
        left = MAX_PAUSE

        def wait_for_others() -> None:
            nonlocal left
            self._wait_for_inference()
            seconds = min(left, self._paused_until - time.monotonic())
            while seconds > 0 and not self._closed:
                nap = min(seconds, SECONDS_BETWEEN_CHECKS)
                time.sleep(nap)
                left -= nap
                seconds = min(left, self._paused_until - time.monotonic())

        return wait_for_others

    def _next(self) -> tuple[Preset, Path | None] | None:
        """Wait until a preset may be measured, and return it with its pairs; None once closed."""
        with self._changed:
            while not self._closed:
                if self._selected:
                    return next(iter(self._selected.values()))
                if self._listed and not self._active_runs():
                    return next(iter(self._listed.values()))
                self._changed.wait(SECONDS_BETWEEN_CHECKS if self._listed else None)
        return None


def _key(preset: Preset, pairs: Path | None) -> _Key:
    """Return what the time depends on: all but name, description and bug."""
    return preset.task, preset.model, preset.training, pairs


def _measure(
    preset: Preset, pairs: Path | None, device: str, wait_for_others: Callable[[], None]
) -> TrainingTime | None:
    try:
        return estimate_training_time(preset, pairs=pairs, device=device, wait_for_others=wait_for_others)
    except LabError as error:
        _log.info("not measured: %s", error, extra={"preset": preset.name})
    except Exception as error:  # noqa: BLE001 - for example too little memory; other presets are measured all the same
        _log.error("not measured", extra={"preset": preset.name}, exc_info=error)
    return None
