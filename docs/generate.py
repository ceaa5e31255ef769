"""Write the generated parts of the documentation: ``python -m docs.generate``.

A generated part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``. A test fails while one is stale.
"""

import argparse
import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from core.__main__ import command_parser
from core.cli import COMMANDS
from core.server.limits import LAPTOP, PUBLIC, Limits
from core.teaching.milestones.table import parts_in_markdown, terms_in_markdown
from core.teaching.symptoms import symptoms_in_markdown
from docs import documents

DOCS = Path(__file__).resolve().parent
REPOSITORY = DOCS.parent
COLAB = DOCS / "colab.ipynb"
ENTRY_POINTS = ("app", "ui", "benchmarks")  # drawn in addition to the packages of core/


def main() -> None:
    """Update every page that has a generated part."""
    for path, text in generated_pages():
        if path.read_text() != text:
            path.write_text(text)
            print(f"updated {path.relative_to(REPOSITORY)}")


def generated_pages() -> Iterator[tuple[Path, str]]:
    """Yield every page with generated parts, and its expected text."""
    parts = {
        REPOSITORY / "README.md": {"badge": badge_in_markdown, "site": site_in_markdown},
        DOCS / "command-line.md": {"commands": commands_in_markdown},
        DOCS / "deployment.md": {"limits": limits_in_markdown},
        documents.PAGE: documents.SECTIONS,
        DOCS / "milestones.md": {"terms": terms_in_markdown, "parts": parts_in_markdown},
        DOCS / "symptoms.md": {"symptoms": symptoms_in_markdown},
        DOCS / "architecture.md": {"drawing": drawing_in_mermaid, "rooms": rooms_in_markdown},
    }
    for path, sections in parts.items():
        text = path.read_text()
        for marker, write in sections.items():
            text = _replaced(text, marker, write)
        yield path, text
    yield COLAB, colab_notebook(COLAB.read_text())


def _replaced(text: str, marker: str, write: Callable[[], str]) -> str:
    pattern = re.compile(rf"(<!-- begin {marker} -->\n).*?(<!-- end {marker} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page lacks the markers of {marker!r}")
    return pattern.sub(lambda match: f"{match[1]}{write()}{match[2]}", text)


# --- the address of this repository -------------------------------------------------------------------------------


def address_of(name: str) -> str:
    """Return an entry of ``[project.urls]`` in pyproject.toml; "" if there is none."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return project.get("urls", {}).get(name, "")


def repository_address() -> str:
    """Return the address where this copy is published; "" if not known."""
    return address_of("Repository").removesuffix(".git").rstrip("/")


def site_in_markdown() -> str:
    """Return a link to the static site; "" if no address is entered."""
    address = address_of("Site")
    return f"**Try it now: [{address}]({address})**\n" if address else ""


def badge_in_markdown() -> str:
    """Return the badge that opens the notebook in Colab; "" if the repository is not on GitHub."""
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", repository_address())
    if not match:
        return ""
    link = f"https://colab.research.google.com/github/{match[1]}/blob/HEAD/{COLAB.relative_to(REPOSITORY).as_posix()}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})\n"


def colab_notebook(text: str) -> str:
    """Return the notebook for Colab with the address to clone from."""
    book = json.loads(text)
    line = f"REPOSITORY = {json.dumps(repository_address())}\n"
    for cell in book["cells"]:
        cell["source"] = [line if each.startswith("REPOSITORY = ") else each for each in cell["source"]]
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


# --- command line -----------------------------------------------------------------------------------------------


def commands_in_markdown() -> str:
    """Return a section for each command: its summary, usage and arguments."""
    sections = []
    for name, summary in COMMANDS.items():
        lines = [f"### `{name}`", "", f"{summary[0].upper()}{summary[1:]}.", ""]
        parser = command_parser(name)
        if subjects := _subcommands(parser):
            for subject, (text, subparser) in subjects.items():
                lines += [f"`{name} {subject}`: {text}.", "", *_arguments(subparser)]
        else:
            lines += _arguments(parser)
        sections.append("\n".join(lines))
    return "\n".join(sections)


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {each.dest: each.help or "" for each in action._get_subactions()}
            return {name: (texts[name], subparser) for name, subparser in action.choices.items()}
    return {}


def _arguments(parser: argparse.ArgumentParser) -> list[str]:
    """Return a table of a parser's arguments; those in a group of their own are below its title."""
    rows = ["| argument | meaning |", "|---|---|"]
    standard = {"positional arguments", "options"}
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.dest != "help"]
        if actions and group.title not in standard:
            rows.append(f"| *{group.title}* | {group.description or ''} |")
        for action in actions:
            required = "; required" if action.required and action.option_strings else ""
            meaning = (action.help or "").replace("|", "\\|").replace("%%", "%")
            rows.append(f"| `{_written(action)}` | {meaning}{required} |")
    return [*rows, ""]


