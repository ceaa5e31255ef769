"""``bench``: how fast something is on this machine; one module a subject, in benchmarks/ or benchmarks/page_load/."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path

import torch

from core.storage.errors import InputError

OF_THE_PAGE = ("load", "soak")  # programs of their own: they know the page, which core does not
REPOSITORY = Path(__file__).resolve().parents[2]


def run(options: argparse.Namespace) -> int:
    """Measure and print a table; return 1 where a benchmark of the page misses its targets."""
    if options.subject in OF_THE_PAGE:
        return _bench_page(options)
    torch.set_num_threads(1)  # so that figures can be compared
    made = importlib.import_module(f"benchmarks.{options.subject}").run_bench(options)
    if options.json:
        print(json.dumps({"benchmark": options.subject, "threads": 1} | made))
    return 0


def _bench_page(options: argparse.Namespace) -> int:
    """Measure the page, in processes of its own and of its visitors."""
    visitors = getattr(options, "visitors", None)
    if options.minutes <= 0 or (visitors is not None and visitors < 1):
        raise InputError(f"--minutes={options.minutes:g} must be above 0, and --visitors={visitors} at least 1")
    command = [sys.executable, "-m", f"benchmarks.page_load.{options.subject}", "--minutes", str(options.minutes)]
    command += ["--visitors", str(visitors)] * (visitors is not None) + ["--json"] * options.json
    sys.stdout.flush()
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode  # noqa: S603 - of this project
