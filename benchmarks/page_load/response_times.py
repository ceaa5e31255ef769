"""Response times of a server, summarized, and those of ``/health`` while it is busy."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles

SECONDS_BETWEEN_PINGS = 0.05
NO_RESPONSE = 60.0  # seconds counted for a failed ping


@dataclass(frozen=True)
class ResponseTimes:
    """Response times in seconds."""

    count: int
    median: float
    p95: float
    max: float

    @classmethod
    def of(cls, seconds: list[float]) -> "ResponseTimes":
        """Summarize measured times; all zero if there are none."""
        if len(seconds) < 2:
            return cls(len(seconds), *[max(seconds, default=0.0)] * 3)
        return cls(len(seconds), median(seconds), quantiles(seconds, n=20, method="inclusive")[-1], max(seconds))


class HealthPings:
    """Pings in a thread until ``stop`` is called.

    Args:
        ping: sends one request and returns the seconds to the response.
    """

    def __init__(self, ping: Callable[[], float]) -> None:
        self.seconds: list[float] = []
        self._ping, self._stop = ping, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_PINGS):
            try:
                self.seconds.append(self._ping())
            except OSError:
                self.seconds.append(NO_RESPONSE)

    def stop(self) -> ResponseTimes:
        """Stop pinging and return the response times."""
        self._stop.set()
        self._thread.join()
        return ResponseTimes.of(self.seconds)
