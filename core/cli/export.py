"""``export``: write a run's best weights and its preset into one file, or all that there is to give away."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.export import export_run
from core.runs.onnx_export import export_onnx
from core.runs.package import export_package


def run(options: argparse.Namespace) -> int:
    """Write the file, zip, folder or ONNX model, which must not be there yet."""
    _writer(options)(RunFolder(options.checkpoints or DEFAULT_ROOT, options.run), options.out)
    files = options.out.iterdir() if options.out.is_dir() else [options.out]
    size = sum(file.stat().st_size for file in files)
    print(f"run {options.run}: written to {options.out}, {size:,} bytes")
    if options.json:
        print(json.dumps({"run": options.run, "out": str(options.out), "bytes": size}))
    return 0


def _writer(options: argparse.Namespace) -> Callable[[RunFolder, Path], None]:
    """Return what writes such a file: what it is goes by the end of its name."""
    if options.out.suffix == ".onnx":
        return export_onnx
    return export_package if options.whole or options.out.suffix == ".zip" else export_run
