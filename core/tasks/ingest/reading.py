"""Read pairs from files: TSV, CSV, JSON Lines, or two files with one line per pair.

The files may contain anything. Lines are decoded one by one, so a malformed line does not affect the others.
"""

import codecs
import csv
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from core.storage.errors import InputError
from core.text.validation import quote

FileFormat = Literal["tsv", "csv", "jsonl"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
MAX_LINE_BYTES = 64 * 1024
_EXTENSIONS: dict[str, FileFormat] = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_COLUMN_NAMES = (
    ("source", "target"),
    ("src", "tgt"),
    ("input", "output"),
    ("question", "answer"),
    ("word", "phones"),
)
_SPLITS = {"": "", "train": "", "test": "test", "validation": "validation"}  # by the text of the third column
_EXPECTED_MARK = "and must be test, validation or empty"
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


def format_of(path: Path) -> FileFormat:
    """Return the format that a file name's extension stands for.

    Raises:
        InputError: the extension is unknown.
    """
    file_format = _EXTENSIONS.get(path.suffix.lower())
    if file_format is None:
        raise InputError(f"file={path.name[:60]!r} must end with {', '.join(_EXTENSIONS)}")
    return file_format


def read_pairs(path: Path, *, file_format: FileFormat | None = None, targets: Path | None = None) -> Iterator[Row]:
    """Read the pairs of a file one by one.

    Args:
        file_format: ``source<TAB>target`` per line (tsv); two fields, quoted where needed (csv); or an object with
            ``source`` and ``target`` (jsonl; also src and tgt, input and output, question and answer, word and phones)
            or a list of two strings. A third column, or ``split`` in an object, may say ``test`` or ``validation``.
            None chooses by the file name.
        targets: a second file with the target of each line; then each line of both files is one text.

    Yields:
        A row per non-empty line, in order. A first line that consists of column names is skipped.

    Raises:
        InputError: a file cannot be read, is empty, or the two files have different numbers of lines.
    """
    if targets is not None:
        yield from _read_parallel(path, targets)
        return
    read = {"tsv": _read_tsv, "csv": _read_csv, "jsonl": _read_jsonl}[file_format or format_of(path)]
    for index, row in enumerate(read(read_lines(path))):
        if index or not _is_header(row):
            yield row


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
    return Line(number, unicodedata.normalize("NFC", text), _refused_character(text))


def _refused_character(text: str) -> Problem | None:
    """Return the problem of a text with a control character or an unpaired surrogate, which JSON can escape."""
    if not text.isprintable():
        for column, character in enumerate(text, start=1):
            category = unicodedata.category(character)
            if category == "Cs" or (category == "Cc" and character != "\t"):
                name = "a control character" if category == "Cc" else "an unpaired surrogate"
                return Problem(name.split(maxsplit=1)[1], f"U+{ord(character):04X} at column {column} is {name}")
    return None


def _read_parallel(sources: Path, targets: Path) -> Iterator[Row]:
    number = 0
    for number, (source, target) in enumerate(zip_longest(read_lines(sources), read_lines(targets)), start=1):
        if source is None or target is None:
            longer, shorter = (targets, sources) if source is None else (sources, targets)
            raise InputError(
                f"file={longer.name[:60]!r} has more lines than {shorter.name[:60]!r}, which has {number - 1:,}: "
                "each line must have its counterpart in the other file"
            )
        problem = source.problem or (target.problem and Problem(target.problem.kind, f"target file: {target.problem}"))
        if problem or source.text.strip() or target.text.strip():
            yield Row(number, source.text, target.text, problem)


def _read_tsv(lines: Iterator[Line]) -> Iterator[Row]:
    for line in lines:
        fields = line.text.split("\t")
        if line.problem:
            yield Row(line.number, problem=line.problem)
        elif line.text.strip():
            yield _row_of(line.number, fields, "source<TAB>target")


def _read_csv(lines: Iterator[Line]) -> Iterator[Row]:
    """Read CSV. A quoted field may span several lines; the row has the number of its last line."""
    problems: list[Row] = []
    last_line = 0

    def texts() -> Iterator[str]:
        nonlocal last_line
        for line in lines:
            last_line = line.number
            if line.problem:
                problems.append(Row(line.number, problem=line.problem))
            else:
                yield line.text + "\n"

    reader = csv.reader(texts(), strict=True)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            yield from problems
            return
        except csv.Error as error:
            yield Row(last_line, problem=Problem("invalid CSV", f"it is not valid CSV: {error}"))
            continue
        yield from problems
        problems.clear()
        if any(field.strip() for field in fields):
            yield _row_of(last_line, [field.replace("\n", " ") for field in fields], "source,target")


def _read_jsonl(lines: Iterator[Line]) -> Iterator[Row]:
    for line in lines:
        if line.problem:
            yield Row(line.number, problem=line.problem)
        elif line.text.strip():
            yield _json_row(line)


def _json_row(line: Line) -> Row:
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError):
        return Row(line.number, problem=Problem("invalid JSON", "it is not valid JSON"))
    pair, split = value, ""
    if isinstance(value, dict):
        split = str(value.get("split") or "")
        pair = next(([value[name] for name in names] for names in _COLUMN_NAMES if value.keys() >= set(names)), None)
    if isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair):
        fields = [" ".join(text.split()) if "\n" in text or "\t" in text else text for text in pair]
        if problem := next(filter(None, map(_refused_character, fields)), None):
            return Row(line.number, problem=problem)
        return _row_of(line.number, [*(unicodedata.normalize("NFC", text) for text in fields), split], "")
    return Row(line.number, problem=Problem("not a pair", 'it must look like {"source": "…", "target": "…"}'))


def _row_of(line: int, fields: list[str], expected: str) -> Row:
    """Return the row with these columns: source, target and, perhaps, the split."""
    if len(fields) not in (2, 3):
        plural = "s" if len(fields) > 1 else ""
        return Row(
            line,
            problem=Problem("not two columns", f"it has {len(fields)} column{plural}, and must look like {expected}"),
        )
    source, target, mark = (*fields, "")[:3]
    split = _SPLITS.get(mark.strip().lower())
    problem = (
        None if split is not None else Problem("unknown split", f"its third column is {quote(mark)}, {_EXPECTED_MARK}")
    )
    return Row(line, source, target, problem, split or "")


def _is_header(row: Row) -> bool:
    return (row.source.strip().lower(), row.target.strip().lower()) in _COLUMN_NAMES