def _written(action: argparse.Action) -> str:
    metavar = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    value = metavar or (f"{{{','.join(action.choices)}}}" if action.choices else action.dest.upper())
    if not action.option_strings:
        return f"[{value}]" if action.nargs == "?" else str(value)
    if action.nargs == 0:
        return action.option_strings[0]
    return f"{action.option_strings[0]} {f'[{value}]' if action.nargs == '?' else value}"


# --- limits -----------------------------------------------------------------------------------------------------


def limits_in_markdown() -> str:
    """Return the table of limits: flag, environment variable, and both sets of defaults."""
    rows = ["| limit | flag | variable | private | `--public` |", "|---|---|---|---|---|"]
    for name, field in Limits.model_fields.items():
        flag, variable = f"--{name.replace('_', '-')}", f"ATTENTION_LAB_{name.upper()}"
        values = [getattr(limits, name) for limits in (LAPTOP, PUBLIC)]
        laptop, public = ("none" if value is None else f"{value:,}" for value in values)
        rows.append(f"| {field.description} | `{flag}` | `{variable}` | {laptop} | {public} |")
    return "\n".join(rows) + "\n"


# --- architecture -----------------------------------------------------------------------------------------------


@cache
def room_imports() -> dict[str, set[str]]:
    """Return the packages that each package imports: the folders of core/, and app, ui and benchmarks."""
    rooms = {path.name for path in (REPOSITORY / "core").iterdir() if any(path.glob("*.py"))}
    imports: dict[str, set[str]] = {}
    for room in sorted(rooms):
        imports[room] = _imported((REPOSITORY / "core" / room).rglob("*.py"), rooms) - {room}
    imports["app"] = _imported([REPOSITORY / "app.py"], rooms)
    for name in ("ui", "benchmarks"):
        imports[name] = _imported((REPOSITORY / name).rglob("*.py"), rooms) - {name}
    return imports


def _imported(files: Iterator[Path] | list[Path], rooms: set[str]) -> set[str]:
    names: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names]
    inside = {part[1] for part in parts if part[0] == "core" and len(part) > 1 and part[1] in rooms}
    return inside | ({part[0] for part in parts} & set(ENTRY_POINTS))


def drawing_in_mermaid() -> str:
    """Return the graph of imports; an arrow that follows from a longer path is left out."""
    imports = room_imports()

    def reached(room: str) -> set[str]:
        return set().union(*({below} | reached(below) for below in imports.get(room, ())))

    lines = ["```mermaid", "flowchart TD"]
    for room in sorted(imports):
        direct = imports[room] - set().union(*(reached(below) for below in imports[room]))
        lines += [f"    {room} --> {below}" for below in sorted(direct)]
    return "\n".join([*lines, "```", ""])


def rooms_in_markdown() -> str:
    """Return a table of the packages of core/, lowest first, with the first line of their docstrings."""
    imports = room_imports()

    def height(room: str) -> int:
        return 1 + max((height(below) for below in imports[room]), default=0)

    rooms = [room for room in imports if room not in ENTRY_POINTS]
    rows = ["| room | what it is |", "|---|---|"]
    for room in sorted(rooms, key=lambda room: (height(room), room)):
        docstring = ast.get_docstring(ast.parse((REPOSITORY / "core" / room / "__init__.py").read_text())) or ""
        first = docstring.split("\n\n")[0].replace("\n", " ").replace("``", "`").replace("|", "\\|")
        rows.append(f"| `core/{room}/` | {first} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
