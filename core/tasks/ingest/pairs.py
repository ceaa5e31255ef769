"""Import pairs: validate every row, drop duplicates, write the pairs file, and report statistics."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from core.storage.errors import InputError
from core.tasks.ingest.reading import Problem, Row, read_lines
from core.tasks.pairs import source_key
from core.text.tokenizers import TokenKind, tokenize
from core.text.vocab import BOS, EOS, PAD, UNK

MIN_SOURCES = 10
MAX_TOKENS = 510  # with BOS and EOS, the longest sequence of any model
MAX_LISTED_PROBLEMS, FIRST_PAIRS = 20, 5
TEST_MARK = "test"
_SPECIAL_TOKENS = {PAD, BOS, EOS, UNK}


@dataclass(frozen=True)
class SkippedRow:
    """A row that was skipped: a prefix that names its file, its line, and the reason."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}line {self.line}: {self.reason}"


@dataclass
class IngestResult:
    """Statistics of imported pairs.

    Attributes:
        kinds: tokenizers of source and target.
        sha256: of the pairs file; a preset names the pairs by it.
        pairs, sources: number of pairs in the file, and of different sources.
        test_pairs: number of those from a test file; None if there was none.
        duplicates: rows dropped because the same pair occurred before.
        several: sources with more than one target.
        overlaps: training pairs dropped because their source is in the test file.
        skipped: number of invalid rows by kind of problem; ``problems`` lists the first of them.
        source_lengths, target_lengths: number of pairs by the number of tokens of that side.
        source_tokens, target_tokens: number of occurrences of each token.
        first_pairs: the first pairs, as text.
    """

    kinds: tuple[TokenKind, TokenKind]
    sha256: str = ""
    pairs: int = 0
    sources: int = 0
    test_pairs: int | None = None
    duplicates: int = 0
    several: int = 0
    overlaps: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[SkippedRow] = field(default_factory=list)
    source_lengths: Counter[int] = field(default_factory=Counter)
    target_lengths: Counter[int] = field(default_factory=Counter)
    source_tokens: Counter[str] = field(default_factory=Counter)
    target_tokens: Counter[str] = field(default_factory=Counter)
    first_pairs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def longest(self) -> tuple[int, int]:
        """Number of tokens of the longest source and of the longest target."""
        return max(self.source_lengths), max(self.target_lengths)


def ingest_pairs(
    rows: Iterable[Row],
    out: Path,
    *,
    kinds: tuple[TokenKind, TokenKind],
    test_rows: Iterable[Row] = (),
    max_tokens: int = MAX_TOKENS,
    max_pairs: int | None = None,
) -> IngestResult:
    """Write valid, distinct pairs to a file, one line ``source<TAB>target`` each, and return statistics.

    Pairs of ``test_rows`` have ``<TAB>test`` appended, and training pairs with the same source are dropped. Only eight
    bytes per pair stay in memory.

    Args:
        out: the file to write.
        kinds: tokenizers of source and target.
        max_tokens: pairs with a longer side are skipped.
        max_pairs: pairs that may be imported; None for no limit.

    Raises:
        InputError: there are too few different sources to learn from, or too many pairs.
    """
    result, seen = IngestResult(kinds), _Seen()
    test_rows = iter(test_rows)
    first_test_row = list(islice(test_rows, 1))
    with out.open("wb") as file:
        writer = _HashingWriter(file)
        if first_test_row:
            result.test_pairs = 0
            for source, target in _valid_pairs((*first_test_row, *test_rows), result, seen, max_tokens, "test file, "):
                writer.write(f"{source}\t{target}\t{TEST_MARK}\n")
                result.test_pairs += 1
            seen.close_test()
        for source, target in _valid_pairs(rows, result, seen, max_tokens, ""):
            writer.write(f"{source}\t{target}\n")
            if max_pairs is not None and result.pairs > max_pairs:
                raise InputError(f"the data has more than {max_pairs:,} pairs, the limit here")
    result.sources, result.several, result.sha256 = len(seen.sources), len(seen.several), writer.hash.hexdigest()
    _check_enough_sources(result, training_sources=result.sources - len(seen.test_sources))
    return result


