"""``corpus``: make translation pairs from two languages of the LibreOffice Help that are installed on this machine."""

import argparse
import json
import lzma
from collections import Counter
from pathlib import Path

from core.cli.arguments import add_json
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.tasks.ingest.libreoffice_help import HELP_FOLDER, read_help, split_by_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("target", metavar="LANGUAGE", help="target language, such as de, fr or pt-BR")
    parser.add_argument("--source", default="en-US", metavar="LANGUAGE", help="source language (default: en-US)")
    parser.add_argument(
        "--help-folder",
        type=Path,
        default=HELP_FOLDER,
        metavar="FOLDER",
        help=f"the installed Help, with a folder for each language (default: {HELP_FOLDER})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE.tsv",
        help="file of the pairs: source, target and, for held-out pairs, test or validation; .tsv.xz compresses it",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Write the pairs and print how many there are."""
    out: Path = options.out
    if not out.name.endswith((".tsv", ".tsv.xz")):
        raise InputError(f"--out={str(out)[:200]} must end with .tsv or .tsv.xz")
    if out.exists():
        raise InputError(f"--out={str(out)[:200]} exists already")
    lines, counts = [], Counter[str]()
    for pair, split in split_by_page(read_help(options.help_folder, (options.source, options.target))):
        lines.append("\t".join(filter(None, [pair.source, pair.target, split])) + "\n")
        counts[split or "training"] += 1
    content = "".join(lines).encode()
    try:
        write_atomically(
            out, lzma.compress(content, preset=9 | lzma.PRESET_EXTREME) if out.suffix == ".xz" else content
        )
    except OSError as error:
        raise InputError(f"--out={str(out)[:200]} cannot be written: {error.strerror or error}") from error
    splits = {name: counts[name] for name in ("training", "validation", "test")}
    print(f"written: {out}, " + ", ".join(f"{count:,} {name} pairs" for name, count in splits.items()))
    if options.json:
        print(json.dumps({"out": str(out), "pairs": splits}))
    return 0
