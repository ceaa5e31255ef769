"""The table ``documents.tsv``: what the source documents require and claim, checked; and the page made from it.

A row has eight cells; ``Row`` describes them. ``problems`` names every cell that breaks a rule, ``python -m
docs.generate`` writes the page.
"""

import ast
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import astuple, dataclass, fields
from functools import cache
from io import StringIO
from itertools import groupby
from pathlib import Path

from core.__main__ import command_parser
from core.cli import COMMANDS
from core.cli.arguments import preset_from
from core.config import preset_names
from core.storage.errors import LabError

REPOSITORY = Path(__file__).resolve().parents[1]
TABLE, PAGE = REPOSITORY / "docs/documents.tsv", REPOSITORY / "docs/documents.md"
DOCUMENTS = (
    "project card",
    "digits, first telling",
    "digits, second telling",
    "numbers",
    "words",
    "design document",
)
REQUIREMENT_STATES = ("works", "differs", "out of scope")
CLAIM_STATES = ("holds", "partly holds", "does not hold", "not compared", "error")
CLAIMS = "claims"  # the part of rows that claim something and require nothing
SEPARATOR = "; "  # between what a row is shown by
_LINES = r"\d+(?:–\d+)?(?:, \d+(?:–\d+)?)*"
_WHERE = re.compile(rf"–|(?:(?:{'|'.join(DOCUMENTS)}) )?{_LINES}(?:; (?:(?:{'|'.join(DOCUMENTS)}) )?{_LINES})*")


@dataclass(frozen=True)
class Row:
    """One row of the table, all cells as text.

    Attributes:
        id: a number, or C and a number for a claim; it never changes.
        document: one of ``DOCUMENTS``.
        part: of the document, "" if it has none; "claims" for claims.
        lines: line numbers of the document; those of other documents after their name, such as "5; words 600".
        text: the requirement or the claim.
        state: one of ``REQUIREMENT_STATES`` or, for a claim, of ``CLAIM_STATES``. "error" is a mistake or a
            contradiction in the documents.
        explanation: what differs and why, or what was computed here; "" for what works as required.
        shown_by: tests, presets, commands and files, separated by "; ".
    """

    id: str
    document: str
    part: str
    lines: str
    text: str
    state: str
    explanation: str
    shown_by: str

    @property
    def is_claim(self) -> bool:
        """Whether the row claims something, and requires nothing."""
        return self.part == CLAIMS

    @property
    def items(self) -> list[str]:
        """What the row is shown by."""
        return self.shown_by.split(SEPARATOR)


HEADER = [field.name.replace("_", " ") for field in fields(Row)]


def read_rows(path: Path = TABLE) -> list[Row]:
    """Read the table.

    Raises:
        ValueError: the header is another one, or a row has not eight cells; it names the line.
    """
    header, *lines = path.read_text().splitlines()
    if header.split("\t") != HEADER:
        raise ValueError(f"{path.name}, line 1: the header must be {HEADER}, not {header.split(chr(9))}")
    rows = []
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        if len(cells) != len(HEADER):
            raise ValueError(f"{path.name}, line {number}: {len(cells)} cells must be {len(HEADER)}: {line[:80]}")
        rows.append(Row(*cells))
    return rows


# --- the rules ----------------------------------------------------------------------------------------------------


def problems(rows: list[Row]) -> list[str]:
    """Return a sentence for every cell that breaks a rule; [] for a table as it must be."""
    counts = Counter(row.id for row in rows)
    found = [f"row {each}: the id occurs {count} times" for each, count in counts.items() if count > 1]
    parts = [part for part, _ in groupby((row.document, row.part) for row in rows if not row.is_claim)]
    found += [f"{name}: its rows must follow each other" for name, count in Counter(parts).items() if count > 1]
    return found + [f"row {row.id}: {problem}" for row in rows for problem in _problems(row)]


def _problems(row: Row) -> Iterator[str]:
    states = CLAIM_STATES if row.is_claim else REQUIREMENT_STATES
    rules = {
        f"id={row.id!r} must be a number, after a C for a claim": re.fullmatch(rf"{'C' * row.is_claim}\d+", row.id),
        f"document={row.document!r} must be one of {DOCUMENTS}": row.document in DOCUMENTS,
        f"state={row.state!r} must be one of {states}": row.state in states,
        f"lines={row.lines!r} must be line numbers, of other documents after their name": _WHERE.fullmatch(row.lines),
        f"state={row.state!r} needs an explanation": row.explanation or row.state == "works",
        "shown by must name a test, a preset, a command or a file": row.shown_by,
    }
    yield from (problem for problem, is_kept in rules.items() if not is_kept)
    for name, cell in zip(HEADER, astuple(row), strict=True):
        if '"' in cell or cell != cell.strip():
            yield f"{name}={cell!r} must have no double quotes and no spaces around it"
    for item in filter(None, row.items):
        if problem := problem_of(item):
            yield f"shown by {item!r}: {problem}"


