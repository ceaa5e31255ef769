"""Read the pairs of sentences that manythings.org/anki makes from Tatoeba, and split them.

The site has a zip for each language, such as ``deu-eng.zip``, with a text file of English, translation and attribution,
separated by tabs. The sentences are by the contributors of Tatoeba (tatoeba.org), under CC BY 2.0 FR.
"""

import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks.ingest.lines import read_lines
from core.tasks.pairs import source_key
from core.text.subwords import WORD_START
from core.text.validation import quote

LICENSE = "CC BY 2.0 FR"
ATTRIBUTION = f"Tatoeba, tatoeba.org, {LICENSE}"
MAX_BYTES = 1024**3  # of the file inside a zip; the largest of the site has about 50 MB
MAX_GROUP = 50  # sources; a larger group of near-duplicates is for training
_GROUPS_PER_SPLIT = 30  # one group in so many is for testing, another for validation
_ABOUT = "_about.txt"

Pair = tuple[str, str]


def read_tatoeba(path: Path) -> Iterator[Pair]:
    """Yield source and target of each line, without the attribution, and each pair once.

    Lines are skipped in which a side has no letter, or has ``▁``, with which subwords mark spaces.

    Args:
        path: a zip of the site, or the text file in it.

    Raises:
        InputError: the file cannot be read, a line has one column or more than three, or there are no pairs.
    """
    if not zipfile.is_zipfile(path):
        yield from _read_text(path, path.name)
        return
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        members = [each for each in archive.infolist() if each.filename.endswith(".txt") and each.filename != _ABOUT]
        if len(members) != 1 or members[0].file_size > MAX_BYTES:
            raise InputError(
                f"file={quote(path.name)} must have one .txt file besides {_ABOUT}, of at most {MAX_BYTES:,} bytes; "
                f"it has {', '.join(short_repr(each.filename) for each in members[:5]) or 'none'}"
            )
        text = Path(folder) / "pairs.txt"
        try:
            text.write_bytes(archive.read(members[0]))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise InputError(f"file={quote(path.name)} cannot be read: {error}") from error
        yield from _read_text(text, path.name)


def split_near_duplicates(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, str]]:
    """Yield pairs with their split: "test", "validation", or "" for training. No near-duplicate is in another split.

    Sources are near-duplicates if their letters and digits are equal, or those of one of their targets: "I'm Tom." and
    "I am Tom!" both mean "Ich bin Tom.". So are the near-duplicates of near-duplicates. A group of them is in one
    split, which a hash of the group's first source chooses.

    Held-out pairs come first, as in the pairs file of a run, so that both files have one SHA-256.
    """
    kept = list(pairs)
    groups = _Groups()
    for source, target in kept:
        groups.join(("source", _letters(source)), ("target", _letters(target)))
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for source, _ in kept:
        sources[groups.root(("source", _letters(source)))].add(_letters(source))
    splits = {root: "" if len(group) > MAX_GROUP else _split_of(min(group)) for root, group in sources.items()}
    split = [splits[groups.root(("source", _letters(source)))] for source, _ in kept]
    for is_held_out in (True, False):
        yield from ((pair, name) for pair, name in zip(kept, split, strict=True) if bool(name) == is_held_out)


def _read_text(path: Path, name: str) -> Iterator[Pair]:
    seen: set[Pair] = set()
    for line in read_lines(path):
        columns = line.text.split("\t")
        if line.problem or len(columns) not in (2, 3):
            expected = f"it has {len(columns)} column(s), and must have source, target and attribution"
            raise InputError(f"file={quote(name)}, line {line.number}: {line.problem or expected}")
        source, target = (" ".join(column.split()) for column in columns[:2])
        has_letters = all(any(map(str.isalpha, side)) for side in (source, target))
        if has_letters and WORD_START not in source + target and (source, target) not in seen:
            seen.add((source, target))
            yield source, target
    if not seen:
        raise InputError(f"file={quote(name)} has no pairs")


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _split_of(source: str) -> str:
    return {0: "test", 1: "validation"}.get(source_key(source) % _GROUPS_PER_SPLIT, "")


class _Groups:
    """Disjoint sets: members that are joined are in one set, which has one root (Tarjan 1975)."""

    def __init__(self) -> None:
        self._parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(self, member: tuple[str, str]) -> tuple[str, str]:
        while (parent := self._parents.setdefault(member, member)) != member:
            self._parents[member] = member = self._parents[parent]
        return member

    def join(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        self._parents[self.root(other)] = self.root(one)
