"""Read files record by record: lines of TSV and CSV, objects of JSON, rows of Parquet, entries of dictionaries.

Which fields of a record are source and target is decided by ``columns``. The files may contain anything; a malformed
record does not affect the others.
"""

import csv
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.storage.optional_imports import require_package
from core.tasks.ingest.formats import COMMAND, COMMENT, DECLARED, FileFormat, csv_separator
from core.tasks.ingest.lines import MAX_EXPANSION, Line, Problem, open_unpacked, read_lines, refused_character
from core.text.validation import quote

MAX_JSON_BYTES = 256 * 2**20
"""Of a JSON file that is one document, which is read as a whole; JSON Lines may be of any size."""
MAX_FIELDS = 100
_FIRST_LINES = 100  # of a CSV file, which show its separator
_VARIANT = re.compile(r"(.+)\(\d+\)")  # of a word with several pronunciations, such as ABOUT(2)

Field = str | tuple[str, ...]
"""Text, or several texts of one field, which JSON can have."""


class Record(NamedTuple):
    """The fields of a line or an object; ``problem`` says why there are none.

    Attributes:
        line: number of the line, or of the object in a JSON document or Parquet file, from 1.
        names: of the fields, where the record has names itself; fields of an object inside it are ``name.inner``.
    """

    line: int
    fields: tuple[Field, ...] = ()
    names: tuple[str, ...] = ()
    problem: Problem | None = None


def read_records(path: Path, file_format: FileFormat) -> Iterator[Record]:
    """Read the records of a file one by one.

    Raises:
        InputError: the file cannot be read, is empty, or is not of the format.
        LabError: the package that reads Parquet is not installed.
    """
    if file_format == "json":
        return _read_json(path)
    if file_format == "parquet":
        return _read_parquet(path)
    return _LINE_READERS[file_format](read_lines(path))


def _read_tsv(lines: Iterable[Line]) -> Iterator[Record]:
    for line in lines:
        if line.problem or line.text.strip():
            yield Record(line.number, tuple(line.text.split("\t")), problem=line.problem)


def _read_scan(lines: Iterable[Line]) -> Iterator[Record]:
    for line in lines:
        found = COMMAND.fullmatch(line.text.strip())
        if line.problem or found:
            yield Record(line.number, found.groups() if found else (), problem=line.problem)
        elif line.text.strip():
            yield Record(line.number, problem=Problem("not a command", "it must look like IN: … OUT: …"))


def _read_dictionary(lines: Iterable[Line]) -> Iterator[Record]:
    for line in lines:
        if line.problem:
            yield Record(line.number, problem=line.problem)
        elif line.text.strip() and not line.text.startswith(COMMENT):
            word, *answer = line.text.partition(" # ")[0].split(maxsplit=1)
            if answer:
                variant = _VARIANT.fullmatch(word)
                yield Record(line.number, (variant[1] if variant else word, answer[0]))
            else:
                detail = f"it has no pronunciation after {quote(word)}, and must look like WORD  PRONUNCIATION"
                yield Record(line.number, problem=Problem("no answer", detail))


def _read_csv(lines: Iterable[Line]) -> Iterator[Record]:
    """Read CSV. A quoted field may span several lines; the record has the number of its last line."""
    remaining = iter(lines)
    first = list(islice(remaining, _FIRST_LINES))
    separator, _ = csv_separator([line.text for line in first if line.text.strip() and not line.problem])
    if first and DECLARED.fullmatch(first[0].text.strip()):
        del first[0]
    problems: list[Record] = []
    last_line = 0

    def texts() -> Iterator[str]:
        nonlocal last_line
        for line in chain(first, remaining):
            last_line = line.number
            if line.problem:
                problems.append(Record(line.number, problem=line.problem))
            else:
                yield line.text + "\n"

    reader = csv.reader(texts(), delimiter=separator, strict=True)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            yield from problems
            return
        except csv.Error as error:
            yield Record(last_line, problem=Problem("invalid CSV", f"it is not valid CSV: {error}"))
            continue
        yield from problems
        problems.clear()
        if any(field.strip() for field in fields):
            yield Record(last_line, tuple(field.replace("\n", " ") for field in fields))


