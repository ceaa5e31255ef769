"""``data``: look at pairs in a file, and make a preset that learns them."""

import argparse
import json
from pathlib import Path

from core.cli.arguments import add_json
from core.config import pairs_beside, preset_to_yaml
from core.storage.errors import InputError
from core.tasks.ingest import Brought, Intake, in_words, prepared
from core.text.tokenizers import KINDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="pairs as .tsv, .csv or .jsonl; or sources, one per line"
    )
    parser.add_argument("--targets", type=Path, metavar="FILE", help="targets, one per line, for the sources in FILE")
    parser.add_argument("--test", type=Path, metavar="FILE", help="test pairs, which are never trained on")
    parser.add_argument("--format", choices=("tsv", "csv", "jsonl"), help="format of the files (default: by suffix)")
    parser.add_argument(
        "--tokens",
        default="character",
        metavar="KIND[,KIND]",
        help='tokenizer of both sides, or of source and target: "character" (default), "word" or "symbol" (split at '
        "spaces)",
    )
    parser.add_argument("--name", default="own-data", help="name of the preset (default: own-data)")
    parser.add_argument("--out", type=Path, metavar="FILE.yaml", help="file of the preset (default: named after FILE)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what is in the file, and write the preset and, beside it, the pairs."""
    kinds = _kinds(options.tokens)
    out: Path = options.out or Path(f"{options.file.stem}.yaml")
    if out.suffix not in (".yaml", ".yml"):
        raise InputError(f"--out={str(out)[:200]} must end with .yaml")
    if out.exists():
        raise InputError(f"--out={str(out)[:200]} exists already")
    brought = Brought(options.file, options.targets, options.test, options.format)
    try:
        found, preset = prepared(brought, pairs_beside(out), kinds=kinds, name=options.name)
        out.write_text(preset_to_yaml(preset))
    except OSError as error:
        raise InputError(f"--out={str(out)[:200]} cannot be written: {error.strerror or error}") from error
    print("\n".join(in_words(found)))
    print(f"\nwritten: {out}, the preset, and {pairs_beside(out).name}, the pairs, which it needs beside it")
    print(f"train it: python -m core train --preset {out}")
    if options.json:
        print(json.dumps(_as_json(found, out)))
    return 0


def _kinds(text: str) -> tuple[str, str]:
    """Read ``--tokens``: one kind for both sides, or two with a comma."""
    kinds = [kind.strip() for kind in text.split(",")]
    if len(kinds) > 2 or not set(kinds) <= set(KINDS):
        raise InputError(f"--tokens={text[:60]!r} must be one of {', '.join(KINDS)}, or two of them with a comma")
    return kinds[0], kinds[-1]


def _as_json(found: Intake, out: Path) -> dict:
    return {
        "preset": str(out),
        "sha256": found.sha256,
        "pairs": found.pairs,
        "sources": found.sources,
        "test_pairs": found.test_pairs,
        "duplicates": found.duplicates,
        "overlaps": found.overlaps,
        "sources_with_several_answers": found.several,
        "skipped": dict(found.skipped),
        "longest": found.longest,
        "vocabulary": [len(found.source_tokens), len(found.target_tokens)],
    }
