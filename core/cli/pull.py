"""``pull``: create a run from a repository of the Hugging Face Hub that ``push`` wrote."""

import argparse

from core.cli.arguments import add_json
from core.cli.import_run import add_new_name, create_run
from core.runs.hub import pull


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("repo", metavar="USER/NAME", help="a model repository on the Hub")
    parser.add_argument("--revision", metavar="NAME", help="branch, tag or commit (default: the newest)")
    add_new_name(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Download the run, check it, and print what it is."""
    return create_run(options, lambda root: pull(root, options.repo, name=options.run, revision=options.revision))
