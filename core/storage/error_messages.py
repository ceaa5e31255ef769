"""What went wrong under a run or a handler, and what to do about it, in a sentence for the person who asked."""

import errno

from core.storage.errors import LabError

_KEPT = "what was saved before is kept"
_DISK_FULL = f"the disk is full; {_KEPT}. Delete runs that are not needed, then try again"
_UNWRITABLE = f"the folder of the runs cannot be written to; {_KEPT}. Make it writable, then try again"
_OF_DISK = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EFBIG: _DISK_FULL,
    errno.ENOENT: "a folder or file of the run was deleted meanwhile. Train it anew",
    errno.ENOTDIR: "the run's folder was deleted meanwhile. Train it anew",
    errno.EACCES: _UNWRITABLE,
    errno.EPERM: _UNWRITABLE,
    errno.EROFS: _UNWRITABLE,
    errno.EIO: f"the disk reports an error; {_KEPT}. Look after the disk, then try again",
    errno.EMFILE: f"the server has too many files open; {_KEPT}. Try again in a while",
}
_OUT_OF_MEMORY = f"there is not enough memory; {_KEPT}. Try a smaller model, or a smaller training.batch_size"


def is_machine_fault(error: BaseException) -> bool:
    """Tell whether memory or disk ran out, or the like, rather than the program being wrong."""
    return _is_of_memory(error) or (isinstance(error, OSError) and error.errno in _OF_DISK)


def explain_error(error: BaseException) -> str:
    """Say what an exception means, and what can be done."""
    if isinstance(error, LabError):
        return str(error)
    if _is_of_memory(error):
        return _OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno in _OF_DISK:
        return _OF_DISK[error.errno]
    return f"{type(error).__name__}: {error}. This is a fault of the program; {_KEPT}, and Resume goes on from there"


def _is_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error)
