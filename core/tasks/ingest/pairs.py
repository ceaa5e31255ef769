"""Import pairs: validate every row, drop duplicates, write the pairs file, and report statistics."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from core.storage.errors import InputError
from core.tasks.ingest.columns import ALIGNMENT, MAX_SETS
from core.tasks.ingest.lines import NOT_UTF_8, SAVE_AS_UTF_8, Problem, Row, read_lines
from core.tasks.ingest.reading import Reading
from core.tasks.pairs import source_key
from core.text.case import CaseCheck, TextCase
from core.text.subwords import WORD_START
from core.text.tokenizers import TokenKind, plain_kind, tokenize
from core.text.units import num_units
from core.text.validation import quote
from core.text.vocab import BOS, EOS, PAD, UNK

MIN_SOURCES = 10
MAX_TOKENS = 510  # with BOS and EOS, the longest sequence of any model
MAX_LISTED_PROBLEMS, FIRST_PAIRS = 20, 5
MARK = re.compile(r"(|test|validation)(?::([a-z0-9-]{1,40}))?")
"""What follows a pair in its file: its split if it is held out, and the name of its test set."""
RESERVED = {PAD, BOS, EOS, UNK}


@dataclass(frozen=True)
class SkippedRow:
    """A row that was skipped: a prefix that names its file, its line, and the reason."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}line {self.line}: {self.reason}"


Kinds = tuple[TokenKind, TokenKind]


@dataclass(frozen=True)
class SubwordSizes:
    """Pieces of a vocabulary at most, the 256 bytes included, and whether both sides share it."""

    vocabulary_size: int
    joint: bool


@dataclass
class IngestResult:
    """Statistics of imported pairs.

    Attributes:
        kinds: tokens of source and target.
        choice: why these tokens were chosen, a sentence; "" if the user named them.
        sha256: of the pairs file; a preset names the pairs by it.
        pairs, sources: number of pairs in the file, and of different sources.
        held_out: number of those marked as held out, or from a test file, by split.
        aligned: number of pairs with an alignment.
        sets: number of test pairs, or of all pairs of no marked split, by the name of their test set.
        duplicates: rows dropped because the same pair occurred before.
        several: sources with more than one target.
        source_case: case of all training sources; "as-is" if they are in both.
        other_case: whether held-out sources have letters in another case than all training sources.
        overlaps: pairs dropped because their source is in another split that is marked.
        skipped: number of invalid rows by kind of problem; ``problems`` lists the first of them.
        too_long: pairs in the file with more than ``MAX_TOKENS`` subwords on a side, which the task leaves out.
        source_lengths, target_lengths: number of pairs by the number of tokens of that side.
        source_tokens, target_tokens: number of occurrences of each token in the training pairs.
        reading: how the file was read, and could be; None of pairs from elsewhere, or of two files.
        first_pairs: the first training pairs, as text.
        subwords: vocabularies of subwords; None with other tokens.
        measured_every: 1 if subwords and unknown tokens were counted in all pairs, 2 in every other pair, and so on.
        unknown: share of the tokens of held-out sources and targets that are not in the vocabulary, 0-1.
        example: tokens of the first pair's source and target.
    """

    kinds: Kinds
    choice: str = ""
    sha256: str = ""
    pairs: int = 0
    sources: int = 0
    held_out: Counter[str] = field(default_factory=Counter)
    aligned: int = 0
    sets: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    several: int = 0
    source_case: TextCase = "as-is"
    other_case: bool = False
    overlaps: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[SkippedRow] = field(default_factory=list)
    too_long: int = 0
    source_lengths: Counter[int] = field(default_factory=Counter)
    target_lengths: Counter[int] = field(default_factory=Counter)
    source_tokens: Counter[str] = field(default_factory=Counter)
    target_tokens: Counter[str] = field(default_factory=Counter)
    reading: Reading | None = None
    first_pairs: list[tuple[str, str]] = field(default_factory=list)
    subwords: SubwordSizes | None = None
    measured_every: int = 1
    unknown: tuple[float, float] = (0.0, 0.0)
    example: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    @property
    def training_pairs(self) -> int:
        """Number of pairs that are not marked as held out."""
        return self.pairs - self.held_out.total()

    @property
    def longest(self) -> tuple[int, int]:
        """Number of tokens of the longest source and of the longest target."""
        return max(self.source_lengths), max(self.target_lengths)


