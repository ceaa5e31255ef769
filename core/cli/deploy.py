"""``deploy``: create or update a Hugging Face Space that serves the page publicly."""

import argparse
import json

from core.cli.arguments import add_json
from core.runs.hub_space import HARDWARE, SpaceFile, check_space, deploy, space_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("space", metavar="OWNER/NAME", help="the Space; created if it does not exist")
    parser.add_argument(
        "--hardware",
        choices=HARDWARE,
        help="what it runs on (default: zero for a new Space, no change for another)",
    )
    parser.add_argument("--private", action="store_true", help="let only its owner see a newly created Space")
    parser.add_argument("--dry-run", action="store_true", help="print every file and what it costs; upload nothing")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Upload the program and print the address of the Space, or print what would be uploaded."""
    files = space_files()
    if options.dry_run:
        check_space(options.space, files, options.hardware or "zero")
        for file in files:
            print(f"{file.size:>11,}  {file.name}{'  (large-file storage)' if file.is_binary else ''}")
        print(_summary(files))
        print(HARDWARE[options.hardware or "zero"].costs)
        print("Nothing was uploaded.")
        result = {"space": options.space, "uploaded": False}
    else:
        done = deploy(files, options.space, hardware=options.hardware, private=options.private)
        print(f"{_summary(files)}; {len(done.deleted)} of the last version deleted")
        print(f"{'created' if done.is_new else 'updated'}: {done.address} (its first start takes minutes)")
        result = {"space": options.space, "uploaded": True, "address": done.address, "created": done.is_new}
    if options.json:
        print(json.dumps(result | {"files": [{"name": file.name, "bytes": file.size} for file in files]}))
    return 0


def _summary(files: list[SpaceFile]) -> str:
    large = [file.size for file in files if file.is_binary]
    total = sum(file.size for file in files)
    return f"{len(files)} files, {total:,} bytes, of which {len(large)} with {sum(large):,} bytes in large-file storage"
