"""``export``: write a run's best weights and its preset into one file, or all that there is to give away."""

import argparse
import json

from core.exports import export_run
from core.packages import export_package
from core.run_folder import DEFAULT_ROOT, RunFolder


def run(options: argparse.Namespace) -> int:
    """Write the file, zip or folder, which must not be there yet."""
    write = export_package if options.whole or options.out.suffix == ".zip" else export_run
    write(RunFolder(options.checkpoints or DEFAULT_ROOT, options.run), options.out)
    files = options.out.iterdir() if options.out.is_dir() else [options.out]
    size = sum(file.stat().st_size for file in files)
    print(f"run {options.run}: written to {options.out}, {size:,} bytes")
    if options.json:
        print(json.dumps({"run": options.run, "out": str(options.out), "bytes": size}))
    return 0
