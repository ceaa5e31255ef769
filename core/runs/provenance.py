"""Record the provenance of a training: the program and hardware it runs on, and what started it."""

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal, cast

import torch

from core import __version__
from core.config.preset import PLUGIN_FILES
from core.runs.info import MAX_SESSIONS, Provenance, TrainingSession, recorded_name, recorded_plugin

COMMIT_VARIABLE = "ATTENTION_LAB_COMMIT"  # set where the program runs from a copy without its repository
PAGE = "page"  # the command of trainings that were started on the page
REPOSITORY = Path(__file__).resolve().parents[2]
MAX_COMMAND = 1_000
_SECONDS = 5.0  # that another program may take to answer
_NOT_IN_COMMANDS = re.compile(r"[^ -.0-;=?-\[\]-_a-{}~]")


def begin_session(*, command: str, step: int, device: str, processes: int) -> TrainingSession:
    """Describe a training session that begins now in this process.

    Args:
        command: arguments of the command line, or ``PAGE``; what ``TrainingSession`` does not allow is replaced by "?".
        step: number of training steps made before.
        device: "cpu", "cuda" or "mps".
        processes: number of processes that train together.
    """
    now = _now()
    return TrainingSession(
        command=_NOT_IN_COMMANDS.sub("?", command)[:MAX_COMMAND],
        start=now,
        end=now,
        step=step,
        version=recorded_name(__version__),
        commit=commit_of_program(),
        python=recorded_name(platform.python_version()),
        torch=recorded_name(torch.__version__),
        numpy=recorded_name(importlib.metadata.version("numpy")),
        system=recorded_name(f"{platform.system()} {platform.machine()}"),
        cpu=_cpu(),
        device=cast(Literal["cpu", "cuda", "mps"], device),
        gpu=recorded_name(torch.cuda.get_device_name()) if device == "cuda" else None,
        threads=torch.get_num_threads(),
        processes=processes,
        plugins=tuple(recorded_plugin(name, plugin) for name, plugin in [*PLUGIN_FILES.items()][:16]),
    )


def with_session(earlier: Provenance, session: TrainingSession) -> Provenance:
    """Append a session, with its end set to now; of too many, the first and the latest ones are kept."""
    sessions = (*earlier, session.model_copy(update={"end": _now()}))
    return sessions if len(sessions) <= MAX_SESSIONS else (sessions[0], *sessions[-(MAX_SESSIONS - 1) :])


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@cache
def commit_of_program() -> str | None:
    """Return the commit of the checkout that this program runs from, "-dirty" if its tracked files differ, or None.

    It is determined once per process, since the program was read when the process started.
    """
    copied = os.environ.get(COMMIT_VARIABLE, "")
    if re.fullmatch(r"[0-9a-f]{40,64}(-dirty)?", copied):
        return copied
    if not (REPOSITORY / ".git").exists():  # an installed package may lie inside another project's checkout
        return None
    status = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    lines = _output_of("git", "--no-optional-locks", "-C", str(REPOSITORY), *status).splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit):  # "(initial)" before the first commit
        return None
    return commit if all(line.startswith("#") for line in lines) else f"{commit}-dirty"


@cache
def _cpu() -> str:
    """Return the model of the CPU, or its kind where the system does not name the model."""
    try:
        model = re.search(r"^model name\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):  # not Linux
        model = None
    if model:
        return recorded_name(model[1])
    brand = _output_of("sysctl", "-n", "machdep.cpu.brand_string") if platform.system() == "Darwin" else ""
    return recorded_name(brand or platform.processor() or platform.machine())


def _output_of(*command: str) -> str:
    """Return the standard output of another program, or "" if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, UnicodeDecodeError, subprocess.SubprocessError):
        return ""
    return done.stdout
