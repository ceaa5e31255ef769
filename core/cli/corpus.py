"""``corpus``: make translation pairs from the LibreOffice Help, or from a list of Tatoeba's sentences."""

import argparse
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.tasks.ingest.libreoffice_help import read_help, split_by_page
from core.tasks.ingest.tatoeba import ATTRIBUTION, read_tatoeba, split_near_duplicates
from core.tasks.pairs import SPLITS


def run(options: argparse.Namespace) -> int:
    """Write the pairs and print how many there are."""
    out: Path = options.out
    if not out.name.endswith((".tsv", ".tsv.xz")):
        raise InputError(f"--out={str(out)[:200]} must end with .tsv or .tsv.xz")
    if out.exists():
        raise InputError(f"--out={str(out)[:200]} exists already")
    lines, counts = [], Counter[str]()
    for source, target, split in _split_pairs(options):
        lines.append("\t".join(filter(None, [source, target, split])) + "\n")
        counts[split or "train"] += 1
    content = "".join(lines).encode()
    try:
        write_atomically(
            out, lzma.compress(content, preset=9 | lzma.PRESET_EXTREME) if out.suffix == ".xz" else content
        )
    except OSError as error:
        raise InputError(f"--out={str(out)[:200]} cannot be written: {error.strerror or error}") from error
    splits = {{"train": "training"}.get(name, name): counts[name] for name in SPLITS}
    print(f"written: {out}, " + ", ".join(f"{count:,} {name} pairs" for name, count in splits.items()))
    if options.text == "tatoeba":
        print(f"name the source wherever you publish the pairs or a model of them: {ATTRIBUTION}")
    if options.json:
        print(json.dumps({"out": str(out), "pairs": splits}))
    return 0


def _split_pairs(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield source, target and split of each pair; the split is "" for training."""
    if options.text == "tatoeba":
        for (source, target), split in split_near_duplicates(read_tatoeba(options.file)):
            yield source, target, split
    else:
        for pair, split in split_by_page(read_help(options.help_folder, (options.source, options.target))):
            yield pair.source, pair.target, split
