"""``data``: summarize the pairs in a file, and make a preset for them."""

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from core.cli.arguments import named_preset
from core.cli.signals import exit_on_sigterm
from core.config import pairs_beside, preset_to_yaml
from core.reports.formatting import duration_range
from core.runs.estimate import TrainingTime, estimate_training_time
from core.storage.atomic import write_atomically
from core.storage.error_messages import short_repr, shortened
from core.storage.errors import InputError
from core.tasks.ingest import (
    FORMATS,
    HeldOutFile,
    IngestResult,
    Kinds,
    PairFiles,
    UnknownFormatError,
    parse_columns,
    prepare_preset,
    set_name,
    summary_lines,
)
from core.text.tokenizers import TOKEN_KINDS

AUTOMATIC = "auto"


def run(options: argparse.Namespace) -> int:
    """Print a summary of the pairs, and write the preset and, beside it, the pairs file."""
    kinds = _kinds(options.tokens)
    out: Path = options.out or Path(f"{options.file.stem}.yaml")
    if out.suffix not in (".yaml", ".yml"):
        raise InputError(f"--out={str(out)[:200]} must end with .yaml")
    if out.exists():
        raise InputError(f"--out={str(out)[:200]} exists already")
    like = named_preset(options.preset) if options.preset else None
    held_out = [_held_out(names, "test") for names in options.test]
    if options.validation:
        held_out.append(_held_out(options.validation, "validation"))
    columns = parse_columns(options.columns) if options.columns else None
    files = PairFiles(options.file, options.targets, tuple(held_out), options.format, columns)
    try:
        with exit_on_sigterm(), _bar() as bar:
            result, preset = prepare_preset(
                files, pairs_beside(out), kinds=kinds, name=options.name, like=like, on_row=bar.update
            )
        write_atomically(out, preset_to_yaml(preset).encode())
    except UnknownFormatError as error:
        raise InputError(f"{error}; --format names it: {', '.join(FORMATS)}") from error
    except OSError as error:
        raise InputError(f"--out={str(out)[:200]} cannot be written: {error.strerror or error}") from error
    threads = torch.get_num_threads()  # as ``train`` uses
    time = estimate_training_time(preset, pairs=pairs_beside(out), threads=threads)
    print("\n".join(summary_lines(result)))
    print(f"\ntraining time on this machine: {duration_range(time.low, time.high) if time else 'too long to estimate'}")
    print(f"\nwritten: {out}, the preset, and {pairs_beside(out).name}, the pairs; keep them in the same folder")
    print(f"to train it: python -m core train --preset {shlex.quote(str(out))}")
    if options.json:
        print(json.dumps(_as_json(result, out, time)))
    return 0


def _bar() -> tqdm:
    """Return a bar on the terminal, if there is one, that appears for large files only."""
    return tqdm(desc="reading", unit=" rows", delay=2.0, mininterval=0.5, file=sys.stderr, leave=False, disable=None)


def _held_out(names: list[str], split: str) -> HeldOutFile:
    """Read ``--test [NAME=]FILE [TARGETS]`` or ``--validation FILE [TARGETS]``."""
    if len(names) > 2:
        raise InputError(f"--{split} {' '.join(names)[:200]} must be one file of pairs, or a source and a target file")
    file, *targets = names
    name = ""
    if split == "test" and "=" in file and not Path(file).exists():
        label, _, file = file.partition("=")
        name = set_name(label)
        if not name:
            raise InputError(f"--test {shortened(label)}=…: the name of a test set must have a letter or digit")
    return HeldOutFile(Path(file), Path(targets[0]) if targets else None, split, name)


def _kinds(text: str) -> Kinds | None:
    """Read ``--tokens``: the tokens of both sides, or two kinds separated by a comma; None chooses them."""
    if text == AUTOMATIC:
        return None
    names = [name.strip() for name in text.split(",")]
    kinds = [kind for name in names for kind in TOKEN_KINDS if kind == name]
    if len(names) > 2 or len(kinds) < len(names):
        raise InputError(
            f"--tokens={short_repr(text)} must be {AUTOMATIC}, one of {', '.join(TOKEN_KINDS)}, "
            "or two of them with a comma"
        )
    return (kinds[0], "character") if kinds == ["inflection"] else (kinds[0], kinds[-1])


def _as_json(result: IngestResult, out: Path, time: TrainingTime | None) -> dict[str, Any]:
    return {
        "preset": str(out),
        "sha256": result.sha256,
        "pairs": result.pairs,
        "sources": result.sources,
        "columns": result.reading and str(result.reading.columns),
        "test_pairs": result.held_out.get("test"),
        "test_sets": dict(result.sets),
        "validation_pairs": result.held_out.get("validation"),
        "source_case": result.source_case,
        "duplicates": result.duplicates,
        "overlaps": result.overlaps,
        "sources_with_several_targets": result.several,
        "skipped": dict(result.skipped),
        "longest": result.longest,
        "tokens": list(result.kinds),
        "reason": result.choice,
        "vocabulary": [len(result.source_tokens), len(result.target_tokens)],
        "subwords": None if result.subwords is None else asdict(result.subwords),
        "unknown": list(result.unknown),
        "seconds": None if time is None else [round(time.low, 1), round(time.high, 1)],
    }
