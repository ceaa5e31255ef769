"""``classes``: list the classes that are open on a server, or close some; a server that runs notices within seconds."""

import argparse
import json
import time
from pathlib import Path

from pydantic import ValidationError

from core.runs import DEFAULT_ROOT
from core.runs.text_tables import aligned
from core.server.registry import CLASSES
from core.server.stored_class import Class
from core.storage.error_messages import short_repr
from core.storage.errors import InputError, LabError

_COLUMNS = ("id", "open for", "students", "waiting", "door", "code", "network")


def run(options: argparse.Namespace) -> int:
    """Print a row for each class, after closing those that are named."""
    folder = (options.checkpoints or DEFAULT_ROOT) / CLASSES
    _close(folder, options.close)
    listed = [found for file in sorted(folder.glob("*.json")) if (found := _read(file)) is not None]
    rows = [_COLUMNS, *map(_row, listed)] if listed else [("no class is open",)]
    print(aligned(rows, left=len(rows[0])))
    if options.json:
        described = [dict(zip(_COLUMNS, _row(each), strict=True)) for each in listed]
        print(json.dumps({"classes": described, "closed": options.close}))
    return 0


def _close(folder: Path, names: list[str]) -> None:
    files = {file.stem: file for file in folder.glob("*.json")}
    if unknown := [name for name in names if name not in files]:
        raise InputError(f"close={short_repr(unknown[0])} is not the id of an open class; the command lists them")
    for name in names:
        try:
            files[name].unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"close={name!r} cannot be closed: {error.strerror or error}") from error
        print(f"closed class {name}")


def _read(file: Path) -> Class | None:
    try:
        return Class.model_validate_json(file.read_bytes())
    except (OSError, ValidationError, LabError):
        return None  # ended just now, or damaged: the server does not read it either


def _row(each: Class) -> tuple[str, ...]:
    minutes = int(max(0.0, time.time() - each.opened) // 60)
    network = each.pool.removeprefix("class-")[:8]  # of its hash: classes of one network have the same
    counts = (str(len(each.students)), str(len(each.applicants)))
    return each.id, f"{minutes // 60}:{minutes % 60:02d} h", *counts, each.door, each.code, network
