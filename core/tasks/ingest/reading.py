"""Read pairs from files, the columns of which are recognized or named, or from two files with one line per pair."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks.ingest.columns import SAMPLE, Columns, Recognized, recognize, same_columns
from core.tasks.ingest.formats import FileFormat, format_of
from core.tasks.ingest.lines import Problem, Row, read_lines
from core.tasks.ingest.records import Record, read_records


@dataclass(frozen=True)
class Reading:
    """How the records of a file become pairs.

    Attributes:
        recognized: the readings that fit the file, whether or not one of them is taken, and the line of its header.
    """

    file_format: FileFormat
    columns: Columns
    recognized: Recognized


def reading_of(path: Path, *, file_format: FileFormat | None = None, columns: Columns | None = None) -> Reading:
    """Find how to read a file.

    Args:
        file_format: None chooses with ``format_of``.
        columns: None takes the likeliest reading of the first records.

    Raises:
        InputError: the file cannot be read, or neither its name nor its lines show its format.
    """
    known = file_format or format_of(path)
    found = recognize(_sample(path, known))
    chosen = found.readings[0] if columns is None else same_columns(columns, found)
    return Reading(known, chosen, found)


def read_pairs(path: Path, reading: Reading | None = None, *, targets: Path | None = None) -> Iterator[Row]:
    """Read the pairs of a file one by one.

    Args:
        reading: None finds one with ``reading_of``.
        targets: a second file with the target of each line; then each line of both files is one text.

    Yields:
        A row per answer, in order.

    Raises:
        InputError: a file cannot be read, is empty, or the two files have different numbers of lines.
    """
    if targets is not None:
        yield from _read_parallel(path, targets)
        return
    chosen = reading or reading_of(path)
    for record in read_records(path, chosen.file_format):
        if problem := chosen.recognized.problem(record):
            yield Row(record.line, problem=problem)
        elif record.line != chosen.recognized.header:
            yield from chosen.columns.rows(record)


def _sample(path: Path, file_format: FileFormat) -> list[Record]:
    return list(islice(read_records(path, file_format), SAMPLE))


def _read_parallel(sources: Path, targets: Path) -> Iterator[Row]:
    number = 0
    for number, (source, target) in enumerate(zip_longest(read_lines(sources), read_lines(targets)), start=1):
        if source is None or target is None:
            longer, shorter = (targets, sources) if source is None else (sources, targets)
            raise InputError(
                f"file={short_repr(longer.name)} has more lines than {short_repr(shorter.name)}, "
                f"which has {number - 1:,}: each line must have its counterpart in the other file"
            )
        problem = source.problem or (target.problem and Problem(target.problem.kind, f"target file: {target.problem}"))
        if problem or source.text.strip() or target.text.strip():
            yield Row(number, source.text, target.text, problem)
