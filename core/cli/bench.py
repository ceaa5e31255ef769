"""``bench``: run a benchmark. Each subject is a module in benchmarks/ or, for the page under load, page_load/."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path

import torch

from core.storage.errors import InputError

# Programs of their own, because core must not import ui; by subject
PAGE_SUBJECTS = {"class": "classroom", "waits": "waits"}
REPOSITORY = Path(__file__).resolve().parents[2]


def run(options: argparse.Namespace) -> int:
    """Measure and print a table; return 1 if a benchmark of the page misses its targets."""
    if options.subject in PAGE_SUBJECTS:
        return _bench_page(options)
    torch.set_num_threads(1)  # so that results can be compared between machines
    results = importlib.import_module(f"benchmarks.{options.subject}").run_bench(options)
    if options.json:
        print(json.dumps({"benchmark": options.subject, "threads": 1} | results))
    return 0


def _bench_page(options: argparse.Namespace) -> int:
    """Run a benchmark of the page, which starts the app and its visitors in other processes."""
    minutes = getattr(options, "minutes", None)
    students = getattr(options, "students", None)
    if minutes is not None and minutes <= 0:
        raise InputError(f"--minutes={minutes:g} must be above 0")
    if students is not None and students < 1:
        raise InputError(f"--students={students} must be at least 1")
    command = [sys.executable, "-m", f"benchmarks.page_load.{PAGE_SUBJECTS[options.subject]}"]
    command += ["--minutes", str(minutes)] * (minutes is not None)
    command += ["--students", str(students)] * (students is not None)
    command += ["--attack"] * getattr(options, "attack", False)
    command += ["--json"] * options.json
    sys.stdout.flush()
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode  # noqa: S603 - this repository's own program
