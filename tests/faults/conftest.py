"""Fault-injection tests: each adds a row to a table that is printed at the end of the test session."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROWS: list[tuple[str, str, str, str, float]] = []
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Show only errors in the captured log: these tests log thousands of expected warnings."""
    caplog.set_level("ERROR")


@pytest.fixture
def row() -> Callable[[str, str, str, str], None]:
    """Add a row to the table: a short name, what was done, how often, and the result."""
    start = time.perf_counter()

    def add(name: str, what: str, count: str, result: str) -> None:
        ROWS.append((name, what, count, result, time.perf_counter() - start))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if not ROWS:
        return
    terminalreporter.section("faults")
    lines = [(name, what, count, result, f"{seconds:.1f} s") for name, what, count, result, seconds in sorted(ROWS)]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        written = "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        terminalreporter.write_line(written.rstrip())


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
