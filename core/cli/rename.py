"""``rename``: give a run another title; its folder keeps its name."""

import argparse
import json

from core.runs import DEFAULT_ROOT, RunFolder, other_titles
from core.storage.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Store the title and print it."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.name)
    try:
        title = folder.rename(options.title, others=other_titles(folder))
    except OSError as error:
        raise InputError(f"run={options.name!r} cannot be renamed: {error.strerror or error}") from error
    print(f"run {folder.name}: {title}")
    if options.json:
        print(json.dumps({"run": folder.name, "title": title}))
    return 0
