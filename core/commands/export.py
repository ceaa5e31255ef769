"""``export``: write a run's best weights and its preset into one file."""

import argparse
import json

from core.exports import export_run
from core.run_folder import DEFAULT_ROOT, RunFolder


def run(options: argparse.Namespace) -> int:
    """Write the file, which must not be there yet."""
    export_run(RunFolder(options.checkpoints or DEFAULT_ROOT, options.run), options.out)
    size = options.out.stat().st_size
    print(f"run {options.run}: written to {options.out}, {size:,} bytes")
    if options.json:
        print(json.dumps({"run": options.run, "out": str(options.out), "bytes": size}))
    return 0
