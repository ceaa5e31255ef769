"""``sweep-table``: the trials of a sweep with mean, deviation and intervals over seeds, the best first."""

import argparse
import json

from core.cli.arguments import add_json
from core.runs import DEFAULT_ROOT
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.table import FORMATS, sweep_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("sweep", metavar="NAME", help="name of the sweep")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="format to print (default: text)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table, also of a sweep that is not at its end."""
    table = sweep_table(SweepFolder(options.checkpoints or DEFAULT_ROOT, options.sweep))
    print(FORMATS[options.format](table))
    if options.json:
        print(json.dumps(table.as_json()))
    return 0
