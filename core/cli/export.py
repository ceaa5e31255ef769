"""``export``: write a run's best weights and its preset into one file, or into a zip or folder with everything else."""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from core.cli.arguments import add_json, add_run
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.export import export_package, export_weights
from core.runs.onnx_export import export_onnx
from core.storage.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="OUT", help="a new file, .zip, .onnx or folder; it must not exist"
    )
    parser.add_argument(
        "--whole", action="store_true", help="a folder with vocabulary, model card and pairs as well, as in a .zip"
    )
    parser.add_argument("--half", action="store_true", help="a weight file in float16, which is half as large")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Write the file, zip, folder or ONNX model."""
    _writer(options)(RunFolder(options.checkpoints or DEFAULT_ROOT, options.run), options.out)
    files = options.out.iterdir() if options.out.is_dir() else [options.out]
    size = sum(file.stat().st_size for file in files)
    print(f"run {options.run}: written to {options.out}, {size:,} bytes")
    if options.json:
        print(json.dumps({"run": options.run, "out": str(options.out), "bytes": size}))
    return 0


def _writer(options: argparse.Namespace) -> Callable[[RunFolder, Path], None]:
    """Return the function that writes this kind of file, chosen by the name's suffix."""
    is_package = options.whole or options.out.suffix == ".zip"
    if options.half and (is_package or options.out.suffix == ".onnx"):
        raise InputError(f"--half writes a weight file, not --out={str(options.out)[:200]}")
    if options.out.suffix == ".onnx":
        return export_onnx
    return export_package if is_package else partial(export_weights, half=options.half)
