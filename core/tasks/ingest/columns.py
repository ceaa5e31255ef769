"""Which columns of a file are source and target: what its header or its first rows show, and how else it can be read.

A file with more than two columns can be read in several ways, and a wrong guess trains a model on the wrong task. So
each reading that fits the first rows is found, the likeliest first, for the user to see and choose from.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Literal, get_args

from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks.ingest.lines import Problem, Row
from core.tasks.ingest.records import Field, Record
from core.text.languages import is_language
from core.text.tokenizers import FEATURES
from core.text.validation import quote

Role = Literal["source", "target", "answers", "split", "set", "alignment", "skip"]
ROLES: tuple[Role, ...] = get_args(Role)
SAMPLE = 1_000  # records, by which the columns are recognized
MAX_SETS = 50  # named test sets of a file
MIN_OTHERS = 10  # records without a letter in a column, for its first text to be a name
MIN_WIDER = 0.05  # share of the rows that have more than two columns, for these to be columns of the file
_SPLITS = {
    "": "",
    "train": "",
    "training": "",
    "test": "test",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
}
_PAIR: tuple[Role, ...] = ("source", "target")
_NAMES: dict[Role, set[str]] = {
    "source": {
        *("source", "src", "input", "question", "prompt", "word", "lemma", "features", "feats", "tags", "command"),
        *("sentence", "singular", "quelle", "eingabe", "frage", "satz", "wort", "wert"),
    },
    "target": {
        *("target", "tgt", "output", "answer", "completion", "phones", "form", "response", "actions"),
        *("translation", "plural", "ziel", "ausgabe", "antwort", "übersetzung", "ergebnis"),
    },
    "answers": {"answers", "targets"},
    "split": {"split"},
    "set": {"set", "category", "type", "group", "distribution"},
    "alignment": {"alignment", "alignments"},
    "skip": {"id", "index", "attribution", "license"},
}
_TEXT, _LABEL = "text", "label"  # source and target, of names that say neither
_ATTRIBUTION = re.compile(r"CC-BY|Attribution:|©|https?://", re.IGNORECASE)
ALIGNMENT = re.compile(r"\d+-\d+( \d+-\d+)*")
"""Links of an alignment."""
_SET_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Columns:
    """What each column of a file is.

    Attributes:
        roles: of each column. Sources are joined by spaces. Targets, and each column from "answers" on, are
            correct answers, each of which gives a pair. "split" says train, test, validation, or names a test set;
            "set" names the test set of a pair that is held out anyway; "alignment" links the words of both sides;
            columns of "skip" are left out. If the last is "skip" or "answers", further columns are too.
        names: of the columns; for records that name their fields, those that are read, in this order.
    """

    roles: tuple[Role, ...]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the roles as ``parse_columns`` reads them."""
        return ",".join(self.roles)

    def describe(self) -> str:
        """Return the reading in words, such as ``columns 1 and 3 → column 2``."""
        sources, targets = self._which("source"), self._which("target", "answers")
        arrow = f"{_listed(sources)} → {_listed(targets)}"
        if "answers" in self.roles:
            arrow += " and each column after it, all of them correct"
        elif len(targets) > 1:
            arrow += ", all of them correct"
        others = [
            f"{_listed(which)} {verb}"
            for which, verb in (
                (self._which("split"), "names the split"),
                (self._which("set"), "names the test set of a held-out pair"),
                (self._which("alignment"), "links the words of both sides"),
                (self._which("skip"), "is left out" if len(self._which("skip")) == 1 else "are left out"),
            )
            if which
        ]
        return "; ".join([arrow, *others])

    def _which(self, *roles: Role) -> list[str]:
        return [
            quote(self.names[at]) if at < len(self.names) and self.names[at] else str(at + 1)
            for at, role in enumerate(self.roles)
            if role in roles
        ]

    def rows(self, record: Record) -> Iterator[Row]:
        """Yield the pairs of a record, one for each answer, or one with the problem."""
        fields = record.fields
        if self.roles == _PAIR and len(fields) == len(_PAIR) and not record.names and not record.problem:
            source, target = fields
            if isinstance(source, str) and isinstance(target, str):  # nearly all rows of nearly all files
                yield Row(record.line, source, target)
                return
        if record.problem is None and record.names:
            by_name = dict(zip(record.names, record.fields, strict=True))
            fields = tuple(by_name.get(name, "") for name in self.names)
        problem = record.problem or self._problem(fields)
        if problem:
            yield Row(record.line, problem=problem)
            return
        found: dict[Role, list[Field]] = {role: [] for role in ROLES}
        last = self.roles[-1]
        for at, field in enumerate(fields):
            found[self.roles[at] if at < len(self.roles) else last].append(field)
        source = " ".join(text for field in found["source"] for text in _texts(field) if text.strip())
        answers = [text for field in (*found["target"], *found["answers"]) for text in _texts(field)]
        if len(answers) > 1:  # spreadsheets fill rows up with empty columns
            answers = [text for text in answers if text.strip()] or answers[:1]
        split, name = split_named(_text(found["split"][0])) if found["split"] else ("", "")
        if found["set"]:
            name = set_name(_text(found["set"][0]))
        alignment = _text(found["alignment"][0]).strip() if found["alignment"] else ""
        for answer in answers:
            yield Row(record.line, source, answer, split=split, set=name, alignment=alignment)

    def _problem(self, fields: Sequence[Field]) -> Problem | None:
        """Return what is wrong with the number of columns, or None; columns of splits and sets may be missing."""
        first_target = next(at for at, role in enumerate(self.roles) if role in ("target", "answers"))
        needed = 1 + max(first_target, max(at for at, role in enumerate(self.roles) if role == "source"))
        at_most = None if self.roles[-1] in ("skip", "answers") else len(self.roles)
        if len(fields) < needed or (at_most is not None and len(fields) > at_most):
            plural = "s" if len(fields) > 1 else ""
            expected = (
                f"{needed}" if needed == at_most else f"{needed} to {at_most}" if at_most else f"at least {needed}"
            )
            roles = ", ".join(self.roles)
            return Problem(
                "other number of columns", f"it has {len(fields)} column{plural}; {expected} are read: {roles}"
            )
        return None


