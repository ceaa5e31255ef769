"""Formats of files of pairs, and which one a file has: by its name, or by its lines."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

from core.storage.errors import InputError
from core.tasks.ingest.lines import read_lines

FileFormat = Literal["tsv", "csv", "jsonl", "answers", "dictionary"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
SPLIT_MARKS = {"": "", "train": "", "test": "test", "validation": "validation"}
"""Split by what a third column says of it."""
COMMENT = ";;;"
"""Start of a line of a dictionary that is none of its entries."""
_EXTENSIONS: dict[str, FileFormat] = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".dict": "dictionary",
}
_ENTRY = re.compile(r"\S+ {2}\S")  # of a dictionary; two spaces, because any sentence has a space after its first word


class UnknownFormatError(InputError):
    """Neither a file's name nor its lines show its format."""


def format_of(path: Path) -> FileFormat:
    """Return the format that a file's extension stands for; of another extension, the one that its lines show.

    Raises:
        UnknownFormatError: neither shows a format.
        InputError: the file has another extension and cannot be read.
    """
    if file_format := _EXTENSIONS.get(path.suffix.lower()):
        return file_format
    shown = _shown_format(line.text for line in read_lines(path) if line.text.strip() and not line.problem)
    if shown is None:
        extensions = ", ".join(_EXTENSIONS)
        raise UnknownFormatError(
            f"file={path.name[:60]!r} must end with {extensions}: its lines do not show which format it has"
        )
    return shown


def _shown_format(lines: Iterable[str]) -> FileFormat | None:
    """Return the format that every line has; None without lines, or if they differ or only some have a mark of a split.

    Lines of two columns are read alike as TSV and as answers.
    """
    possible: set[FileFormat] = {"tsv", "answers", "dictionary"}
    line = ""
    for line in lines:
        columns = line.split("\t")
        if len(columns) < 2:
            possible -= {"tsv", "answers"}
        if len(columns) > 3 or (len(columns) == 3 and columns[2].strip().lower() not in SPLIT_MARKS):
            possible.discard("tsv")
        if len(columns) > 2 and SPLIT_MARKS.get(columns[2].strip().lower()):
            possible.discard("answers")
        if not line.startswith(COMMENT) and not _ENTRY.match(line):
            possible.discard("dictionary")
        if not possible:
            break
    return next((each for each in FORMATS if line and each in possible), None)
