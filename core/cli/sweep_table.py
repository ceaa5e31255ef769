"""``sweep-table``: the trials of a sweep with mean, deviation and intervals over seeds, the best first."""

import argparse
import json
import math
from pathlib import Path

from core.runs import DEFAULT_ROOT
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.table import FORMATS, sweep_table
from core.storage.atomic import write_atomically
from core.storage.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Print the table, also of an unfinished sweep."""
    plot: Path | None = options.plot
    if options.level is not None and plot is None:
        raise InputError("--level is drawn into the plot: give --plot and --by too")
    if options.level is not None and not math.isfinite(options.level):
        raise InputError(f"--level={options.level} must be a finite number")
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