def _read_jsonl(lines: Iterable[Line]) -> Iterator[Record]:
    for line in lines:
        if line.problem:
            yield Record(line.number, problem=line.problem)
        elif line.text.strip():
            try:
                value = json.loads(line.text)
            except (ValueError, RecursionError):
                yield Record(line.number, problem=Problem("invalid JSON", "it is not valid JSON"))
            else:
                yield _record_of(line.number, value)


_LINE_READERS: dict[str, Callable[[Iterable[Line]], Iterator[Record]]] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "dictionary": _read_dictionary,
    "scan": _read_scan,
}


def _read_json(path: Path) -> Iterator[Record]:
    """Read one document: a list of objects or pairs, perhaps inside an object, or an object of sources and targets."""
    with open_unpacked(path) as file:
        raw = file.read(MAX_JSON_BYTES + 1)
    if len(raw) > MAX_JSON_BYTES:
        raise InputError(
            f"file={short_repr(path.name)} is one JSON document of more than {MAX_JSON_BYTES // 2**20} MiB; "
            "write one object a line (JSON Lines) instead"
        )
    try:
        document = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "it is not UTF-8"
        raise InputError(f"file={short_repr(path.name)} is not valid JSON: {reason}") from error
    if isinstance(document, dict):
        lists = [each for each in document.values() if isinstance(each, list)]
        if len(lists) == 1 and len(lists[0]) > 1 and all(isinstance(each, (dict, list)) for each in lists[0]):
            document = lists[0]  # such as {"version": …, "data": [ … ]}
    if not isinstance(document, (dict, list)) or not document:
        raise InputError(f"file={short_repr(path.name)} is empty, or neither a list nor an object of pairs")
    items = map(list, document.items()) if isinstance(document, dict) else document
    for number, item in enumerate(items, start=1):
        yield _record_of(number, item)


def _read_parquet(path: Path) -> Iterator[Record]:
    require_package("pyarrow", purpose="reading Parquet")
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(path)
        rows, size = table.metadata.num_rows, path.stat().st_size
        if rows > MAX_EXPANSION * size:  # equal rows take no room, so that a small file can have any number of them
            raise InputError(f"file={short_repr(path.name)} has {rows:,} rows in {size:,} bytes, which are not pairs")
        number = 0
        for batch in table.iter_batches(batch_size=1_000):
            for item in batch.to_pylist():
                number += 1
                yield _record_of(number, item)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise InputError(f"file={short_repr(path.name)} is not valid Parquet: {str(error)[:200]}") from error


def _record_of(number: int, value: Any) -> Record:
    """Return the record of an object, or of a list of texts."""
    if isinstance(value, dict):
        items = list(_flattened(value))
    elif isinstance(value, list):
        items = [("", each) for each in value]
    else:
        items = []
    fields: list[Field] = []
    names: list[str] = []
    unread: list[str] = []
    for name, each in items[:MAX_FIELDS]:
        field = _field_of(each)
        if field is None:
            unread.append(
                f"{short_repr(name, 40)} is of the type {type(each).__name__}" if name else type(each).__name__
            )
            continue
        texts = field if isinstance(field, tuple) else (field,)
        if problem := next(filter(None, map(refused_character, texts)), None):
            return Record(number, problem=problem)
        fields.append(field)
        names.append(name)
    if len(fields) < 2:
        detail = 'it must look like {"source": "…", "target": "…"} or ["…", "…"]'
        if unread:
            detail = f"texts and numbers are read, but {', '.join(unread[:2])}"
        return Record(number, problem=Problem("not a pair", detail))
    return Record(number, tuple(fields), tuple(names) if isinstance(value, dict) else ())


def _flattened(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, dict):
            yield from ((f"{name}.{inner}", one) for inner, one in each.items())
        else:
            yield name, each


def _field_of(value: Any) -> Field | None:
    """Return a field's text or texts; None for values that are neither, such as objects."""
    if isinstance(value, str):
        text = " ".join(value.split()) if "\n" in value or "\t" in value else value
        return unicodedata.normalize("NFC", text)
    if value is None or value != value:  # NaN stands for what is missing, as in pandas
        return ""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return tuple(unicodedata.normalize("NFC", " ".join(each.split())) for each in value)
    return None
