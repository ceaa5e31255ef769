"""``site``: write a static site on which people train and look inside in their own browser."""

import argparse
import importlib
import json


def run(options: argparse.Namespace) -> int:
    """Write the site and print its size."""
    site = importlib.import_module("ui.site.build")  # its parts are those of the page, which core does not import
    presets = options.presets.split(",") if options.presets else site.PRESETS
    runs = options.runs.split(",") if options.runs else site.RUNS
    size = site.build_site(options.out, presets=presets, runs=runs, root=options.checkpoints)
    print(f"written: {options.out}, {size / 1e6:.1f} MB")
    print(f"to look at it: python -m http.server --directory {options.out}")
    if options.json:
        print(json.dumps({"out": str(options.out), "bytes": size, "presets": presets, "runs": runs}))
    return 0
