"""``import``: create a run from a file, zip or folder that ``export`` wrote, or from a run's ``best.safetensors``."""

import argparse
import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from core.runs import DEFAULT_ROOT, RunFolder, other_titles
from core.runs.importing import import_run
from core.storage.errors import InputError, LabError


def run(options: argparse.Namespace) -> int:
    """Check the file and create a finished run from it."""
    return create_run(options, lambda root: import_run(root, options.file, name=options.run))


def create_run(options: argparse.Namespace, create: Callable[[Path], RunFolder]) -> int:
    """Create a run in the folder of runs, print what it is, and return the exit code.

    Raises:
        InputError: the run cannot be written.
    """
    try:
        folder = create(options.checkpoints or DEFAULT_ROOT)
    except OSError as error:
        raise InputError(f"the run cannot be written: {error.strerror or error}") from error
    with contextlib.suppress(LabError, OSError):  # the title that it was exported with may be another run's
        if folder.read_title() in other_titles(folder):
            folder.rename("", others=())
    info = folder.read_info()
    print(
        f"run {folder.name}: {folder.read_preset().name}, {info.parameters:,} parameters, weights of step {info.step}"
    )
    if options.json:
        print(json.dumps({"run": folder.name, "parameters": info.parameters, "step": info.step}))
    return 0
