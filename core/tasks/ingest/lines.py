"""Read files line by line: text that may contain anything, with bounded memory, and what is wrong with a line.

Lines are decoded one by one, so a malformed line does not affect the others.
"""

import codecs
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from core.storage.errors import InputError

MAX_LINE_BYTES = 64 * 1024
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Problem:
    """Why a row cannot be used: the kind of fault, by which rows are counted, and the exact message."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True)
class Line:
    """A line without its line ending; ``problem`` says why it has no text.

    Attributes:
        number: counted from 1.
    """

    number: int
    text: str = ""
    problem: Problem | None = None


@dataclass(frozen=True)
class Row:
    """A pair as read from a file; ``problem`` says why there is none.

    Attributes:
        line: its line number, counted from 1.
        split: "test" or "validation" for a pair that is held out, otherwise "".
        file: a prefix that names its file in messages, such as "test file, "; "" for the main one.
    """

    line: int
    source: str = ""
    target: str = ""
    problem: Problem | None = None
    split: str = ""
    file: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """Read the lines of a file one by one, with bounded memory however long a line is.

    A byte order mark is skipped; lines may end with CR LF.

    Raises:
        InputError: the file cannot be read, is empty, or is UTF-16.
    """
    try:
        with path.open("rb") as file:
            _check_start(file, path.name)
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 2):
                number += 1
                yield _decode_line(number, line.removesuffix(b"\n").removesuffix(b"\r"))
                while len(line) == MAX_LINE_BYTES + 2 and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES + 2)  # skip the rest of a line that is too long
    except OSError as error:
        raise InputError(f"file={path.name[:60]!r} cannot be read: {error.strerror or error}") from error


def _check_start(file: BinaryIO, name: str) -> None:
    start = file.read(MAX_LINE_BYTES)
    if not start.removeprefix(codecs.BOM_UTF8).strip():
        raise InputError(f"file={name[:60]!r} is empty, or begins with {MAX_LINE_BYTES:,} spaces")
    if start.startswith(_UTF_16_MARKS):
        raise InputError(f"file={name[:60]!r} is UTF-16; save it as UTF-8")
    file.seek(len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0)


def _decode_line(number: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE_BYTES:
        return Line(number, problem=Problem("line too long", f"it has more than {MAX_LINE_BYTES:,} bytes"))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte 0x{raw[error.start]:02X} at column {error.start + 1} is not UTF-8"
        return Line(number, problem=Problem("not UTF-8", detail))
    return Line(number, unicodedata.normalize("NFC", text), refused_character(text))


def refused_character(text: str) -> Problem | None:
    """Return the problem of a text with a control character or an unpaired surrogate, which JSON can escape."""
    if not text.isprintable():
        for column, character in enumerate(text, start=1):
            category = unicodedata.category(character)
            if category == "Cs" or (category == "Cc" and character != "\t"):
                name = "a control character" if category == "Cc" else "an unpaired surrogate"
                return Problem(name.split(maxsplit=1)[1], f"U+{ord(character):04X} at column {column} is {name}")
    return None
