"""What people report about sequence-to-sequence models, each with its causes, what to measure, and where to go on."""

import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from core.config import PRESET_FOLDER
from core.storage import bounded_yaml
from core.storage.errors import LabError
from core.teaching.attention_lessons.lesson import LessonPart, Link, Name, Text

SYMPTOM_FILE = PRESET_FOLDER / "symptoms" / "symptoms.yaml"
_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


class Table(LessonPart):
    """A table of texts; the last column is code."""

    header: list[Text]
    rows: list[list[Text]]


class Symptom(LessonPart):
    """A question that people ask, and its answer.

    Attributes:
        text: the usual causes and how they differ, in paragraphs with code in backticks.
        measure: what tells the causes apart.
        code: the same for a PyTorch model with ids ``src`` and ``tgt_in``; "" where a line does not do it.
        asked: where the question was asked in public: addresses, or issues as ``owner/name#number``.
    """

    id: Name
    group: Text
    question: Text
    text: Text
    measure: Text
    code: str = ""
    table: Table | None = None
    links: Annotated[list[Link], Field(min_length=1)]
    asked: list[Text]

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Name and address of each place where the question was asked."""
        found = []
        for each in self.asked:
            issue = _ISSUE.fullmatch(each)
            address = f"https://github.com/{issue[1]}/issues/{issue[2]}" if issue else each
            found.append((each.removeprefix("https://"), address))
        return found


@cache
def symptoms(path: Path = SYMPTOM_FILE) -> tuple[Symptom, ...]:
    """Read all symptoms, in the order of the file; LabError if one is invalid."""
    try:
        found = tuple(map(Symptom.model_validate, bounded_yaml.load(path.read_bytes())))
    except (bounded_yaml.BoundedYamlError, ValidationError) as error:
        raise LabError(f"{path.name}: {error}") from error
    if len({each.id for each in found}) < len(found):
        raise LabError(f"{path.name}: two symptoms have the same id")
    return found


def symptoms_in_markdown() -> str:
    """Write all symptoms as a page of the documentation."""
    lines, group = [], ""
    for each in symptoms():
        if each.group != group:
            group = each.group
            lines += [f"## {group}", ""]
        lines += [f"### {each.question}", "", *_wrapped(each.text), ""]
        if each.table:
            lines += _table_in_markdown(each.table)
        lines += [*_wrapped(f"**Measure:** {each.measure}"), ""]
        if each.code:
            lines += ["```python", *each.code.split("\n"), "```", ""]
        shown = "; ".join(f"{link.text}, `{link.href}`" for link in each.links)
        asked = ", ".join(f"[{name}]({address})" for name, address in each.sources)
        lines += [*_wrapped(f"On the page: {shown}." + (f" Asked in {asked}." if asked else "")), ""]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    """Return paragraphs as lines of at most 120 characters."""
    wrapper = textwrap.TextWrapper(width=120, break_long_words=False, break_on_hyphens=False)
    return [line for part in text.strip().split("\n") for line in wrapper.wrap(part) or [""]]


def _table_in_markdown(table: Table) -> list[str]:
    rows = [[*row[:-1], f"`{row[-1]}`"] for row in table.rows]
    lines = [table.header, ["---"] * len(table.header), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]