def problem_of(item: str) -> str:
    """Return what is wrong with something that a row is shown by; "" if it exists."""
    if match := re.fullmatch(r"(tests/[\w/]+\.py)::(\w+)", item):
        return "" if match[2] in _functions(match[1]) else "there is no such test"
    if item.startswith("preset "):
        return "" if item.removeprefix("preset ") in preset_names() else "there is no such preset"
    words = shlex.split(item)
    if words[:3] == ["python", "-m", "core"]:
        return problem_of_command(words[3:])
    if words[0] == "pytest":
        return problem_of_pytest(words)
    path, _, anchor = item.partition("#")
    if not (REPOSITORY / path).exists():
        return "there is no such file"
    return "" if not anchor or anchor in anchors(REPOSITORY / path) else "the page has no such heading"


def problem_of_command(words: list[str]) -> str:
    """Return what is wrong with the arguments of ``python -m core``; "" if they are valid."""
    if words[0] not in COMMANDS:
        return "there is no such command"
    errors = StringIO()
    try:
        with redirect_stderr(errors):  # argparse prints what is wrong and exits
            options = command_parser(words[0]).parse_args(words[1:])
        if getattr(options, "preset", None):
            preset_from(options)
    except SystemExit:
        return errors.getvalue().splitlines()[-1]
    except LabError as error:
        return str(error)
    return ""


def problem_of_pytest(words: list[str]) -> str:
    """Return what is wrong with a pytest command: a path, or an expression of ``-k`` in the name of no test."""
    missing = [word for word in words if "/" in word and not (REPOSITORY / word).exists()]
    if missing:
        return f"there is no {missing[0]}"
    expression = words[words.index("-k") + 1] if "-k" in words else ""
    return "" if any(expression in name for name in names_of_tests()) else f"no test has {expression!r} in its name"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def _functions(path: str) -> set[str]:
    if not (REPOSITORY / path).exists():
        return set()
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def names_of_tests() -> set[str]:
    """Return the names of all test functions."""
    files = (REPOSITORY / "tests").rglob("test_*.py")
    return {name for path in files for name in re.findall(r"^def (\w+)", path.read_text(), re.MULTILINE)}


# --- the page -----------------------------------------------------------------------------------------------------


def counts_in_markdown() -> str:
    """Return two tables: the number of requirements by document and state, and that of claims by state."""
    rows = read_rows()
    states = REQUIREMENT_STATES
    lines = [f"| requirements | {' | '.join(states)} |", f"|---|{'---|' * len(states)}"]
    for document in (*DOCUMENTS, ""):
        of = Counter(row.state for row in rows if not row.is_claim and document in ("", row.document))
        lines.append(f"| {document or '**all**'} | {' | '.join(str(of[state]) for state in states)} |")
    claims = Counter(row.state for row in rows if row.is_claim)
    lines += ["", f"| claims | {' | '.join(CLAIM_STATES[:-1])} | errors and contradictions |", f"|---|{'---|' * 5}"]
    lines.append(f"| **all** | {' | '.join(str(claims[state]) for state in CLAIM_STATES)} |")
    return "\n".join(lines) + "\n"


def requirements_in_markdown() -> str:
    """Return a table for each part of a document: the requirements that differ or are out of scope."""
    rows = [row for row in read_rows() if not row.is_claim and row.state != "works"]
    sections = []
    for (document, part), of_part in groupby(rows, key=lambda row: (row.document, row.part)):
        title = document.capitalize() + (f": {part}" if part else "")
        lines = [f"### {title}", "", "| | asked for | lines | state |", "|---|---|---|---|"]
        lines += [
            f"| {row.id} | {_cell(row.text)} | {row.lines} | {row.state}: {_cell(row.explanation)} |" for row in of_part
        ]
        sections.append("\n".join(lines))
    return "\n\n".join(sections) + "\n"


def claims_in_markdown() -> str:
    """Return a table of the claims that do not hold or hold in part."""
    return _claims(lambda row: row.state not in ("holds", "error"))


def errors_in_markdown() -> str:
    """Return a table of the errors and contradictions in the documents."""
    return _claims(lambda row: row.state == "error")


def _claims(is_shown: Callable[[Row], bool]) -> str:
    lines = ["| | the documents | where | computed or measured here |", "|---|---|---|---|"]
    for row in read_rows():
        if row.is_claim and is_shown(row):
            links = ", ".join(f"[results]({item.removeprefix('docs/')})" for item in row.items if "results.md#" in item)
            found = _cell(row.explanation) + (f" ({links})" if links else "")
            lines.append(f"| {row.id} | {_cell(row.text)} | {row.document} {row.lines} | {found} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


SECTIONS = {
    "counts": counts_in_markdown,
    "requirements": requirements_in_markdown,
    "claims": claims_in_markdown,
    "errors": errors_in_markdown,
}
"""The generated parts of the page, by the names of their markers."""