def ingest_pairs(
    rows: Iterable[Row],
    out: Path,
    *,
    kinds: Kinds,
    held_out_rows: Iterable[Row] = (),
    max_pairs: int | None = None,
    min_sources: int = MIN_SOURCES,
) -> IngestResult:
    """Write valid, distinct pairs to a file, one line ``source<TAB>target`` each, and return statistics.

    Held-out pairs come first and have ``<TAB>test`` or ``<TAB>validation`` appended, with ``:NAME`` if they are of a
    test set with a name; pairs of other splits with the same source are dropped. Only eight bytes per pair stay in
    memory. Subwords, which are not learned yet, are not counted.

    Args:
        out: the file to write.
        kinds: tokens of source and target.
        held_out_rows: pairs whose ``split`` is "test" or "validation".
        max_pairs: pairs that may be imported; None for no limit.
        min_sources: different sources that there must be, those of held-out pairs not counted.

    Raises:
        InputError: there are too few different sources, or too many pairs.
    """
    result, seen = IngestResult(kinds), _Seen()
    with out.open("wb") as file:
        writer = _HashingWriter(file)
        for source, target, row in _valid_pairs(chain(held_out_rows, rows), result, seen):
            mark = f"{row.split}:{row.set}" if row.set and row.split != "validation" else row.split
            further = [mark, row.alignment] if row.alignment else [mark] if mark else []
            writer.write("\t".join([source, target, *further]) + "\n")
            result.aligned += bool(row.alignment)
            result.held_out.update([row.split] if row.split else [])
            result.sets.update([row.set] if row.set and row.split != "validation" else [])
            if len(result.sets) > MAX_SETS:
                raise InputError(
                    f"more than {MAX_SETS} test sets are named, such as {', '.join(list(result.sets)[:3])}"
                )
            if max_pairs is not None and result.pairs > max_pairs:
                raise InputError(f"the data has more than {max_pairs:,} pairs, the limit here")
    result.sources, result.several, result.sha256 = len(seen.sources), len(seen.several), writer.hash.hexdigest()
    result.source_case = seen.training_case.case
    held_out = seen.held_out_case
    result.other_case = {"lower": held_out.has_upper, "upper": held_out.has_lower, "as-is": False}[result.source_case]
    _check_enough_sources(result, result.sources - len(seen.held_out), min_sources)
    return result


def check_pairs_file(path: Path, *, max_pairs: int | None = None) -> None:
    """Check that a file has the format that ``ingest_pairs`` writes; use it for files from other people.

    Raises:
        InputError: naming the first invalid line.
    """
    for number, line in enumerate(read_lines(path), start=1):
        source, *rest = line.text.split("\t")
        is_pair = bool(len(rest) in (1, 2, 3) and source.strip() and rest[0].strip())
        is_pair = is_pair and all(map(MARK.fullmatch, rest[1:2])) and all(map(ALIGNMENT.fullmatch, rest[2:]))
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
        self.answers_in_sets: set[int] = set()
        self.held_out: dict[int, str] = {}
        """Split of each source that is held out."""
        self.training_case, self.held_out_case = CaseCheck(), CaseCheck()


def _valid_pairs(rows: Iterable[Row], result: IngestResult, seen: _Seen) -> Iterator[tuple[str, str, Row]]:
    """Yield source, target and row of the pairs to write, and count all rows in ``result``."""
    for row in rows:
        source, target = row.source.strip(), row.target.strip()
        tokens = _tokens(source, result.kinds[0]), _tokens(target, result.kinds[1])
        problem = row.problem or _find_problem(source, target, result.kinds, tokens)
        if problem := problem or _find_alignment_problem(row.alignment, (source, target), result.kinds):
            result.skipped[problem.kind] += 1
            if len(result.problems) < MAX_LISTED_PROBLEMS:
                result.problems.append(SkippedRow(row.file, row.line, str(problem)))
            continue
        key = source_key(source if result.kinds[0] in ("character", "subword") else " ".join(tokens[0]))
        answer = source_key(f"{key}\t{target if result.kinds[1] == 'subword' else ' '.join(tokens[1])}")
        is_in_set = row.split == "test" and bool(row.set)  # a source may be in several test sets
        pair = answer ^ source_key(row.set) if is_in_set else answer
        if seen.held_out.get(key, row.split) != row.split:
            result.overlaps += 1
        elif pair in seen.pairs:
            result.duplicates += 1
        else:
            if key in seen.sources and answer not in seen.pairs and answer not in seen.answers_in_sets:
                seen.several.add(key)
            seen.pairs.add(pair)
            if is_in_set:
                seen.answers_in_sets.add(answer)
            seen.sources.add(key)
            (seen.held_out_case if row.split else seen.training_case).add(source)
            if row.split:
                seen.held_out[key] = row.split
            _count(result, source, target, tokens, is_held_out=bool(row.split))
            yield source, target, row


