"""Give freed memory back to the system; the C library keeps it, in pieces that the next batch may not fit into."""

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def give_back_freed_memory() -> None:
    """Return freed blocks to the system, also those between used ones. Nothing happens without GNU's C library."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