def check_pairs_file(path: Path, *, max_pairs: int | None = None) -> None:
    """Check that a file has the format that ``ingest_pairs`` writes; use it for files from other people.

    Raises:
        InputError: naming the first invalid line.
    """
    for number, line in enumerate(read_lines(path), start=1):
        source, *rest = line.text.split("\t")
        is_pair = len(rest) in (1, 2) and source.strip() and rest[0].strip() and rest[1:] in ([], [TEST_MARK])
        if line.problem or not is_pair:
            raise InputError(f"pairs file, line {number}: {line.problem or 'it is not a pair'}")
        if max_pairs is not None and number > max_pairs:
            raise InputError(f"the data has more than {max_pairs:,} pairs, the limit here")


class _HashingWriter:
    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash = file, hashlib.sha256()

    def write(self, line: str) -> None:
        raw = line.encode()
        self.file.write(raw)
        self.hash.update(raw)


class _Seen:
    """Hashes of the pairs and sources seen so far."""

    def __init__(self) -> None:
        self.pairs: set[int] = set()
        self.sources: set[int] = set()
        self.several: set[int] = set()
        self.test_sources: frozenset[int] = frozenset()

    def close_test(self) -> None:
        """Mark all sources seen so far as test sources."""
        self.test_sources = frozenset(self.sources)


def _valid_pairs(
    rows: Iterable[Row], result: IngestResult, seen: _Seen, max_tokens: int, file: str
) -> Iterator[tuple[str, str]]:
    """Yield the pairs to write, and count all rows in ``result``."""
    for row in rows:
        source, target = row.source.strip(), row.target.strip()
        tokens = tokenize(source, result.kinds[0]), tokenize(target, result.kinds[1])
        if problem := row.problem or _find_problem(source, target, tokens, max_tokens):
            result.skipped[problem.kind] += 1
            if len(result.problems) < MAX_LISTED_PROBLEMS:
                result.problems.append(SkippedRow(file, row.line, str(problem)))
            continue
        key = source_key(source if result.kinds[0] == "character" else " ".join(tokens[0]))
        pair = source_key(f"{key}\t{' '.join(tokens[1])}")
        if key in seen.test_sources:
            result.overlaps += 1
        elif pair in seen.pairs:
            result.duplicates += 1
        else:
            if key in seen.sources:
                seen.several.add(key)
            seen.pairs.add(pair)
            seen.sources.add(key)
            _count(result, source, target, tokens)
            yield source, target


def _count(result: IngestResult, source: str, target: str, tokens: tuple[list[str], list[str]]) -> None:
    result.pairs += 1
    result.source_lengths[len(tokens[0])] += 1
    result.target_lengths[len(tokens[1])] += 1
    result.source_tokens.update(tokens[0])
    result.target_tokens.update(tokens[1])
    if len(result.first_pairs) < FIRST_PAIRS:
        result.first_pairs.append((source, target))


def _find_problem(source: str, target: str, tokens: tuple[list[str], list[str]], max_tokens: int) -> Problem | None:
    """Return why a pair cannot be used, or None."""
    if not source or not target:
        return Problem("one side empty", f"its {'target' if source else 'source'} is empty")
    if "\t" in source or "\t" in target:
        return Problem("tab in text", "its text contains a tab")
    for side, side_tokens in zip(("source", "target"), tokens, strict=True):
        if len(side_tokens) > max_tokens:
            return Problem("too long", f"its {side} has {len(side_tokens):,} tokens, more than {max_tokens}")
        if not _SPECIAL_TOKENS.isdisjoint(side_tokens):
            token = next(token for token in side_tokens if token in _SPECIAL_TOKENS)
            return Problem("special token", f"its {side} contains the special token {token}")
    return None


def _check_enough_sources(result: IngestResult, *, training_sources: int) -> None:
    if training_sources >= MIN_SOURCES:
        return
    if result.overlaps and not training_sources:
        raise InputError(f"all {result.overlaps:,} training pairs have a source that is also in the test file")
    parts = [f"too few different sources to learn from: {training_sources:,}, at least {MIN_SOURCES} are needed"]
    if result.duplicates:
        parts.append(f"duplicate pairs: {result.duplicates:,}")
    if result.skipped:
        parts.append(f"skipped rows: {result.skipped.total():,}, the first: {result.problems[0]}")
    raise InputError("; ".join(parts))
