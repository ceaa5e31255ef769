"""``export``: write a run's best weights and its preset into one file, or into a zip or folder with everything else.

With ``--html`` it writes a page instead, with the run's charts, its replay and its model to decode with.
"""

import argparse
import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.export import export_package, export_weights
from core.runs.onnx_export import export_onnx
from core.storage.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Write the file, zip, folder, ONNX model or page."""
    out: Path = options.html or options.out
    _writer(options)(RunFolder(options.checkpoints or DEFAULT_ROOT, options.run), out)
    files = out.iterdir() if out.is_dir() else [out]
    size = sum(file.stat().st_size for file in files)
    print(f"run {options.run}: written to {out}, {size:,} bytes")
    if options.json:
        print(json.dumps({"run": options.run, "out": str(out), "bytes": size}))
    return 0


def _writer(options: argparse.Namespace) -> Callable[[RunFolder, Path], None]:
    """Return the function that writes this kind of file; without ``--html``, the name's suffix chooses it."""
    if options.html:
        if options.half or options.whole:
            raise InputError("--half and --whole are for --out, not for --html")
        return importlib.import_module("ui.site.one_file").export_html  # made of the page, which core does not import
    suffix = options.out.suffix.lower()
    is_package = options.whole or suffix == ".zip"
    if not is_package and suffix not in ("", ".safetensors", ".onnx"):
        hint = "; --html writes a page" if suffix in (".html", ".htm") else ""
        raise InputError(f"--out={str(options.out)[:200]} must end with .safetensors, .zip or .onnx{hint}")
    if options.half and (is_package or suffix == ".onnx"):
        raise InputError(f"--half writes a weight file, not --out={str(options.out)[:200]}")
    if suffix == ".onnx":
        return export_onnx
    return export_package if is_package else partial(export_weights, half=options.half)
