"""``pull``: make a run of what ``push`` put on the Hugging Face Hub."""

import argparse

from core.cli.importing import take_in
from core.runs.hub import pull


def run(options: argparse.Namespace) -> int:
    """Fetch the run, check it, and print what it is."""
    return take_in(options, lambda root: pull(root, options.repo, name=options.run, revision=options.revision))
