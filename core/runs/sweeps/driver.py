"""Train the runs of a sweep in several processes or on a cluster, and bring a sweep that was broken off to its end.

What is done is read from the runs themselves, so it does not matter how the last driver ended, or whether another one
is at work: a run whose lock a living process holds is left to it.
"""

import contextlib
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from core.config.preset import PLUGIN_FILES
from core.runs.sweeps.checks import memory_for_runs, memory_of
from core.runs.sweeps.cluster import NODE_LOST, Cluster, ClusterRun
from core.runs.sweeps.folder import SweepFile, SweepFolder, run_state
from core.runs.sweeps.processes import Message, RunProcess
from core.runs.sweeps.search import Search
from core.runs.sweeps.trials import Trial
from core.runs.sweeps.worker import Request

MAX_ATTEMPTS = 3  # to train a run whose process was killed
_POLL_SECONDS = 1.0  # between two looks at runs that other processes train

ResultStatus = Literal["done", "skipped", "pruned", "failed", "stopped"]


@dataclass(frozen=True)
class RunResult:
    """How a run of a sweep ended.

    Attributes:
        run: its name.
        status: "done"; "skipped" if it was done before; "pruned"; "failed"; or "stopped", with the sweep, to be resumed
            later, or with its trial.
        value: the goal's metric of the best weights, if it has one.
        seconds: training time over all sessions.
        message: why it failed, or "".
    """

    run: str
    status: ResultStatus
    value: float | None = None
    seconds: float = 0.0
    message: str = ""


@dataclass(eq=False)
class _Task:
    """A run to train."""

    trial: Trial
    seed: int
    is_first: bool  # of the trial's seeds: the one that pruning looks at
    attempts: int = 0


@dataclass
class _OpenTrial:
    """A trial whose runs have not all ended."""

    trial: Trial
    tasks: int
    values: list[float | None] = field(default_factory=list)
    first_has_ended: bool = False
    pruned: bool = False


