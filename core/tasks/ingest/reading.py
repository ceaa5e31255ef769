"""Pairs out of files: TSV, CSV, JSON lines, and two files of which line belongs to line."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal, get_args

from core.storage.errors import InputError
from core.tasks.ingest.text_lines import Line, Problem, lines_of

FileKind = Literal["tsv", "csv", "jsonl"]
KINDS: tuple[FileKind, ...] = get_args(FileKind)
_ENDINGS: dict[str, FileKind] = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_NAMES = (("source", "target"), ("src", "tgt"), ("input", "output"), ("question", "answer"), ("word", "phones"))


@dataclass(frozen=True)
class Row:
    """A pair as it stands in a file; ``problem`` says why there is none.

    Attributes:
        line: its number, from 1.
    """

    line: int
    source: str = ""
    target: str = ""
    problem: Problem | None = None


def kind_of_file(path: Path) -> FileKind:
    """Tell a file's kind by the end of its name; InputError if that is none of those known."""
    kind = _ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"file={path.name[:60]!r} must end with {', '.join(_ENDINGS)}")
    return kind


def read_pairs(path: Path, *, kind: FileKind | None = None, targets: Path | None = None) -> Iterator[Row]:
    """Read a file's pairs one after another.

    Args:
        kind: how a line holds a pair: ``source<TAB>target`` (tsv); two fields, quoted where they hold commas or quotes
            (csv); an object with ``source`` and ``target`` (jsonl; also src and tgt, input and output, question and
            answer, word and phones) or a list of two texts. None goes by the file's name.
        targets: a second file, whose lines answer the first's: then each line of both is one text, whatever ``kind``.

    Yields:
        A row a line that is not empty, in their order. A first line of nothing but such names is taken for a heading.

    Raises:
        InputError: a file cannot be read, is empty, or the two files have unlike numbers of lines.
    """
    if targets is not None:
        yield from _parallel(path, targets)
        return
    read = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl}[kind or kind_of_file(path)]
    for place, row in enumerate(read(lines_of(path))):
        if place or not _is_heading(row):
            yield row


def _parallel(sources: Path, targets: Path) -> Iterator[Row]:
    number = 0
    for number, (source, target) in enumerate(zip_longest(lines_of(sources), lines_of(targets)), start=1):
        if source is None or target is None:
            longer, shorter = (targets, sources) if source is None else (sources, targets)
            raise InputError(
                f"file={longer.name[:60]!r} has more lines than {shorter.name[:60]!r}, which has {number - 1:,}: "
                "line must answer line"
            )
        problem = source.problem or (
            target.problem and Problem(target.problem.kind, f"in the targets, {target.problem}")
        )
        if problem or source.text.strip() or target.text.strip():
            yield Row(number, source.text, target.text, problem)


def _tsv(lines: Iterator[Line]) -> Iterator[Row]:
    for line in lines:
        fields = line.text.split("\t")
        if line.problem:
            yield Row(line.number, problem=line.problem)
        elif len(fields) == 2:
            yield Row(line.number, *fields)
        elif line.text.strip():
            yield Row(line.number, problem=_columns(len(fields), "source<TAB>target"))


def _csv(lines: Iterator[Line]) -> Iterator[Row]:
    """Read fields; a quoted one may go over several lines, and a row is told by the number of its last."""
    problems: list[Row] = []
    last = 0

    def texts() -> Iterator[str]:
        nonlocal last
        for line in lines:
            last = line.number
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
            yield Row(last, problem=Problem("no CSV", f"it is no CSV: {error}"))
            continue
        yield from problems
        problems.clear()
        if len(fields) == 2:
            yield Row(last, *(" ".join(field.splitlines()) for field in fields))
        elif any(field.strip() for field in fields):
            yield Row(last, problem=_columns(len(fields), "source,target"))


def _jsonl(lines: Iterator[Line]) -> Iterator[Row]:
    for line in lines:
        if line.problem:
            yield Row(line.number, problem=line.problem)
        elif line.text.strip():
            yield _json_row(line)


def _json_row(line: Line) -> Row:
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError):
        return Row(line.number, problem=Problem("no JSON", "it is no JSON"))
    found = value
    if isinstance(value, dict):
        found = next(([value[name] for name in names] for names in _NAMES if value.keys() >= set(names)), None)
    if isinstance(found, list) and len(found) == 2 and all(isinstance(text, str) for text in found):
        return Row(line.number, *(" ".join(text.split()) if "\n" in text or "\t" in text else text for text in found))
    return Row(line.number, problem=Problem("no pair", 'it must look like {"source": "…", "target": "…"}'))


def _columns(number: int, wanted: str) -> Problem:
    return Problem("not two columns", f"it has {number} column{'s' if number > 1 else ''}, and must look like {wanted}")


def _is_heading(row: Row) -> bool:
    return (row.source.strip().lower(), row.target.strip().lower()) in _NAMES
