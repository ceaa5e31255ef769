"""A run's training: an iterator of its events, in a context that resumes the run and, when it is left, saves it."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import torch

from core.config import Preset
from core.runs.folder import RunFolder
from core.runs.info import RunInfo
from core.runs.logs import open_logs
from core.runs.recorder import Recorder, mark_failed
from core.runs.training_state import resume_state
from core.storage.error_messages import shown
from core.storage.interrupts import interrupts_held
from core.training.distributed import ProcessGroup
from core.training.loop import EndEvent, Event, train
from core.training.state import TrainingState


class Training(Iterator[Event]):
    """A run in training, made by ``training``: iterate over it to train. An event is recorded before it is yielded.

    Between two events ``state`` is consistent. A second ``for`` loop continues where the first one was left; after the
    ``EndEvent`` there are no more events.

    Attributes:
        folder: the run's folder.
        state: the training state, updated in place.
        history: metrics by step, growing.
        replay: attention snapshots, growing.
        weights_by_step: weights at a few training steps, growing.
        reason: why the training is left before its end, for the run's message; set it before ``break``.
    """

    def __init__(self, recorder: Recorder, write_logs: Callable[[Event], None]) -> None:
        self.folder, self.state, self.history = recorder.folder, recorder.state, recorder.history
        self.replay, self.weights_by_step = recorder.replay, recorder.weights_by_step
        self.reason = ""
        self._recorder = recorder
        self._events = self._recorded(write_logs)
        self._is_between_events = True
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.folder.name}, step {self.state.step}>"

    @property
    def info(self) -> RunInfo:
        """The run's status and metrics as last recorded: its final ones after the context was left."""
        return self._recorder.info

    def __next__(self) -> Event:
        """Train up to the next event.

        Raises:
            KeyboardInterrupt: Ctrl+C was pressed, and the event, which is recorded, is not returned; pressed twice, it
                ends the update in the middle.
            RuntimeError: the context was left, so the folder's lock may be another's.
        """
        if self._is_closed:
            raise RuntimeError(f"run={self.folder.name!r}: the context of this training was left; enter another one")
        with interrupts_held():
            return next(self._events)

    def _recorded(self, write_logs: Callable[[Event], None]) -> Generator[Event, None, None]:
        with mark_failed(self.folder):  # here too, since the caller may suppress the exception
            self._is_between_events = False
            for event in train(self.state):
                self._recorder.record(event)
                write_logs(event)
                self._is_between_events = not isinstance(event, EndEvent)
                yield event
                self._is_between_events = False

    def _save(self) -> bool:
        """Save what was trained, unless the training has ended, which saved it, or an exception has interrupted it.

        Returns:
            Whether it was saved here.
        """
        if not self._is_between_events:
            return False
        if self.state.evaluated_step == self.state.preset.training.steps:  # only the EndEvent was not awaited
            self._recorder.end("finished")
        else:
            self._recorder.stop(self.reason)
        return True

    def _close(self) -> None:
        self._is_closed = True
        self._events.close()


@contextmanager
def training(
    folder: RunFolder,
    state: TrainingState | None = None,
    *,
    preset: Preset | None = None,
    device: str = "cpu",
    process_group: ProcessGroup | None = None,
    command: str = "",
    logs: Sequence[str] = (),
    is_locked: bool = False,
) -> Iterator[Training]:
    """Resume a run, or start a new one, and record in its folder what the block trains.

    Entering locks the folder and restores the last saved state; torch uses the run's number of threads until the block
    ends. Leaving stops the run and saves it, so that it can be resumed bit for bit: after ``break``, ``return``, Ctrl+C
    or without any training. An exception that leaves the block marks the run failed, and what was saved last is kept;
    after a ``KeyboardInterrupt`` in the middle of an update, the run is "interrupted" and resumes from there too.

    Args:
        folder: the run's folder, created by ``RunFolder.create``.
        state: the state to start from, for a caller that has built it before it created the folder; its torch threads
            and its process group are the caller's business. None restores the last one saved, or takes a new one.
        preset: the run's preset with another number of training steps, to extend the run; None reads it.
        device: "cpu", "cuda" or "mps"; of a restored state.
        process_group: the processes that train the run together, of which this is rank 0; of a restored state.
        command: what started the training, see ``TrainingSession``.
        logs: where else metrics are written, see ``core.runs.logs``.
        is_locked: whether the caller holds the folder's lock, and releases it.

    Raises:
        RunError: another process or thread uses the run; or the folder cannot be written to at the end.
        CheckpointError: there are saved states, but none can be used.
        Exception: any other of the training, the recorder or the block. The run is marked failed first, unless it
            could not be restored.
    """
    lock = None if is_locked else folder.lock()
    threads = torch.get_num_threads()
    try:
        if state is None:
            state = resume_state(folder, preset, device=device)
            state.process_group = process_group or ProcessGroup()
            if state.process_group.world_size == 1:  # with several processes, torchrun sets the number of threads
                _use_threads(state.threads)  # otherwise the rest would not be bit-exact
        if torch.get_num_threads() != state.threads and not state.notice:
            state.notice = f"started with {state.threads} torch threads, now {torch.get_num_threads()}: not bit-exact"
        if preset is not None and preset != folder.read_preset():
            folder.replace_preset(preset)
        with mark_failed(folder), open_logs(logs, folder, state) as write_logs:
            run = Training(Recorder(folder, state, command=command), write_logs)
            try:
                yield run
                run._save()
            except (GeneratorExit, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt):  # otherwise the block's generator was left by its caller
                    run.reason = run.reason or shown(error)
                with interrupts_held():  # Ctrl+C is often pressed twice, the second time while this saves
                    if run._save():  # a caller of ``lab.train`` does not know the name yet
                        error.add_note(
                            f"run={folder.name!r} is saved after step {run.state.step}; training() resumes it"
                        )
                raise
            finally:
                run._close()
    finally:
        _use_threads(threads)
        if lock is not None:
            lock.release()


def _use_threads(threads: int) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
