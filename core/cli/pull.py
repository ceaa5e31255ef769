"""``pull``: create a run from a repository of the Hugging Face Hub that ``push`` wrote."""

import argparse

from core.cli.import_run import create_run
from core.runs.hub import pull


def run(options: argparse.Namespace) -> int:
    """Download the run, check it, and print what it is."""
    return create_run(options, lambda root: pull(root, options.repo, name=options.run, revision=options.revision))
