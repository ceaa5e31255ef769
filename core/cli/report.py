"""``report``: evaluate a run and write a report on it, as HTML and as Markdown with pictures."""

import argparse
import json
from pathlib import Path

from core.cli.arguments import check_sequences
from core.reports.report import REPORT_FILES, write_report
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.run import Runs
from core.storage.errors import InputError, LabError


def run(options: argparse.Namespace) -> int:
    """Write the report and print its first sentence."""
    check_sequences(options.sequences)
    root = options.checkpoints or DEFAULT_ROOT
    folder: Path = options.out or RunFolder(root, options.run).report
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out={folder} is a file; it must be a folder")
    report = write_report(Runs(root, pairs=options.pairs)[options.run], sequences=options.sequences)
    try:
        report.save(folder)
    except LabError as error:  # the page, which shows the same message, names no folders of its machine
        raise LabError(f"{'' if options.out is None else '--out='}{folder}: {error}") from error
    print(report.summary)
    print(f"written: {folder / 'report.html'}, report.md and {len(report.figures)} figures")
    if options.json:
        files = [name for name in REPORT_FILES if (folder / name).is_file()]
        print(json.dumps({**report.metrics, "folder": str(folder), "files": files}))
    return 0
