"""``import-model``: create a run from a model that another program trained."""

import argparse
from pathlib import Path

from core.cli.arguments import add_json
from core.cli.import_run import add_new_name, create_run
from core.runs import RunFolder
from core.runs.importing_models import import_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="folder of a Marian or BART model: config.json, model.safetensors and, for text, the tokenizer's files",
    )
    parser.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help="pairs to measure the model on, as .tsv, .csv or .jsonl; without them it decodes and shows its attention",
    )
    add_new_name(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read the folder, create a finished run from it, and print what is to be known about it."""
    notes: list[str] = []

    def create(root: Path) -> RunFolder:
        folder, found = import_model(root, options.folder, name=options.run, pairs=options.pairs)
        notes.extend(found)
        return folder

    code = create_run(options, create)
    for note in notes:
        print(f"note: {note}")
    return code
