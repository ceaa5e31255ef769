"""What ended a training, as its owner reads it: an exception, or the end of its process."""

import errno
import signal

from core.runs import RunFolder
from core.storage.error_messages import explain_error
from core.storage.errors import LabError

_SERVER_LOST = 255  # exit code of a process that cannot be known, since the process that it was forked from has ended
_ADVICE = (
    "data saved before is kept. Resume the run to continue from the last save; if it happens again, use a smaller "
    "model or a smaller training.batch_size"
)
NOT_STARTED = (
    "the training process could not be started: the server has too little memory or too many open files; data saved "
    "before is kept. Resume the run to try again"
)


class TrainingProcessError(LabError):
    """A process that trained a run ended early, or reports an exception; the message says what to do."""


def explain_failure(error: Exception, folder: RunFolder) -> str:
    """Return what an exception that ended the training of a run means, and what its owner can do about it.

    It is the first of a chain that counts: a full disk, for example, makes recording the failure fail too.
    """
    if not folder.exists():
        return explain_error(FileNotFoundError(errno.ENOENT, "the run's folder"))
    first: BaseException = error
    while isinstance(first, OSError) and first.__context__ is not None:
        first = first.__context__
    return explain_error(first)


def explain_exit(code: int | None) -> str:
    """Return what the exit code of a process means that ended before its training did.

    Args:
        code: minus the signal that ended it, if one did; None if it is not known.
    """
    if code == -signal.SIGKILL:
        return f"the training process was killed (signal 9), probably because memory ran out; {_ADVICE}"
    if code is not None and code < 0:
        return f"the training process crashed ({_signal_name(-code)}); {_ADVICE}"
    if code is None or code == _SERVER_LOST:
        return f"the training process ended early; {_ADVICE}"
    return f"the training process ended early, with exit code {code}; {_ADVICE}"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:  # a real-time signal
        return f"signal {number}"
