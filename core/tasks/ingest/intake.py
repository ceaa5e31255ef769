"""Taking pairs in: every row checked, the same pairs put together, and what was found told."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from core.storage.errors import InputError
from core.tasks.ingest.reading import Row
from core.tasks.ingest.text_lines import Problem, lines_of
from core.tasks.pair_table import key_of
from core.text.tokenizers import TokenKind, tokens_of
from core.text.vocab import BOS, EOS, PAD, UNK

MIN_SOURCES = 10
MAX_TOKENS = 510  # with BOS and EOS, the most positions that a model may have
SHOWN_PROBLEMS, SHOWN_PAIRS = 20, 5
_OWN = {PAD, BOS, EOS, UNK}
TEST_MARK = "test"


@dataclass(frozen=True)
class Skipped:
    """A row that was left out: of which file, its line and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}line {self.line}: {self.reason}"


@dataclass
class Intake:
    """What was found in pairs that were taken in.

    Attributes:
        sha256: of the pairs as they are kept; their name from now on.
        pairs, sources: kept, and how many different sources they have.
        test_pairs: of the pairs, those that came in a test file; None where there was none.
        duplicates: rows left out since the same pair stood before.
        several: sources with more than one answer.
        overlaps: pairs left out of the training file since their source is in the test file.
        skipped: rows left out, by the kind of fault; ``problems`` are the first of them.
        source_lengths, target_lengths: how many pairs have sides of so many tokens.
        source_tokens, target_tokens: how often each token occurs.
        shown: the first pairs, as text.
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
    problems: list[Skipped] = field(default_factory=list)
    source_lengths: Counter[int] = field(default_factory=Counter)
    target_lengths: Counter[int] = field(default_factory=Counter)
    source_tokens: Counter[str] = field(default_factory=Counter)
    target_tokens: Counter[str] = field(default_factory=Counter)
    shown: list[tuple[str, str]] = field(default_factory=list)

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and of the longest answer."""
        return max(self.source_lengths), max(self.target_lengths)


def taken_in(
    rows: Iterable[Row],
    out: Path,
    *,
    kinds: tuple[TokenKind, TokenKind],
    test_rows: Iterable[Row] = (),
    max_tokens: int = MAX_TOKENS,
    max_pairs: int | None = None,
) -> Intake:
    """Write pairs into a file as they are kept, a line ``source<TAB>target`` each, and tell what was found.

    A source of ``test_rows`` is tested and never learned from; their lines have ``<TAB>test`` behind them. Nothing is
    held of the pairs but eight bytes of each, so that a million take little memory.

    Args:
        kinds: of the tokens of source and target.
        max_tokens: pairs with a longer side are left out.
        max_pairs: pairs that may be kept; None is no limit.

    Raises:
        InputError: there are too few different sources to learn from, or too many pairs.
    """
    found, seen = Intake(kinds), _Seen()
    test_rows = iter(test_rows)
    first_test = list(islice(test_rows, 1))
    with out.open("wb") as file:
        writer = _Writer(file)
        if first_test:
            found.test_pairs = 0
            for source, target in _kept((*first_test, *test_rows), found, seen, max_tokens, "test file, "):
                writer.write(f"{source}\t{target}\t{TEST_MARK}\n")
                found.test_pairs += 1
            seen.close_test()
        for source, target in _kept(rows, found, seen, max_tokens, ""):
            writer.write(f"{source}\t{target}\n")
            if max_pairs is not None and found.pairs > max_pairs:
                raise InputError(f"the data has more than {max_pairs:,} pairs, as many as are read here")
    found.sources, found.several, found.sha256 = len(seen.sources), len(seen.several), writer.hash.hexdigest()
    _check_enough(found, learned=found.sources - len(seen.tested))
    return found


