"""What went wrong with a run, and what to do about it, in a sentence for the person whose run it is."""

import errno

from core.errors import LabError

_KEPT = "what was saved before is kept"
_DISK_FULL = f"the disk is full; {_KEPT}. Delete runs that are not needed, then press Resume"
_OF_DISK = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EFBIG: _DISK_FULL,
    errno.ENOENT: "the run's folder, or a file in it, was deleted while it trained. Train it anew",
    errno.ENOTDIR: "the run's folder was deleted while it trained. Train it anew",
    errno.EACCES: f"the run's folder cannot be written to; {_KEPT}. Make it writable, then press Resume",
    errno.EPERM: f"the run's folder cannot be written to; {_KEPT}. Make it writable, then press Resume",
    errno.EROFS: f"the disk can only be read; {_KEPT}. Make it writable, then press Resume",
    errno.EIO: f"the disk reports an error; {_KEPT}. Look after the disk, then press Resume",
}
_OUT_OF_MEMORY = f"there is not enough memory; {_KEPT}. Train a smaller model, or with a smaller training.batch_size"


def cause_and_cure(error: BaseException) -> str:
    """Say what an exception that ended a run means to its owner."""
    if isinstance(error, LabError):
        return str(error)
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return _OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno in _OF_DISK:
        return _OF_DISK[error.errno]
    return f"{type(error).__name__}: {error}. This is a fault of the program; {_KEPT}, and Resume goes on from there"
