"""``report``: measure a run and write what was found."""

import argparse
import json
from pathlib import Path

from core.commands.evaluate import check_sequences
from core.report import write_report
from core.run_folder import DEFAULT_ROOT, RunFolder
from core.runs import Runs


def run(options: argparse.Namespace) -> int:
    """Write the report into the run's folder, or where asked to, and print its first sentence."""
    check_sequences(options.sequences)
    root = options.checkpoints or DEFAULT_ROOT
    report = write_report(Runs(root), options.run, sequences=options.sequences)
    folder: Path = options.out or RunFolder(root, options.run).report
    report.save(folder)
    print(report.summary)
    print(f"written: {folder / 'report.html'}, report.md and {len(report.pictures)} pictures beside it")
    if options.json:
        files = ["report.html", "report.md", *report.pictures]
        print(json.dumps({"run": options.run, "summary": report.summary, "folder": str(folder), "files": files}))
    return 0
