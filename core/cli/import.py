"""``import``: make a run of what ``export`` wrote, or of a run's ``best.safetensors``."""

import argparse

from core.cli.importing import take_in
from core.runs.package import import_any


def run(options: argparse.Namespace) -> int:
    """Check the file and make a finished run of it."""
    return take_in(options, lambda root: import_any(root, options.file, name=options.run))
