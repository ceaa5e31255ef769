"""Owner of a run, and whether it is shared: stored in ``access.json``, which training never writes."""

import hashlib
import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from core.runs import RunFolder
from core.storage.atomic import write_atomically
from core.storage.text_checksum import has_changed, with_checksum, without_checksum

_log = logging.getLogger(__name__)


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
    file = ownership_file(folder)
    try:
        content = file.read_bytes()
        if has_changed(content):
            raise ValueError("it does not match its checksum")
        return Ownership.model_validate_json(without_checksum(content))
    except FileNotFoundError:
        return NO_OWNER
    except (OSError, ValueError) as error:
        _log.warning("%s is ignored, so the run has no owner: %s", file, error)
        return NO_OWNER


def write_ownership(folder: RunFolder, ownership: Ownership) -> None:
    """Store a run's ownership."""
    write_atomically(ownership_file(folder), with_checksum(ownership.model_dump_json()))