def parse_columns(text: str) -> Columns:
    """Read roles of columns, separated by commas, such as ``source,target,skip``; InputError if they make no pairs."""
    roles = [role for name in text.split(",") for role in ROLES if role == name.strip()]
    if len(roles) < len(text.split(",")):
        raise InputError(f"columns={short_repr(text)} must be of {', '.join(ROLES)}, one for each column, with commas")
    if "source" not in roles or not {"target", "answers"} & set(roles):
        raise InputError(f"columns={short_repr(text)} must have a source, and a target or answers")
    if roles.count("answers") > 1 or ("answers" in roles and roles[-1] != "answers"):
        raise InputError(f"columns={short_repr(text)} must end with answers: each column after it is one too")
    if any(roles.count(role) > 1 for role in ("split", "set", "alignment")):
        raise InputError(f"columns={short_repr(text)} must have split, set and alignment at most once")
    if "alignment" in roles and ("answers" in roles or roles.count("target") > 1):
        raise InputError(f"columns={short_repr(text)} must have one target with an alignment: it belongs to one answer")
    return Columns(tuple(roles))


@dataclass(frozen=True)
class Recognized:
    """The readings of a file that fit its first records, the likeliest first.

    Attributes:
        width: number of columns of the widest record.
        has_objects: whether the records name their fields, as objects of JSON do; lists among them are no pairs then.
        header: the line with the names of the columns; 0 without one.
        examples: for each reading, the first pairs that it makes, three at most.
    """

    readings: tuple[Columns, ...]
    width: int
    has_objects: bool = False
    header: int = 0
    examples: tuple[tuple[Row, ...], ...] = ()

    def problem(self, record: Record) -> Problem | None:
        """Return the problem of a list in a file of objects, or of an object in a file of lists; else None."""
        if record.problem or bool(record.names) == self.has_objects:
            return None
        kind, most = ("a list", "objects") if self.has_objects else ("an object", "lists")
        return Problem("not a pair", f"it is {kind}, but most of the file's records are {most}")


