"""``import-model``: create a run from a model that another program trained."""

import argparse
import json
from pathlib import Path

from core.cli.import_run import create_run
from core.runs import RunFolder
from core.runs.importing_models import import_model
from core.runs.model_files import read_state_dict
from core.runs.torch_transformer import draft_mapping
from core.storage.atomic import write_atomically
from core.storage.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Create a finished run from the model and print its description; or propose a mapping."""
    if options.propose:
        return _propose(options)

    def create(root: Path) -> RunFolder:
        folder, notes = import_model(
            root,
            options.source,
            name=options.run,
            pairs=options.pairs,
            mapping=options.mapping,
            languages=(options.source_language, options.target_language),
        )
        for note in notes:
            print(f"note: {note}")
        return folder

    return create_run(options, create)


def _propose(options: argparse.Namespace) -> int:
    """Write the mapping that names and shapes suggest, complete or not."""
    text, uncertain = draft_mapping(read_state_dict(options.source))
    if options.propose.exists():
        raise InputError(f"--propose={str(options.propose)[:200]} exists already")
    try:
        write_atomically(options.propose, text.encode())
    except OSError as error:
        raise InputError(
            f"--propose={str(options.propose)[:200]} cannot be written: {error.strerror or error}"
        ) from error
    print(f"note: {uncertain}")
    print(f"written: {options.propose}; correct it, then import with --mapping {options.propose}")
    if options.json:
        print(json.dumps({"mapping": str(options.propose)}))
    return 0
