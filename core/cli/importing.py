"""What ``import`` and ``pull`` share: make a run of what came from elsewhere, and print what it is."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from core.runs import DEFAULT_ROOT, RunFolder
from core.storage.errors import InputError


def take_in(options: argparse.Namespace, make: Callable[[Path], RunFolder]) -> int:
    """Make a run in the folder of runs; InputError if it cannot be written."""
    try:
        folder = make(options.checkpoints or DEFAULT_ROOT)
    except OSError as error:
        raise InputError(f"the run cannot be written: {error.strerror or error}") from error
    info = folder.info()
    print(f"run {folder.name}: {folder.preset().name}, {info.parameters:,} parameters, weights of step {info.step}")
    if options.json:
        print(json.dumps({"run": folder.name, "parameters": info.parameters, "step": info.step}))
    return 0
