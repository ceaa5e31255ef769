"""Names and titles of runs. The name is the folder's and never changes; the title is what people read, and can.

A run that is given no name is named after its preset and a number, ``digits-reversal-3``. On a public server a random
secret follows, so that nobody can guess the name. The title is ``digits-reversal 3`` then, until the run is renamed; a
title that was given is stored in ``title.json``, which training never writes.
"""

import contextlib
import itertools
import logging
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from core.config import MAX_NAME_LENGTH, Preset
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.storage.text_checksum import has_changed, with_checksum, without_checksum

Naming = Callable[[Preset], Iterator[str]]
"""Proposes names for a new run of a preset; the first that is free is taken."""

SECRET_LENGTH = 24  # characters out of 36: 124 bits
MAX_TITLE_LENGTH = 60  # characters
TITLE_FILE = "title.json"
_log = logging.getLogger(__name__)
_SECRET = re.compile(rf"-[a-z0-9]{{{SECRET_LENGTH}}}$")
_SECRET_IN_TEXT = re.compile(rf"(?<=[a-z0-9]-[a-z0-9]{{4}})[a-z0-9]{{{SECRET_LENGTH - 4}}}(?![a-z0-9])")
_NUMBER = re.compile(r"^(?P<stem>.+)-(?P<number>\d{1,9})$")
_JOINERS = "\u200c\u200d"  # Persian words and many emoji need them; they change no order of characters
_REFUSED = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control and format characters, surrogates, line and paragraph separators
_INVISIBLE = ("Cf", "Mn", "Zs")
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"  # letters and signs without ink


# ---- names


def readable_name(name: str) -> str:
    """Return a run's name without the secret that keeps it from being guessed."""
    return _SECRET.sub("", name)


def hide_secrets(text: str) -> str:
    """Return a text with the secret of every run's name cut to four characters, which are enough to find the run."""
    return _SECRET_IN_TEXT.sub("...", text)


def new_names(stem: str, used: Iterable[str], *, secret: str = "", bare_first: bool = False) -> Iterator[str]:
    """Yield names for a new run: ``STEM-4``, ``STEM-5`` and so on, from one more than the largest number in use.

    A long stem is shortened, so that every name has at most ``MAX_NAME_LENGTH`` characters.

    Args:
        stem: name of the preset, or of what else the run is named after.
        used: names and titles of other runs; a secret in them is ignored.
        secret: what follows the number; "" for nothing.
        bare_first: call the first run ``STEM``, without a number, and the second one ``STEM-2``.
    """
    ending = f"-{secret}" if secret else ""
    room = MAX_NAME_LENGTH - len(ending)

    def numbered(number: int) -> str:
        suffix = "" if bare_first and number == 1 else f"-{number}"
        return _shortened(stem, room - len(suffix)) + suffix

    highest = 0
    for each in used:
        name = readable_name(each).replace(" ", "-")
        match = _NUMBER.match(name)
        for number in (1, int(match["number"]) if match else 1):
            if name == numbered(number):
                highest = max(highest, number)
    return (numbered(number) + ending for number in itertools.count(highest + 1))


