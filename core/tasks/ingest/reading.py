"""Read pairs from files: TSV, CSV, JSON Lines, lists of answers, dictionaries, or two files with one line per pair.

The files may contain anything; a malformed line does not affect the others.
"""

import csv
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from core.storage.errors import InputError
from core.tasks.ingest.formats import COMMENT, SPLIT_MARKS, FileFormat, format_of
from core.tasks.ingest.lines import Line, Problem, Row, read_lines, refused_character
from core.text.validation import quote

_COLUMN_NAMES = (
    ("source", "target"),
    ("src", "tgt"),
    ("input", "output"),
    ("question", "answer"),
    ("word", "phones"),
)
_EXPECTED_MARK = "and must be test, validation or empty"
_VARIANT = re.compile(r"(.+)\(\d+\)")  # of a word with several pronunciations, such as ABOUT(2)


def read_pairs(path: Path, *, file_format: FileFormat | None = None, targets: Path | None = None) -> Iterator[Row]:
    """Read the pairs of a file one by one.

    Args:
        file_format: ``source<TAB>target`` per line (tsv); two fields, quoted where needed (csv); or an object with
            ``source`` and ``target`` (jsonl; also src and tgt, input and output, question and answer, word and phones)
            or a list of two strings. A third column, or ``split`` in an object, may say ``test`` or ``validation``.
            Or ``source<TAB>answer<TAB>answer…``, all of them correct (answers); or entries as in the CMU Pronouncing
            Dictionary, a word and its pronunciation with spaces between them, where ``WORD(2)`` is another
            pronunciation of ``WORD``, and lines that start with ``;;;`` and what follows `` # `` are comments
            (dictionary). None chooses with ``format_of``.
        targets: a second file with the target of each line; then each line of both files is one text.

    Yields:
        A row per answer, in order. A first line that consists of column names is skipped.

    Raises:
        InputError: a file cannot be read, is empty, or the two files have different numbers of lines.
    """
    if targets is not None:
        yield from _read_parallel(path, targets)
        return
    read = _READERS[file_format or format_of(path)]
    header = 0
    for index, row in enumerate(read(read_lines(path))):
        if not index and _is_header(row):
            header = row.line
        if row.line != header:
            yield row


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


def _read_answers(lines: Iterator[Line]) -> Iterator[Row]:
    """Read a source and its answers, one per column. Empty columns are skipped: spreadsheets fill rows up with them."""
    for line in lines:
        source, *columns = line.text.split("\t")
        answers = [column for column in columns if column.strip()]
        if line.problem:
            yield Row(line.number, problem=line.problem)
        elif line.text.strip() and not answers:
            detail = "it has no answer, and must look like source<TAB>answer<TAB>answer…"
            yield Row(line.number, problem=Problem("no answer", detail))
        for answer in answers:
            yield Row(line.number, source, answer)


def _read_dictionary(lines: Iterator[Line]) -> Iterator[Row]:
    for line in lines:
        if line.problem:
            yield Row(line.number, problem=line.problem)
        elif line.text.strip() and not line.text.startswith(COMMENT):
            word, *answer = line.text.partition(" # ")[0].split(maxsplit=1)
            if answer:
                variant = _VARIANT.fullmatch(word)
                yield Row(line.number, variant[1] if variant else word, answer[0])
            else:
                detail = f"it has no pronunciation after {quote(word)}, and must look like WORD  PRONUNCIATION"
                yield Row(line.number, problem=Problem("no answer", detail))


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
        if problem := next(filter(None, map(refused_character, fields)), None):
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
    split = SPLIT_MARKS.get(mark.strip().lower())
    problem = (
        None if split is not None else Problem("unknown split", f"its third column is {quote(mark)}, {_EXPECTED_MARK}")
    )
    return Row(line, source, target, problem, split or "")


def _is_header(row: Row) -> bool:
    return (row.source.strip().lower(), row.target.strip().lower()) in _COLUMN_NAMES


_READERS: dict[FileFormat, Callable[[Iterator[Line]], Iterator[Row]]] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "answers": _read_answers,
    "dictionary": _read_dictionary,
}