class Driver:
    """Trains the runs of a sweep.

    Args:
        folder: the sweep's folder, prepared for this sweep.
        file: the sweep and its base preset.
        search: gives out the trials.
        jobs: number of runs that train at the same time, each with one thread; None, which needs a cluster, for as many
            as it has room for.
        pairs: the file of the task's own pairs, if it has any.
        part: ``(i, n)``: train only every n-th run of a grid, starting with run i; None for all.
        cluster: where to train; None for processes on this machine.
        logs: where else metrics of all runs are written, see ``core.runs.logs``.
        room: returns how many processes may train now, beside what else this machine does. If that becomes fewer than
            are training, the latest ones are saved, and resumed when there is room again.
        on_result: called with every result.
    """

    def __init__(
        self,
        folder: SweepFolder,
        file: SweepFile,
        search: Search,
        *,
        jobs: int | None,
        pairs: Path | None = None,
        part: tuple[int, int] | None = None,
        cluster: Cluster | None = None,
        logs: Sequence[str] = (),
        room: Callable[[], int] | None = None,
        on_result: Callable[[RunResult], None] = lambda result: None,
    ) -> None:
        self._folder, self._sweep, self._seeds, self._search = folder, file.sweep, file.seeds, search
        self._jobs, self._pairs, self._part, self._cluster, self._on_result = jobs, pairs, part, cluster, on_result
        self._logs = tuple(logs)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._waiting: list[_Task] = []
        self._active: dict[RunProcess | ClusterRun, tuple[_Task, int]] = {}  # with the memory of each
        self._open: dict[str, _OpenTrial] = {}
        self._room = room
        self._giving_way: set[RunProcess | ClusterRun] = set()  # told to save, to be resumed when there is room
        self._has_no_room = False
        self._trials_to_stop: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._num_runs_taken = 0
        self._stopping = self._told_to_stop = False
        self._memory = memory_for_runs()

    def stop(self) -> None:
        """Save and stop all runs, and return from ``run``. May be called by a signal handler."""
        self._stopping = True

    def stop_trial(self, name: str) -> None:
        """Save and stop the runs of a trial, and train none of them any more. May be called by any thread."""
        self._trials_to_stop.put(name)

    def training(self) -> list[str]:
        """Return the names of the runs that are being trained. May be called by any thread."""
        return [process.request.run for process in list(self._active)]

    def run(self) -> None:
        """Train until all runs have ended, or ``stop`` is called."""
        try:
            while True:
                self._stop_trials()
                self._make_room()
                self._fill()
                if not self._active and (self._stopping or not (self._waiting or self._has_no_room)):
                    return
                self._tell_to_stop()
                try:
                    self._take(self._messages.get(timeout=_POLL_SECONDS))
                except queue.Empty:
                    continue
        finally:
            for process in self._active:
                process.stop()
            for process in self._active:
                process.end()

    def _tell_to_stop(self) -> None:
        if self._stopping and not self._told_to_stop:
            self._told_to_stop = True
            for process in self._active:
                process.stop()

    def _stop_trials(self) -> None:
        """Stop the trials that ``stop_trial`` has named and that have not ended."""
        with contextlib.suppress(queue.Empty):
            while True:
                name = self._trials_to_stop.get_nowait()
                trial, record = self._open.get(name), self._folder.record(name)
                if trial is None or record is None:
                    continue
                self._folder.write_record(name, record.model_copy(update={"stopped": True}))
                self._drop_waiting(name, "stopped")
                for process, (task, _) in self._active.items():
                    if task.trial.name == name:
                        process.stop()
                self._close_if_ended(trial)

    def _make_room(self) -> None:
        """Save the runs that were started last, if more are training than there is room for."""
        if self._room is None:
            return
        staying = [process for process in self._active if process not in self._giving_way]
        for process in staying[max(0, self._room()) :]:
            self._giving_way.add(process)
            process.stop()

    # ---- what comes next

    def _fill(self) -> None:
        """Start runs until there are enough, or the next one would take too much memory."""
        room = self._most_runs()
        self._has_no_room = room is not None and room < 1  # then nobody knows whether there is another run
        while not self._stopping and self._has_room():
            task = self._next_task()
            if task is None:
                return
            memory = memory_of(task.trial.preset, self._pairs)
            used = sum(each for _, each in self._active.values())
            if self._cluster is None and self._active and memory + used > self._memory:
                self._waiting.insert(0, task)
                return
            self._start(task, memory)

    def _most_runs(self) -> int | None:
        """Return how many runs may train now; None for any number."""
        most = self._jobs if self._jobs is not None or self._cluster is None else self._cluster.room()
        if self._room is None:
            return most
        return self._room() if most is None else min(most, self._room())

    def _has_room(self) -> bool:
        most = self._most_runs()
        return most is None or len(self._active) < most

    def _next_task(self) -> _Task | None:
        while True:
            if task := self._ready_task():
                return task
            trial = self._search.next()
            if trial is None:
                return None
            self._open_trial(trial)

    def _open_trial(self, trial: Trial) -> None:
        record = self._folder.record(trial.name)
        if record is not None and record.stopped:
            self._search.finish(trial, None)
            return
        tasks = []
        for i, seed in enumerate(self._seeds):
            if self._part is None or self._num_runs_taken % self._part[1] == self._part[0]:
                tasks.append(_Task(trial, seed, is_first=i == 0))
            self._num_runs_taken += 1
        if tasks:
            self._open[trial.name] = _OpenTrial(trial, len(tasks))
            self._waiting += tasks

    def _ready_task(self) -> _Task | None:
        """Return the first task that can be trained now; those that are done end here."""
        for task in list(self._waiting):
            if task not in self._waiting:  # its trial was pruned
                continue
            if self._sweep.pruning != "none" and not task.is_first and not self._open[task.trial.name].first_has_ended:
                continue
            state = run_state(self._folder.run(task.trial.name, task.seed), self._sweep)
            if state == "busy":
                continue
            self._waiting.remove(task)
            if state != "done":
                return task
            self._end(task, "skipped")
        return None

    def _start(self, task: _Task, memory: int) -> None:
        request = Request(
            root=str(self._folder.root.resolve()),
            run=task.trial.run(task.seed),
            preset=task.trial.run_preset(task.seed).model_dump_json(),
            pairs=str(self._pairs.resolve()) if self._pairs else None,
            minutes=self._sweep.goal.minutes,
            waits=task.is_first and self._sweep.pruning != "none",
            command=f"sweep {self._sweep.name}",
            device="cuda" if self._sweep.resources.gpus else "cpu",
            logs=self._logs,
            plugins=tuple(PLUGIN_FILES.values()),
        )
        task.attempts += 1
        process: RunProcess | ClusterRun
        if self._cluster is None:
            process = RunProcess(request, self._messages)
        else:
            process = ClusterRun(self._cluster, request, memory, self._messages)
        self._active[process] = task, memory

    # ---- what has happened

    def _take(self, message: Message) -> None:
        task, _ = self._active[message.process]
        if message.content is None:
            del self._active[message.process]
            self._take_end(task, message.process)
        elif message.process.request.waits:
            figures: dict[str, Any] = message.content["figures"]
            prune = self._search.report(task.trial, message.content["evaluation"], figures[self._sweep.goal.metric])
            message.process.send("prune" if prune else "continue")

    def _take_end(self, task: _Task, process: RunProcess | ClusterRun) -> None:
        """Decide from the run's folder what has become of it; its process may have been killed at any moment."""
        code, errors = process.end()
        folder = self._folder.run(task.trial.name, task.seed)
        state = run_state(folder, self._sweep)
        record = self._folder.record(task.trial.name)
        gave_way = process in self._giving_way
        self._giving_way.discard(process)
        if state == "done":
            self._end(task, "done")
        elif record and record.stopped:
            self._end(task, "stopped")
        elif record and record.pruned is not None:
            self._end(task, "pruned", f"pruned after evaluation {record.pruned}")
        elif state == "failed":
            self._end(task, "failed", folder.written_info().message)
        elif state == "busy":  # another driver was faster
            self._waiting.append(task)
        elif self._stopping:
            self._on_result(RunResult(folder.name, "stopped"))
        elif code == NODE_LOST or (gave_way and code != 2):  # which says nothing about the run
            task.attempts -= 1
            self._waiting.insert(0, task)
        elif code == 2 or task.attempts >= MAX_ATTEMPTS:  # an error that is explained, or it is killed every time
            reason = errors.splitlines()[-1] if errors else f"its process ended with code {code}"
            self._end(task, "failed", reason)
        else:
            self._waiting.insert(0, task)

    def _end(self, task: _Task, status: ResultStatus, message: str = "") -> None:
        """Report how a run ended, and end its trial if it was the last one."""
        folder, name = self._folder.run(task.trial.name, task.seed), task.trial.name
        value, seconds = None, 0.0
        if folder.exists():
            info = folder.written_info()
            seconds = info.seconds
            if info.validation and status in ("done", "skipped"):
                value = getattr(info.validation, self._sweep.goal.metric)
        self._on_result(RunResult(folder.name, status, value, seconds, message))
        trial = self._open[name]
        trial.values.append(value)
        trial.first_has_ended |= task.is_first
        if status == "pruned":
            self._drop_waiting(name, "pruned")
            trial.pruned = True
        self._close_if_ended(trial)

    def _drop_waiting(self, name: str, status: ResultStatus) -> None:
        """Take the runs of a trial that have not begun off the list, and report them."""
        rest = [each for each in self._waiting if each.trial.name == name]
        self._waiting = [each for each in self._waiting if each.trial.name != name]
        for each in rest:
            self._on_result(RunResult(each.trial.run(each.seed), status))
        self._open[name].tasks -= len(rest)

    def _close_if_ended(self, trial: _OpenTrial) -> None:
        """End a trial if its last run has ended."""
        if len(trial.values) < trial.tasks:
            return
        del self._open[trial.trial.name]
        values = [each for each in trial.values if each is not None]
        whole = len(values) == len(trial.values) and bool(values) and not trial.pruned
        self._search.finish(trial.trial, fmean(values) if whole else None)
