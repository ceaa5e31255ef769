"""Every check of this folder adds a line to one table, printed at the end: what, how often, and what came of it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROWS: list[tuple[str, str, str, str, float]] = []
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of faults are logged as they should be; only a few would be of use beside a failure."""
    caplog.set_level("ERROR")


@pytest.fixture
def row() -> Callable[[str, str, str, str], None]:
    """Add a line to the table: a short name, what was done, how often, and what was found."""
    began = time.perf_counter()

    def add(name: str, what: str, count: str, found: str) -> None:
        ROWS.append((name, what, count, found, time.perf_counter() - began))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if not ROWS:
        return
    terminalreporter.section("faults")
    lines = [(name, what, count, found, f"{seconds:.1f} s") for name, what, count, found, seconds in sorted(ROWS)]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        written = "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        terminalreporter.write_line(written.rstrip())


class Memory:
    """How much more memory this process took at its highest since ``restart``, in MB."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # sets the highest to the present
        self._before = self._read("VmRSS")

    def grown(self) -> float:
        return (self._read("VmHWM") - self._before) / 1024

    @staticmethod
    def _read(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))


@pytest.fixture
def memory() -> Memory:
    """Watch the memory of this process; Linux only."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the highest memory of a process can be reset on Linux only")
    return Memory()