def _tokens(text: str, kind: TokenKind) -> list[str]:
    """Return the tokens of a text; none of subwords, which are not learned yet."""
    return [] if kind == "subword" else tokenize(text, plain_kind(kind))


def _count(
    result: IngestResult, source: str, target: str, tokens: tuple[list[str], list[str]], *, is_held_out: bool
) -> None:
    result.pairs += 1
    if "subword" not in result.kinds:
        result.source_lengths[len(tokens[0])] += 1
        result.target_lengths[len(tokens[1])] += 1
    if not is_held_out:
        result.source_tokens.update(tokens[0])
        result.target_tokens.update(tokens[1])
    if not is_held_out and len(result.first_pairs) < FIRST_PAIRS:
        result.first_pairs.append((source, target))


def _find_problem(source: str, target: str, kinds: Kinds, tokens: tuple[list[str], list[str]]) -> Problem | None:
    """Return why a pair cannot be used, or None."""
    if not source or not target:
        return Problem("one side empty", f"its {'target' if source else 'source'} is empty")
    if "\t" in source or "\t" in target:
        return Problem("tab in text", "its text contains a tab")
    if "subword" in kinds and WORD_START in source + target:
        side = "source" if WORD_START in source else "target"
        return Problem("mark of spaces", f"its {side} has {WORD_START} (U+2581), with which subwords mark spaces")
    for side, side_tokens in zip(("source", "target"), tokens, strict=True):
        if len(side_tokens) > MAX_TOKENS:
            return Problem("too long", f"its {side} has {len(side_tokens):,} tokens, more than {MAX_TOKENS}")
        if not RESERVED.isdisjoint(side_tokens):
            token = next(token for token in side_tokens if token in RESERVED)
            return Problem("special token", f"its {side} contains the special token {token}")
    return None


def _find_alignment_problem(alignment: str, texts: tuple[str, str], kinds: Kinds) -> Problem | None:
    """Return why an alignment does not fit its pair, or None."""
    if not alignment:
        return None
    if not ALIGNMENT.fullmatch(alignment):
        return Problem("alignment", f"its alignment is {quote(alignment)}, and must look like 0-0 1-2")
    links = [tuple(map(int, link.split("-"))) for link in alignment.split(" ")]
    for side, text, kind, numbers in zip(("source", "target"), texts, kinds, zip(*links, strict=True), strict=True):
        units = num_units(text, kind)
        if max(numbers) >= units:
            detail = f"its alignment has the number {max(numbers)}, but its {side} has the numbers 0 to {units - 1}"
            return Problem("alignment", detail)
    return None


def _check_enough_sources(result: IngestResult, training_sources: int, min_sources: int) -> None:
    if training_sources >= min_sources:
        return
    if result.overlaps and not training_sources:
        raise InputError(f"all {result.overlaps:,} training pairs have a source that is also in the test pairs")
    parts = [f"too few different sources to learn from: {training_sources:,}, at least {min_sources} are needed"]
    if result.duplicates:
        parts.append(f"duplicate pairs: {result.duplicates:,}")
    if result.skipped:
        parts.append(f"skipped rows: {result.skipped.total():,}, the first: {result.problems[0]}")
    if result.skipped[NOT_UTF_8]:
        parts.append(SAVE_AS_UTF_8)
    raise InputError("; ".join(parts))
