"""``deploy``: create or update a Hugging Face Space that serves the page, or the static site, publicly."""

import argparse
import importlib
import json
import tempfile
from pathlib import Path

from core.cli.parsers import STATIC
from core.runs.hub_space import (
    HARDWARE,
    STATIC_COSTS,
    Deployment,
    SpaceFile,
    check_space,
    deploy,
    deploy_site,
    site_files,
    space_files,
)


def run(options: argparse.Namespace) -> int:
    """Upload the program or the site and print the address of the Space, or print what would be uploaded."""
    if options.hardware != STATIC:
        return _deployed(options, space_files(), HARDWARE[options.hardware or "zero"].costs)
    with tempfile.TemporaryDirectory() as folder:
        site, readme = Path(folder) / "site", Path(folder) / "README.md"
        importlib.import_module("ui.site.build").build_site(site)  # of the page, which core does not import
        return _deployed(options, site_files(site, readme), STATIC_COSTS)


def _deployed(options: argparse.Namespace, files: list[SpaceFile], costs: str) -> int:
    if options.dry_run:
        if options.hardware != STATIC:
            check_space(options.space, files, options.hardware or "zero")
        for file in files:
            print(f"{file.size:>11,}  {file.name}{'  (large-file storage)' if file.is_binary else ''}")
        print(_summary(files))
        print(costs)
        print("Nothing was uploaded.")
        result = {"space": options.space, "uploaded": False}
    else:
        done = _uploaded(options, files)
        start = "" if options.hardware == STATIC else " (its first start takes minutes)"
        print(f"{_summary(files)}; {len(done.deleted)} of the last version deleted")
        print(f"{'created' if done.is_new else 'updated'}: {done.address}{start}")
        result = {"space": options.space, "uploaded": True, "address": done.address, "created": done.is_new}
    if options.json:
        print(json.dumps(result | {"files": [{"name": file.name, "bytes": file.size} for file in files]}))
    return 0


def _uploaded(options: argparse.Namespace, files: list[SpaceFile]) -> Deployment:
    if options.hardware == STATIC:
        return deploy_site(files, options.space, private=options.private)
    return deploy(files, options.space, hardware=options.hardware, private=options.private)


def _summary(files: list[SpaceFile]) -> str:
    large = [file.size for file in files if file.is_binary]
    total = sum(file.size for file in files)
    return f"{len(files)} files, {total:,} bytes, of which {len(large)} with {sum(large):,} bytes in large-file storage"
