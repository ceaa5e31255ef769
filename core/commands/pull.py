"""``pull``: make a run of what ``push`` put on the Hugging Face Hub."""

import argparse
import json

from core.errors import InputError
from core.hub import pull
from core.run_folder import DEFAULT_ROOT


def run(options: argparse.Namespace) -> int:
    """Fetch the run, check it, and print what it is."""
    root = options.checkpoints or DEFAULT_ROOT
    try:
        folder = pull(root, options.repo, name=options.run, revision=options.revision)
    except OSError as error:
        raise InputError(f"the run cannot be written: {error.strerror or error}") from error
    info = folder.info()
    print(f"run {folder.name}: {folder.preset().name}, {info.parameters:,} parameters, weights of step {info.step}")
    if options.json:
        print(json.dumps({"run": folder.name, "parameters": info.parameters, "step": info.step}))
    return 0
