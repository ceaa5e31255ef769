"""``push``: upload a run, with everything that belongs to it, to the Hugging Face Hub."""

import argparse
import json

from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.hub import push


def run(options: argparse.Namespace) -> int:
    """Push the run and print its address."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.run)
    address = push(folder, options.repo, with_data=options.with_data, public=options.public)
    print(f"run {options.run}: pushed to {address}")
    if options.json:
        print(json.dumps({"run": options.run, "repo": options.repo, "address": address}))
    return 0
