"""Read files line by line: text that may contain anything, with bounded memory, and what is wrong with a line.

Lines are decoded one by one, so a malformed line does not affect the others.
"""

import codecs
import gzip
import re
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from core.storage.error_messages import short_repr
from core.storage.errors import InputError

MAX_LINE_BYTES = 64 * 1024
MAX_UNPACKED_BYTES, MAX_EXPANSION = 2**30, 20
"""Of a compressed file, and times its size: text expands three to six times, and a file made for it to any size."""
_REFUSED = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")  # categories Cc, without the tab, and Cs
_PART = 2**20
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Problem:
    """Why a row cannot be used: the kind of fault, by which rows are counted, and the exact message."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return self.detail


class Line(NamedTuple):  # made for every line, which a dataclass takes several times as long for
    """A line without its line ending; ``problem`` says why it has no text.

    Attributes:
        number: counted from 1.
    """

    number: int
    text: str = ""
    problem: Problem | None = None


class Row(NamedTuple):
    """A pair as read from a file; ``problem`` says why there is none.

    Attributes:
        line: its line number, counted from 1.
        split: "test" or "validation" for a pair that is held out, otherwise "".
        set: the name of the test set that the pair is of if it is held out for testing; "" for none.
        alignment: links between the sides as Pharaoh writes them, ``0-0 1-2``: numbers of words between spaces, or
            of characters, on both sides, from 0; "" for none.
        file: a prefix that names its file in messages, such as "test file, "; "" for the main one.
    """

    line: int
    source: str = ""
    target: str = ""
    problem: Problem | None = None
    split: str = ""
    set: str = ""
    alignment: str = ""
    file: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """Read the lines of a file one by one, with bounded memory however long a line is.

    A byte order mark is skipped; lines may end with CR LF. A file compressed by gzip is unpacked.

    Raises:
        InputError: the file cannot be read, is empty, is UTF-16, or unpacks to more than it may.
    """
    with open_unpacked(path) as file:
        _check_start(file, path.name)
        number, most = 0, min(MAX_UNPACKED_BYTES, MAX_EXPANSION * path.stat().st_size + MAX_LINE_BYTES)
        while line := file.readline(MAX_LINE_BYTES + 2):
            number += 1
            yield _decode_line(number, line.removesuffix(b"\n").removesuffix(b"\r"))
            while len(line) == MAX_LINE_BYTES + 2 and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES + 2)  # skip the rest of a line that is too long
            if isinstance(file, gzip.GzipFile) and file.tell() > most:
                raise InputError(f"file={short_repr(path.name)} unpacks to more than {most:,} bytes; unpack it first")


def check_unpacked_size(path: Path, most: int) -> None:
    """Check the size of a file once it is unpacked; InputError if it has more than ``most`` bytes."""
    with open_unpacked(path) as file:
        size = 0
        while size <= most and (part := file.read(_PART)):
            size += len(part)
    if size > most:
        raise InputError(f"file={short_repr(path.name)} has more than {most:,} bytes unpacked, the limit here")


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacked if it is compressed by gzip.

    Raises:
        InputError: the file cannot be read, or is a damaged gzip file.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(len(_GZIP)) == _GZIP
        with cast("BinaryIO", gzip.open(path)) if is_packed else path.open("rb") as unpacked:
            yield unpacked
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"file={short_repr(path.name)} cannot be unpacked: it is a damaged gzip file") from error
    except OSError as error:
        raise InputError(f"file={short_repr(path.name)} cannot be read: {error.strerror or error}") from error


def _check_start(file: BinaryIO, name: str) -> None:
    start = file.read(MAX_LINE_BYTES)
    if not start.removeprefix(codecs.BOM_UTF8).strip():
        raise InputError(
            f"file={short_repr(name)} is empty"
            if len(start) < MAX_LINE_BYTES
            else f"file={short_repr(name)} begins with {len(start):,} spaces"
        )
    if start.startswith(_UTF_16_MARKS):
        raise InputError(f"file={short_repr(name)} is UTF-16; save it as UTF-8")
    if start.startswith(_ZIP):
        raise InputError(f"file={short_repr(name)} is a zip archive, not text; save a spreadsheet as CSV")
    if b"\r" in start and b"\n" not in start:
        raise InputError(f"file={short_repr(name)} has lines that end with CR alone; save it with LF or CR LF")
    file.seek(len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0)


NOT_UTF_8 = "not UTF-8"
"""The kind of a problem of a line in another encoding."""
SAVE_AS_UTF_8 = "save the file as UTF-8: it may be Latin-1 or Windows-1252"


def _decode_line(number: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE_BYTES:
        return Line(number, problem=Problem("line too long", f"it has more than {MAX_LINE_BYTES:,} bytes"))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte 0x{raw[error.start]:02X} at column {error.start + 1} is not UTF-8"
        return Line(number, problem=Problem(NOT_UTF_8, detail))
    return Line(number, unicodedata.normalize("NFC", text), refused_character(text))


def refused_character(text: str) -> Problem | None:
    """Return the problem of a text with a control character or an unpaired surrogate, which JSON can escape."""
    if (found := _REFUSED.search(text)) is None:
        return None
    name = "an unpaired surrogate" if "\ud800" <= found[0] <= "\udfff" else "a control character"
    detail = f"U+{ord(found[0]):04X} at column {found.start() + 1} is {name}"
    return Problem(name.split(maxsplit=1)[1], detail)
