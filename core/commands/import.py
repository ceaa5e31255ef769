"""``import``: make a run of what ``export`` wrote, or of a run's ``best.safetensors``."""

import argparse
import json

from core.errors import InputError
from core.packages import import_any
from core.run_folder import DEFAULT_ROOT


def run(options: argparse.Namespace) -> int:
    """Check the file and make a finished run of it."""
    try:
        folder = import_any(options.checkpoints or DEFAULT_ROOT, options.file, name=options.run)
    except OSError as error:
        raise InputError(f"the run cannot be written: {error.strerror or error}") from error
    info = folder.info()
    print(f"run {folder.name}: {folder.preset().name}, {info.parameters:,} parameters, weights of step {info.step}")
    if options.json:
        print(json.dumps({"run": folder.name, "parameters": info.parameters, "step": info.step}))
    return 0
