"""Lines of a file that may be anything: decoded one by one, so that a bad one does not spoil the others."""

import codecs
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from core.storage.errors import InputError

MAX_LINE_BYTES = 64 * 1024
_OTHER_MARKS = ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))


@dataclass(frozen=True)
class Problem:
    """Why a row cannot be taken in: what kind of fault it has, by which rows are counted, and what exactly."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True)
class Line:
    """A line without its end; ``problem`` says why it has no text.

    Attributes:
        number: from 1.
    """

    number: int
    text: str = ""
    problem: Problem | None = None


def lines_of(path: Path) -> Iterator[Line]:
    """Read a file's lines one after another, in little memory however long one is.

    A byte order mark is left out; lines may end with CR LF.

    Raises:
        InputError: the file cannot be read, is empty, or is UTF-16.
    """
    try:
        with path.open("rb") as file:
            _check_beginning(file, path.name)
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 2):
                number += 1
                yield _line(number, line.removesuffix(b"\n").removesuffix(b"\r"))
                while len(line) == MAX_LINE_BYTES + 2 and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES + 2)  # the rest of a line that is too long
    except OSError as error:
        raise InputError(f"file={path.name[:60]!r} cannot be read: {error.strerror or error}") from error


def _check_beginning(file: BinaryIO, name: str) -> None:
    beginning = file.read(MAX_LINE_BYTES)
    if not beginning.removeprefix(codecs.BOM_UTF8).strip():
        raise InputError(f"file={name[:60]!r} is empty, or begins with {MAX_LINE_BYTES:,} spaces")
    for mark, encoding in _OTHER_MARKS:
        if beginning.startswith(mark):
            raise InputError(f"file={name[:60]!r} is {encoding}; save it as UTF-8")
    file.seek(len(codecs.BOM_UTF8) if beginning.startswith(codecs.BOM_UTF8) else 0)


def _line(number: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE_BYTES:
        return Line(number, problem=Problem("line too long", f"it has more than {MAX_LINE_BYTES:,} bytes"))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02X} at column {error.start + 1} is not UTF-8"
        return Line(number, problem=Problem("not UTF-8", found))
    if not text.isprintable():
        for place, letter in enumerate(text, start=1):
            if letter != "\t" and unicodedata.category(letter) == "Cc":
                found = f"character U+{ord(letter):04X} at column {place} is no text"
                return Line(number, problem=Problem("control character", found))
    return Line(number, unicodedata.normalize("NFC", text))
