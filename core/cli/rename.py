"""``rename``: give a run another title; its folder keeps its name."""

import argparse
import json

from core.cli.arguments import add_json
from core.runs import DEFAULT_ROOT, RunFolder, other_titles
from core.runs.names import MAX_TITLE_LENGTH
from core.storage.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", metavar="RUN", help="name of the run")
    parser.add_argument(
        "title", metavar="TITLE", help=f'its new title, 1 to {MAX_TITLE_LENGTH} characters; "" restores the default'
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Store the title and print it."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.name)
    try:
        title = folder.rename(options.title, others=other_titles(folder))
    except OSError as error:
        raise InputError(f"run={options.name!r} cannot be renamed: {error.strerror or error}") from error
    print(f"run {folder.name}: {title}")
    if options.json:
        print(json.dumps({"run": folder.name, "title": title}))
    return 0
