"""Explain an exception to the user: what went wrong and what to do about it."""

import errno
import re
import traceback
from pathlib import Path
from typing import Any

from core.storage.errors import LabError

_MAX_WORD, _SHOWN, _MAX_MESSAGE = 300, 80, 4_000  # characters; a path may be long, and all presets are listed
_SAVED_DATA_KEPT = "data saved before is kept"
_DISK_FULL = f"the disk is full; {_SAVED_DATA_KEPT}. Delete runs that are not needed, then try again"
_NOT_WRITABLE = f"the folder of the runs is not writable; {_SAVED_DATA_KEPT}. Make it writable, then try again"
_DISK_ERRORS = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EFBIG: _DISK_FULL,
    errno.ENOENT: "a folder or file of the run was deleted while it was in use. Train the run again",
    errno.ENOTDIR: "the run's folder was deleted while it was in use. Train the run again",
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.EROFS: _NOT_WRITABLE,
    errno.EIO: f"the disk reports an error; {_SAVED_DATA_KEPT}. Check the disk, then try again",
    errno.EMFILE: f"the server has too many open files; {_SAVED_DATA_KEPT}. Try again later",
}
_OUT_OF_MEMORY = f"out of memory; {_SAVED_DATA_KEPT}. Use a smaller model or a smaller training.batch_size"


def bounded(message: str) -> str:
    """Return a message with its long words and its end cut off: it may repeat what a user or a file sent."""
    words = re.sub(
        rf"\S{{{_MAX_WORD + 1},}}", lambda word: f"{word[0][:_SHOWN]}… ({len(word[0]):,} characters)", message
    )
    return words if len(words) <= _MAX_MESSAGE else f"{words[:_MAX_MESSAGE]}…"


def short_repr(value: Any, most: int = 60) -> str:
    """Return the repr of a value for a message; a long one ends with "…"."""
    try:
        text = repr(value)
    except ValueError:  # an int with more digits than Python converts
        text = f"a number of {value.bit_length()} bits"
    return shortened(text, most)


def shortened(text: str, most: int = 60) -> str:
    """Return a text for a message; a long one ends with "…"."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def is_machine_fault(error: BaseException) -> bool:
    """Whether an exception comes from the machine (memory, disk, open files) rather than from a bug."""
    return _is_out_of_memory(error) or (isinstance(error, OSError) and error.errno in _DISK_ERRORS)


def explain_error(error: BaseException) -> str:
    """Return what an exception means and what the user can do about it."""
    if isinstance(error, LabError):
        return str(error)
    if _is_out_of_memory(error):
        return _OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return _DISK_ERRORS[error.errno]
    return f"{shown(error)}. This is a bug; {_SAVED_DATA_KEPT}, and the run can be resumed from there"


def shown(error: BaseException) -> str:
    """Return what an exception in a user's own Python code says: its message, after its type unless it is ours."""
    if isinstance(error, LabError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by Ctrl+C"
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return ": ".join(filter(None, [type(error).__name__, message]))  # that of `assert` is empty


def place_in(file: Path, error: Exception) -> str:
    """Return the line of a user's file at which an exception left it, or of a file that it imports."""
    if isinstance(error, SyntaxError) and error.filename:
        is_own = Path(error.filename) == file
        return f"line {error.lineno}" if is_own else f"{Path(error.filename).name} line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if Path(frame.filename) == file]
    return f"line {own[-1]}" if own else "at its import"


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error)