def recognize(records: Sequence[Record]) -> Recognized:
    """Find how a file can be read, by its first records."""
    valid = [each for each in records if each.problem is None]
    objects = [each for each in valid if each.names]
    has_objects = bool(objects) and 2 * len(objects) >= len(valid)
    valid = objects if has_objects else [each for each in valid if not each.names]
    header, names = 0, _common_names(valid)
    if not has_objects and valid and _is_header(valid[0].fields, valid[1:]):
        header, names = valid[0].line, tuple(str(each).strip() for each in valid[0].fields)
        valid = valid[1:]
    table = [dict(zip(each.names, each.fields, strict=True)) if each.names else each.fields for each in valid]
    rows = [tuple(each.get(name, "") for name in names) if isinstance(each, dict) else each for each in table]
    readings = [Columns(roles, names) for roles in _possible_roles(rows, names)]
    examples = tuple(tuple(islice((row for each in valid for row in one.rows(each)), 3)) for one in readings)
    return Recognized(tuple(readings), max(map(len, rows), default=0), has_objects, header, examples)


def same_columns(columns: Columns, found: Recognized) -> Columns:
    """Return a reading that the user chose, with the names of the file's own columns."""
    return Columns(columns.roles, found.readings[0].names)


def set_name(text: str) -> str:
    """Return the name of a test set as it is stored: lower case, hyphens for what is no letter or digit."""
    return _SET_NAME.sub("-", text.strip().lower()).strip("-")[:40]


def split_named(text: str) -> tuple[str, str]:
    """Return the split and the test set that a mark stands for: one that names no split names a test set."""
    split = _SPLITS.get(text.strip().lower())
    return (split, "") if split is not None else ("test", set_name(text))


def _possible_roles(rows: Sequence[Sequence[Field]], names: Sequence[str]) -> Iterator[tuple[Role, ...]]:
    """Yield the roles of the columns of each reading that fits rows, the likeliest first, none twice."""
    seen: set[tuple[Role, ...]] = set()
    for roles in _by_likelihood(rows, names):
        if roles not in seen:
            seen.add(roles)
            yield roles


def _by_likelihood(rows: Sequence[Sequence[Field]], names: Sequence[str]) -> Iterator[tuple[Role, ...]]:
    width = len(names) or max((len(row) for row in rows), default=2)
    if by_name := _roles_by_name(names):
        yield by_name
    if width > 2 and not names and _num_wider(rows, 2) < MIN_WIDER * len(rows) and not _marks_splits(rows):
        width = 2  # the others have a separator inside a text, say
    if width <= 2:
        yield "source", "target"
        yield "target", "source"
        return
    columns = [_column(rows, at) for at in range(width)]
    kinds = [_kind(columns[at], at) for at in range(width)]
    rest: tuple[Role, ...] = tuple(_ROLE_OF_KIND[kind] for kind in kinds[2:])
    varies = len({len(row) for row in rows}) > 1
    if kinds[2] == "features":
        yield ("source", "target", "source", *rest[1:])
    elif kinds[1] == "features":
        yield ("source", "source", "target", *rest[1:])
    if varies and "text" in kinds[2:] and not names:
        yield "source", "answers"
    yield ("source", "target", *rest)
    left_out: tuple[Role, ...] = tuple(repeat("skip", width - 3))
    yield ("source", "target", "skip", *left_out)
    if not names:
        yield "source", "answers"
    yield ("source", "target", "source", *left_out)
    yield ("source", "source", "target", *left_out)
    yield ("target", "source", "skip", *left_out)


def _column(rows: Sequence[Sequence[Field]], at: int) -> list[str]:
    return [_text(row[at]) for row in rows if at < len(row)]


def _num_wider(rows: Sequence[Sequence[Field]], width: int) -> int:
    return sum(len(row) > width for row in rows)


def _marks_splits(rows: Sequence[Sequence[Field]]) -> bool:
    return not _num_wider(rows, 3) and _kind(_column(rows, 2), 2) == "split"


_ROLE_OF_KIND: dict[str, Role] = {
    "split": "split",
    "set": "set",
    "alignment": "alignment",
    "features": "skip",
    "other": "skip",
    "text": "skip",
}


