"""``push``: upload a run, with everything that belongs to it, to the Hugging Face Hub."""

import argparse
import json

from core.cli.arguments import add_json, add_run
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.hub import push


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "repo", metavar="USER/NAME", help="a model repository on the Hub; created, private, if it does not exist"
    )
    parser.add_argument("--with-data", action="store_true", help="upload your own training pairs too, if there are any")
    parser.add_argument("--public", action="store_true", help="make a newly created repository public")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Push the run and print its address."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.run)
    address = push(folder, options.repo, with_data=options.with_data, public=options.public)
    print(f"run {options.run}: pushed to {address}")
    if options.json:
        print(json.dumps({"run": options.run, "repo": options.repo, "address": address}))
    return 0
