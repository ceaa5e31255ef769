"""Inference before training: training waits between two updates while a visitor's request is being computed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_TRAINING_WAIT = 0.25  # seconds between two updates: training advances however many requests arrive
MAX_INFERENCE_WAIT = 1.0  # seconds: after that, a request runs beside a slow one instead of waiting longer


class InferencePriority:
    """Runs inference requests one at a time, and makes training wait for them.

    Threads compete for the interpreter lock at each of the hundreds of small operations of a request, and lose more
    time to that than they compute: on two cores, two requests at the same time have half the throughput of one after
    the other, four a quarter. Training updates slow requests down in the same way, and can wait better than a person.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._num_requests = 0
        self._changed = threading.Condition()

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Run the block as one request: wait for the request before it, for ``MAX_INFERENCE_WAIT`` at most."""
        with self._changed:
            self._num_requests += 1
        acquired = self._turn.acquire(timeout=MAX_INFERENCE_WAIT)
        try:
            yield
        finally:
            if acquired:
                self._turn.release()
            with self._changed:
                self._num_requests -= 1
                self._changed.notify_all()

    def wait_for_inference(self) -> None:
        """Block until there is no request, for ``MAX_TRAINING_WAIT`` at most. Called by training between updates."""
        with self._changed:
            self._changed.wait_for(lambda: not self._num_requests, timeout=MAX_TRAINING_WAIT)
