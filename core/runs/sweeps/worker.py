"""The process that trains one run of a sweep: ``python -m core.runs.sweeps.worker``, started by a ``RunProcess``.

The first line of its standard input is a ``Request`` as JSON. It writes a line of JSON after every evaluation, and
reads an answer if the request says so: "continue" or "prune". If its standard input ends, the process that started it
has told it to stop or is gone: it saves the run and ends, as it does after SIGTERM.

Exit codes: 0 if the run is done or was pruned, 1 if it failed, 2 for invalid input, 143 if it was stopped.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.config.preset import PLUGIN_FILES, LoadedPlugin
from core.config.sections import Section
from core.storage.errors import InputError, LabError


class Request(Section):
    """What to train.

    Attributes:
        root: the folder of runs.
        run: name of the run.
        preset: the preset, as JSON.
        pairs: the file of the task's own pairs, if it has any.
        minutes: stop after so much training time.
        waits: wait for an answer after every evaluation.
        command: what started the training, for the run's provenance.
        device: what to train on, "cpu" or "cuda".
        logs: where else metrics are written.
        plugins: the files that ``--plugin`` names, as the program that sends this has loaded them.
    """

    root: str
    run: str
    preset: str
    pairs: str | None = None
    minutes: float | None = None
    waits: bool = False
    command: str = ""
    device: str = "cpu"
    logs: tuple[str, ...] = ()
    plugins: tuple[LoadedPlugin, ...] = ()


STOPPED = "stopped by its sweep"
PRUNED = "pruned by its sweep"


def main() -> int:
    """Train the run that standard input names, and return the exit code."""
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    reasons: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: reasons.append(STOPPED))
    threading.Thread(target=_read_lines, args=(answers, reasons), daemon=True).start()
    text = answers.get()
    if not text:
        return 143
    request = Request.model_validate_json(text)
    from core.config import Preset  # here, so that signals are handled before most is imported
    from core.runs import RunFolder
    from core.runs.sweeps.training import reported, sweep_training

    try:
        _load(request.plugins)
        with sweep_training(
            RunFolder(Path(request.root), request.run),
            Preset.model_validate_json(request.preset),
            pairs=Path(request.pairs) if request.pairs else None,
            command=request.command,
            device=request.device,
            logs=request.logs,
        ) as run:
            for report in reported(run, minutes=request.minutes, reasons=reasons):
                if not _written(report):
                    reasons.append(STOPPED)
                if request.waits and answers.get() == "prune":
                    reasons.append(PRUNED)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    if run.info.status == "stopped" and set(reasons) == {STOPPED}:
        return 143
    return 1 if run.info.status == "failed" else 0


def _written(report: dict[str, Any]) -> bool:
    """Write a report, and return whether the program that started this process can still read it."""
    try:
        print(json.dumps(report), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the interpreter writes at its end, too
        return False
    return True


def _load(plugins: Sequence[LoadedPlugin]) -> None:
    """Load the same plugins.

    Raises:
        LabError: one of them cannot be loaded any more, or is another version by now.
    """
    for plugin in plugins:
        from core.plugins import load  # few sweeps need it

        load(plugin.path)
        name = Path(plugin.path).name
        if PLUGIN_FILES[name] != plugin:
            raise InputError(f"--plugin {name}, or a file that it imports, has changed since the sweep was started")


def _read_lines(answers: "queue.SimpleQueue[str]", reasons: list[str]) -> None:
    """Put every line of standard input into a queue; at its end, ask the training to stop.

    The file descriptor is read, not ``sys.stdin``, whose lock a thread would hold when the interpreter ends.
    """
    pending = b""
    while chunk := os.read(0, 1 << 16):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            answers.put(line.decode("utf-8"))
    reasons.append(STOPPED)
    answers.put("")


if __name__ == "__main__":
    sys.exit(main())
