"""``sweep-table``: the trials of a sweep with mean, deviation and intervals over seeds, the best first."""

import argparse
import json
from pathlib import Path
from typing import get_args

from core.cli.arguments import add_json
from core.runs import DEFAULT_ROOT
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.sweep import Metric
from core.runs.sweeps.table import FORMATS, sweep_table
from core.storage.atomic import write_atomically
from core.storage.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("sweep", metavar="NAME", help="name of the sweep")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="format to print (default: text)")
    parser.add_argument("--metric", choices=get_args(Metric), help="metric to show (default: the sweep's goal)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw the trials along the axis --by")
    parser.add_argument("--by", metavar="KEY", help="plot: the axis, such as training.learning_rate")
    parser.add_argument("--level", type=float, metavar="X", help="plot: a dashed line; counts the trials that reach it")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table, also of an unfinished sweep."""
    plot: Path | None = options.plot
    if (plot is None) != (options.by is None):
        raise InputError("--plot and --by must be given together, such as --plot rates.png --by training.learning_rate")
    if plot is not None and (plot.suffix != ".png" or not plot.parent.is_dir()):
        raise InputError(f"--plot={str(plot)[:200]} must end with .png, in a folder that exists")
    table = sweep_table(SweepFolder(options.checkpoints or DEFAULT_ROOT, options.sweep), metric=options.metric)
    print(FORMATS[options.format](table))
    if plot is not None:
        from core.reports.plotting import as_png  # imports matplotlib, which the table does not need
        from core.reports.sweep_figure import sweep_figure

        write_atomically(plot, as_png(sweep_figure(table, key=options.by, level=options.level)))
        print(f"written: {plot}")
    if options.json:
        print(json.dumps(table.as_json()))
    return 0
