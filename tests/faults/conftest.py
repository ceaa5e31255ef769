"""Fixtures of the fault-injection tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Show only errors in the captured log: these tests log thousands of expected warnings."""
    caplog.set_level("ERROR")


class Memory:
    """Growth of this process's peak memory since ``restart``, in MB."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present use
        self._before = self._read("VmRSS")

    def grown(self) -> float:
        return (self._read("VmHWM") - self._before) / 1024

    @staticmethod
    def _read(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))


@pytest.fixture
def memory() -> Memory:
    """Measure the peak memory of this process (Linux only)."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak memory of a process can only be reset on Linux")
    return Memory()