def check_kept(path: Path, *, max_pairs: int | None = None) -> None:
    """Refuse a file that cannot be pairs as ``taken_in`` keeps them; it may come from anybody.

    Raises:
        InputError: naming the first line that is wrong.
    """
    number = 0
    for number, line in enumerate(lines_of(path), start=1):
        source, *rest = line.text.split("\t")
        is_pair = len(rest) in (1, 2) and source.strip() and rest[0].strip() and rest[1:] in ([], [TEST_MARK])
        if line.problem or not is_pair:
            raise InputError(f"the pairs, line {number}: {line.problem or 'it is no pair'}")
        if max_pairs is not None and number > max_pairs:
            raise InputError(f"the data has more than {max_pairs:,} pairs, as many as are read here")


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash = file, hashlib.sha256()

    def write(self, line: str) -> None:
        raw = line.encode()
        self.file.write(raw)
        self.hash.update(raw)


class _Seen:
    """What was met before, by numbers that stand for it."""

    def __init__(self) -> None:
        self.pairs: set[int] = set()
        self.sources: set[int] = set()
        self.several: set[int] = set()
        self.tested: frozenset[int] = frozenset()

    def close_test(self) -> None:
        """From now on, what was met so far is not to be learned from."""
        self.tested = frozenset(self.sources)


def _kept(rows: Iterable[Row], found: Intake, seen: _Seen, max_tokens: int, file: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs to be kept, and count them and the others."""
    for row in rows:
        source, target = row.source.strip(), row.target.strip()
        tokens = tokens_of(source, found.kinds[0]), tokens_of(target, found.kinds[1])
        if reason := row.problem or _fault(source, target, tokens, max_tokens):
            found.skipped[reason.kind] += 1
            if len(found.problems) < SHOWN_PROBLEMS:
                found.problems.append(Skipped(file, row.line, str(reason)))
            continue
        key = key_of(source if found.kinds[0] == "character" else " ".join(tokens[0]))
        pair = key_of(f"{key}\t{' '.join(tokens[1])}")
        if key in seen.tested:
            found.overlaps += 1
        elif pair in seen.pairs:
            found.duplicates += 1
        else:
            if key in seen.sources:
                seen.several.add(key)
            seen.pairs.add(pair)
            seen.sources.add(key)
            _count(found, source, target, tokens)
            yield source, target


def _count(found: Intake, source: str, target: str, tokens: tuple[list[str], list[str]]) -> None:
    found.pairs += 1
    found.source_lengths[len(tokens[0])] += 1
    found.target_lengths[len(tokens[1])] += 1
    found.source_tokens.update(tokens[0])
    found.target_tokens.update(tokens[1])
    if len(found.shown) < SHOWN_PAIRS:
        found.shown.append((source, target))


def _fault(source: str, target: str, tokens: tuple[list[str], list[str]], max_tokens: int) -> Problem | None:
    """Say why a pair cannot be kept, if it cannot."""
    if not source or not target:
        return Problem("one side empty", f"its {'target' if source else 'source'} is empty")
    if "\t" in source or "\t" in target:
        return Problem("tab inside", "there is a tab inside its text")
    for side, of_side in zip(("source", "target"), tokens, strict=True):
        if len(of_side) > max_tokens:
            return Problem("too long", f"its {side} has {len(of_side):,} tokens, more than {max_tokens}")
        if not _OWN.isdisjoint(of_side):
            token = next(each for each in of_side if each in _OWN)
            return Problem("reserved token", f"its {side} has {token}, which stands for something else here")
    return None


def _check_enough(found: Intake, *, learned: int) -> None:
    if learned >= MIN_SOURCES:
        return
    if found.overlaps and not learned:
        raise InputError(
            f"all {found.overlaps:,} pairs to learn from have a source that is in the test file too, "
            "so nothing is left to learn from"
        )
    parts = [f"too few different sources to learn from: {learned:,}, and at least {MIN_SOURCES} are needed"]
    if found.duplicates:
        parts.append(f"rows that say what a row before them says: {found.duplicates:,}")
    if found.skipped:
        parts.append(f"rows left out: {found.skipped.total():,}, the first: {found.problems[0]}")
    raise InputError("; ".join(parts))
