"""``site``: write a static site on which people train and look inside in their own browser."""

import argparse
import importlib
import json
from pathlib import Path

from core.cli.arguments import add_json

_PRESETS = "tiny, those of digits, numbers and words with a Transformer, and addition"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new folder, or an earlier site")
    parser.add_argument(
        "--preset",
        action="append",
        metavar="NAME",
        help=f"a preset that can be trained there; repeatable (default: {_PRESETS})",
    )
    parser.add_argument(
        "--run",
        action="append",
        metavar="NAME",
        help="a finished run to decode with, the one that the site opens with first; repeatable "
        "(default: the two that ship)",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Write the site and print its size."""
    site = importlib.import_module("ui.site.build")  # its parts are those of the page, which core does not import
    presets, runs = tuple(options.preset or site.PRESETS), tuple(options.run or site.RUNS)
    size = site.build_site(options.out, presets=presets, runs=runs, root=options.checkpoints)
    print(f"written: {options.out}, {size / 1e6:.1f} MB")
    print(f"to look at it: python -m http.server --directory {options.out}")
    if options.json:
        print(json.dumps({"out": str(options.out), "bytes": size, "presets": presets, "runs": runs}))
    return 0
