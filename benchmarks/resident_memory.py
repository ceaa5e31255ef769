"""The resident memory of this process, as Linux counts it."""

import gc
import os
import re
from pathlib import Path


def resident_bytes() -> int:
    """Return the resident set size in bytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def highest_resident_bytes() -> int:
    """Return the highest resident set size in bytes, since the process began or ``forget_highest`` was called."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(found[1]) if found else 0


def forget_highest() -> None:
    """Make the current resident set size the highest."""
    Path("/proc/self/clear_refs").write_text("5")
