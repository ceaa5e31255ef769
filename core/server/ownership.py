"""Owner of a run, and whether it is shared: stored in ``access.json``, which training never writes."""

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from core.runs import RunFolder
from core.storage.atomic import write_atomically


class Ownership(BaseModel):
    """Content of a run's ``access.json``; a run without this file, or with a damaged one, has no owner.

    Attributes:
        owner: see ``owner_of``; None is nobody.
        shared: whether everyone who knows the run's name may view it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    owner: str | None = None
    shared: bool = False


NO_OWNER = Ownership()


def owner_of(token: str) -> str:
    """Return the SHA-256 of a visitor's token: the token can be checked against it, but not recovered from it."""
    return hashlib.sha256(token.encode()).hexdigest()


def ownership_file(folder: RunFolder) -> Path:
    """Return the path of a run's ``access.json``, which may not exist."""
    return folder.path / "access.json"


def read_ownership(folder: RunFolder) -> Ownership:
    """Return a run's ownership."""
    try:
        return Ownership.model_validate_json(ownership_file(folder).read_bytes())
    except (OSError, ValidationError):
        return NO_OWNER


def write_ownership(folder: RunFolder, ownership: Ownership) -> None:
    """Store a run's ownership."""
    write_atomically(ownership_file(folder), ownership.model_dump_json().encode())
