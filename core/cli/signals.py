"""Stop a command in order on Ctrl+C or SIGTERM, so that its results are saved."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from tqdm import tqdm

PATIENCE = 60.0  # seconds from the first signal to the end of the update that runs then
_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call ``stop`` on Ctrl+C, or on SIGTERM, which torchrun and job queues send instead, inside the block.

    If the block has not ended ``PATIENCE`` seconds later, or if a second signal comes, the process exits with 128 + the
    signal's number, and loses what it did since its last save.

    Yields:
        The signals that have arrived, in a list that grows.
    """
    arrived: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        arrived.append(number)
        stop()

    with _patience():
        previous = {each: signal.signal(each, handle) for each in _STOPPING}
        try:
            yield arrived
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)


def print_or_stop(text: str, stop: Callable[[], None], bar: tqdm) -> None:
    """Print a line above a progress bar. If it cannot be written, as its reader has gone, call ``stop`` to save."""
    try:
        bar.write(text, file=sys.stdout)
        sys.stdout.flush()
    except OSError as error:
        stop()
        print(f"standard output: {error.strerror}; training stops and is saved", file=sys.stderr)


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """End the process if the block goes on for too long after a signal.

    Python calls handlers between two operations of the main thread, which may take minutes. A thread learns of a signal
    at once, from the socket that the interpreter writes its number to.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def wait() -> None:
        first = 0
        while True:
            try:
                number = ord(reader.recv(1) or b"\0")
            except TimeoutError:
                break
            if not number:
                return  # the block has ended
            if first and number in _STOPPING:
                break
            if number in _STOPPING:
                first = number
                reader.settimeout(PATIENCE)
        message = "stopped before the end of this update, without saving it; resume goes on from the last save"
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{message}\n".encode())
        os._exit(128 + first)

    watching = threading.Thread(target=wait, name="signals", daemon=True)
    watching.start()
    previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        writer.send(b"\0")
        watching.join()
        reader.close()
        writer.close()


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Exit with code 143 on SIGTERM inside the block, so that temporary files are deleted; by default, they stay."""

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