def _kind(values: Sequence[str], at: int) -> str:
    """Return what a column looks like: one of ``_ROLE_OF_KIND``, of which "other" is licenses, say."""
    filled = [value.strip() for value in values if value.strip()]
    if not filled:
        return "other"
    distinct = Counter(filled)
    if at > 1:
        marks = sum(count for value, count in distinct.items() if value.lower() in _SPLITS)
        repeats = len(distinct) <= MAX_SETS and len(distinct) * 3 <= len(filled)
        if marks == len(filled) or (marks and repeats):
            return "split"
    if all(map(ALIGNMENT.fullmatch, filled)):
        return "alignment"
    if any(";" in value for value in filled) and _share(filled, lambda value: bool(FEATURES.fullmatch(value))) > 0.9:
        return "features"
    if _share(filled, lambda value: bool(_ATTRIBUTION.search(value)) or value.isdigit()) > 0.9:
        return "other"
    if len(distinct) <= MAX_SETS and len(distinct) * 5 <= len(filled) and all(len(value) <= 60 for value in distinct):
        return "set"
    return "text"


def _share(values: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, values)) / len(values)


def _roles_by_name(names: Sequence[str]) -> tuple[Role, ...] | None:
    """Return the roles that names of columns stand for; None if they do not name a source and a target."""
    plain = [name.lower().rpartition(".")[2].strip() for name in names]
    roles: list[Role] = [next((role for role, known in _NAMES.items() if name in known), "skip") for name in plain]
    languages = [at for at, name in enumerate(names) if is_language(name.rpartition(".")[2])]
    if len(languages) > 2:  # "id" is Indonesian too
        languages = [at for at in languages if names[at].lower() not in _NAMES["skip"]]
    if len(languages) == 2 and not {"source", "target"} & set(roles):
        roles[languages[0]], roles[languages[1]] = "source", "target"
    if not {"source", "target", "answers"} & set(roles) and _TEXT in plain and _LABEL in plain:
        roles[plain.index(_TEXT)], roles[plain.index(_LABEL)] = "source", "target"
    if "source" not in roles or not {"target", "answers"} & set(roles):
        return None
    if "answers" in roles:
        roles = ["target" if role == "answers" else role for role in roles]  # a list of them in one field
    return tuple(roles)


def _is_header(fields: Sequence[Field], others: Sequence[Record]) -> bool:
    """Return whether the first record names columns: a source and a target, by known names or as two languages.

    It does too, whatever it says, if it has letters in a column in which no other record has any.

    Other columns may have any name or none; pandas writes its index so. A name that is not known is no number, mark of
    a split, link or features, and a source's or target's is no text of its column: otherwise the record is a pair.
    """
    cells = [_text(field).strip() for field in fields]
    roles = _roles_by_name(cells)
    known = set().union(*_NAMES.values())
    unknown = [cell for cell in cells if cell and cell.lower() not in known]
    if roles is None:
        return len(others) >= MIN_OTHERS and any(
            _has_letter(cell) and not any(map(_has_letter, _column([each.fields for each in others], at)))
            for at, cell in enumerate(cells)
        )
    if not unknown:
        return True
    for at, role in enumerate(roles):
        texts = {text.strip().lower() for text in _column([each.fields for each in others], at)}
        if role in _PAIR and cells[at].lower() in texts:
            return False
    return all(_kind([cell], 2) == "text" for cell in unknown)


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _common_names(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the names of fields, in the order in which they occur first."""
    names: dict[str, None] = {}
    for each in records:
        names.update(dict.fromkeys(each.names))
    return tuple(names)


def _text(field: Field) -> str:
    return field if isinstance(field, str) else " ".join(field)


def _texts(field: Field) -> tuple[str, ...]:
    return (field,) if isinstance(field, str) else field


def _listed(which: Sequence[str]) -> str:
    word = "" if which and which[0][0] in "'\"" else "column " if len(which) == 1 else "columns "
    return word + (which[0] if len(which) == 1 else f"{', '.join(which[:-1])} and {which[-1]}")
