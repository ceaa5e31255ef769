"""``bench``: how fast something is on this machine; one module a subject."""

import argparse
import importlib
import json

import torch


def run(options: argparse.Namespace) -> int:
    """Measure on one thread, so that figures can be compared, and print a table."""
    torch.set_num_threads(1)
    subject = importlib.import_module(f"core.commands.bench_{options.what}")
    made = subject.run_bench(options)
    if options.json:
        print(json.dumps({"benchmark": options.what, "threads": 1} | made))
    return 0
