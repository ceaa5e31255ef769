"""Whose a run is, and whether everybody who knows its name may look at it; in a file that training never writes."""

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from core.runs import RunFolder
from core.storage.atomic import write_atomically


class Ownership(BaseModel):
    """What a run's ``access.json`` says; a run without one, or with a damaged one, belongs to nobody.

    Attributes:
        owner: see ``owner_of``.
        shared: whether others may look at it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    owner: str | None = None
    shared: bool = False


NOBODYS = Ownership()


def owner_of(token: str) -> str:
    """Return what stands for a visitor on disk: their token can be checked against it, and not be read from it."""
    return hashlib.sha256(token.encode()).hexdigest()


def path_of_ownership(folder: RunFolder) -> Path:
    """Return where whose a run is stands, or would stand."""
    return folder.path / "access.json"


def read_ownership(folder: RunFolder) -> Ownership:
    """Return whose a run is."""
    try:
        return Ownership.model_validate_json(path_of_ownership(folder).read_bytes())
    except (OSError, ValidationError):
        return NOBODYS


def write_ownership(folder: RunFolder, ownership: Ownership) -> None:
    """Keep whose a run is."""
    write_atomically(path_of_ownership(folder), ownership.model_dump_json().encode())