def names_in_use(root: Path) -> Iterator[str]:
    """Yield names and titles of the runs in a folder."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(root):
            if entry.is_dir() and not entry.name.startswith("."):
                yield from (entry.name, read_title(Path(entry.path)))


def _shortened(stem: str, length: int) -> str:
    """Shorten a stem in front of its last word, in which similar stems differ: ``no-posi-broken``."""
    head, _, tail = stem.rpartition("-")
    if len(stem) <= length:
        return stem
    if not head or len(tail) > length // 2:
        return stem[:length].rstrip("-")
    return f"{head[: length - len(tail) - 1].rstrip('-')}-{tail}"


# ---- titles


def default_title(name: str) -> str:
    """Return the title of a run that was not renamed: its name without secret, ``digits-reversal 3`` if it is numbered.

    A name such as ``group-seed-0``, which stands for one seed of a group, is shown as it is.
    """
    readable = readable_name(name)
    match = _NUMBER.match(readable)
    return readable if match is None or match["stem"].endswith("-seed") else f"{match['stem']} {match['number']}"


def unshortened_title(name: str, stem: str) -> str | None:
    """Return a title with the whole stem for a run whose name has a shortened one; None if it is not shortened."""
    readable = readable_name(name)
    if readable.startswith(stem):
        return None
    match = _NUMBER.match(readable)
    return stem if match is None else f"{stem} {match['number']}"


def validate_title(text: str) -> str:
    """Return a title without the spaces around it; InputError as for ``validate_name``."""
    return validate_name("title", text, max_length=MAX_TITLE_LENGTH)


def validate_name(field: str, text: str, *, max_length: int) -> str:
    """Return a name that people see, such as a title or a nickname, without the spaces around it.

    Raises:
        InputError: it is empty, too long, invisible, or contains a line break or a control character, such as one that
            reverses the direction of text.
    """
    name = text.strip()
    if not name:
        raise InputError(f"{field} is empty; it must have 1 to {max_length} characters")
    if len(name) > max_length:
        raise InputError(f"{field} has {len(name):,} characters; it must have 1 to {max_length}")
    for position, character in enumerate(name, start=1):
        if unicodedata.category(character) in _REFUSED and character not in _JOINERS:
            refused = "invisible" if unicodedata.category(character) == "Cf" else "line breaks and control"
            raise InputError(
                f"{field} has the character U+{ord(character):04X} at position {position}; "
                f"{refused} characters are not allowed"
            )
        if character in _BLANK:
            raise InputError(
                f"{field} has the character U+{ord(character):04X} at position {position}, which is invisible"
            )
    if all(unicodedata.category(character) in _INVISIBLE for character in name):
        raise InputError(f"{field} has no visible character")
    return name


def check_unique(title: str, others: Iterable[str]) -> None:
    """Raise InputError if another run has this title; capital letters and kinds of spaces make no difference."""
    if folded(title) in map(folded, others):
        raise InputError(f"another run has the title {title!r}; choose another one")


def read_title(folder: Path) -> str:
    """Return the title of the run in a folder: the default one if none is stored, or what is stored is damaged."""
    return stored_title(folder) or default_title(folder.name)


def stored_title(folder: Path) -> str | None:
    """Return the title that the run in a folder was given; None if there is none, or it is damaged."""
    try:
        content = (folder / TITLE_FILE).read_bytes()
        title = _TitleFile.model_validate_json(without_checksum(content)).title
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        _log.warning("%s is ignored: %s", folder / TITLE_FILE, error)
        return None
    if has_changed(content):
        _log.warning("%s is ignored: it does not match its checksum", folder / TITLE_FILE)
        return None
    return title


def write_title(folder: Path, title: str) -> None:
    """Store a valid title of the run in a folder; its default title is not stored.

    Raises:
        OSError: the folder is missing, or cannot be written to.
    """
    if title == default_title(folder.name):
        (folder / TITLE_FILE).unlink(missing_ok=True)
    else:
        write_atomically(folder / TITLE_FILE, title_content(title))


def title_content(title: str) -> bytes:
    """Return the content of the file that stores a valid title."""
    return with_checksum(_TitleFile(title=title).model_dump_json())


def _unchanged(title: str) -> str:
    if validate_title(title) != title:
        raise ValueError("spaces around the title")
    return title


class _TitleFile(BaseModel):
    """Content of a run's ``title.json``."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    title: Annotated[str, AfterValidator(_unchanged)]


def folded(title: str) -> str:
    """Return what two titles that look alike have in common."""
    text = unicodedata.normalize("NFKC", title).casefold()
    return " ".join("".join(each for each in text if each not in _JOINERS and not _is_variation(each)).split())


def _is_variation(character: str) -> bool:
    """Whether a character only chooses between two pictures of the one before it."""
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
