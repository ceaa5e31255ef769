"""Formats of files of pairs, and which one a file has: by its name, or by its first lines."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks.ingest.lines import read_lines

FileFormat = Literal["tsv", "csv", "json", "jsonl", "parquet", "dictionary", "scan"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
COMMENT = ";;;"
"""Start of a line of a dictionary that is none of its entries."""
ENTRY = re.compile(r"\S+ {2}\S")
"""Start of an entry of a dictionary; two spaces, because any sentence has a space after its first word."""
COMMAND = re.compile(r"IN:\s*(.+?)\s+OUT:\s*(.+)")
"""A line of SCAN (Lake & Baroni 2018)."""
_COLUMNS = re.compile(r"\S *\t")  # not the tabs before an indented line of JSON
_SUFFIXES: dict[str, FileFormat] = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".dict": "dictionary",
}
_SEPARATORS = ",;\t"  # of CSV, the likeliest first
DECLARED = re.compile(r"sep=(.)", re.IGNORECASE)
"""The first line of CSV that is written for Excel: its separator."""
_WORKBOOKS = {".xlsx", ".xls", ".ods", ".numbers"}
_SAMPLE = 1_000  # lines
_MOST = 0.95  # share of the lines that must have the form of a format; the others are skipped when they are read


class UnknownFormatError(InputError):
    """Neither a file's name nor its lines show its format."""


def format_of(path: Path) -> FileFormat:
    """Return the format of a file: the one its lines show, as text, JSON or SCAN; otherwise that of its suffix.

    The suffix ``.gz`` is left aside.

    Raises:
        UnknownFormatError: neither shows a format.
        InputError: the file cannot be read.
    """
    suffixes = [each for each in path.suffixes if each.lower() != ".gz"]
    extension = suffixes[-1].lower() if suffixes else ""
    if extension in _WORKBOOKS:
        raise UnknownFormatError(f"file={short_repr(path.name)} is a workbook of a spreadsheet program: save it as CSV")
    suffix = _SUFFIXES.get(extension)
    if suffix in ("csv", "parquet", "dictionary"):
        return suffix
    lines = [line.text for line in islice(read_lines(path), _SAMPLE) if line.text.strip() and not line.problem]
    shown = _shown_format(lines)
    if suffix == "tsv":
        return shown if shown == "scan" else "tsv"
    if suffix in ("json", "jsonl"):
        return "json" if not lines or not is_json(lines[0]) else "jsonl" if len(lines) > 1 else suffix
    if shown is None:
        extensions = ", ".join(_SUFFIXES)
        raise UnknownFormatError(
            f"file={short_repr(path.name)} must end with {extensions}: its lines do not show which format it has"
        )
    return shown


def _shown_format(lines: list[str]) -> FileFormat | None:
    """Return the format that nearly all lines show; None if there is none."""
    if not lines:
        return None
    starts_as_json = lines[0].lstrip().startswith(("{", "["))
    if starts_as_json and is_json(lines[0]):
        return "jsonl" if len(lines) > 1 else "json"
    if _share(_COLUMNS.search, lines) >= _MOST:
        return "tsv"
    if starts_as_json:
        return "json"
    entries = [line for line in lines if not line.startswith(COMMENT)]
    if _share(COMMAND.fullmatch, lines) >= _MOST:
        return "scan"
    if _share(ENTRY.match, entries) >= _MOST:
        return "dictionary"
    return "csv" if csv_separator(lines)[1] >= _MOST else None


def csv_separator(lines: Sequence[str]) -> tuple[str, float]:
    """Return the sign that separates the columns of CSV, and the share of the lines that it divides alike.

    Spreadsheet programs separate by semicolons where numbers are written with a decimal comma, so that both signs may
    divide all lines. Two columns are likelier than more, and a sign before a space is likelier part of a text.
    """
    if declared := DECLARED.fullmatch(lines[0].strip() if lines else ""):
        return declared[1], 1.0
    found = {}
    for sign in _SEPARATORS:
        rows = list(csv.reader(lines, delimiter=sign))
        (width, count), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
        in_texts = sum(field.startswith(" ") for fields in rows for field in fields[1:])
        found[sign] = (count / len(rows) if width > 1 else 0.0, width == 2, -in_texts)
    separator = max(_SEPARATORS, key=lambda sign: found[sign])
    return separator, found[separator][0]


def _share(matches: Callable[[str], object], lines: list[str]) -> float:
    return sum(bool(matches(line)) for line in lines) / max(1, len(lines))


def is_json(text: str) -> bool:
    """Return whether a text is a document of JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
