"""A class: the student's line under the bar, and the teacher's board. Its script is loaded when it is first opened."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

import segno
from pydantic import Field, FiniteFloat

from core.config import preset_names
from core.generation import Beam, Greedy, Sample
from core.runs import RunError
from core.server.access import VisitorRuns
from core.server.classes import MAX_HOURS
from core.server.classroom import RESULT_COLUMNS, BoardRow
from core.server.stored_class import LESSON_PATTERN, MAX_ANSWERS, MAX_PARAMETERS, MAX_VALUE
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.teaching.attention_lessons import attention_lessons
from ui.components.component import Request, ServerFunction, validated
from ui.link_values import problems_of_link
from ui.run_info import can_open
from ui.serving.local_addresses import is_loopback, reachable_addresses

MAX_NUMBERS = 200  # of students and of those who wait
ANSWER_COLUMNS = ("nickname", "lesson", "question", "answer", "right")
MAX_ADDRESS = 200  # characters of the page's address
# Parameters of the page's address that a teacher can send; not its theme, nor a class
_OPENED = {"tab", "preset", "run", "input", "compare", "lesson", "ablate", "ablate_with", "pattern"}
_SELECTED = {"view", "block", "layer", "head", "row", "column", "part", "by", "fixed_input", "step"}
_STRATEGY = {field for kind in (Greedy, Beam, Sample) for field in kind.model_fields} - {"kind"}
PARAMETERS = _OPENED | _SELECTED | _STRATEGY | {"strategy", "prefix"}
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+(?:/[A-Za-z0-9._~%/-]*)?")
_FORMULA = re.compile(r"\s*[=+\-@\t\r]")


class RoleRequest(Request):
    """A request for the visitor's role, with what a student's page says about lessons."""

    lesson: str = Field(default="", pattern=f"^({LESSON_PATTERN})?$")
    answers: dict[str, FiniteFloat] = Field(default={}, max_length=MAX_ANSWERS)


class CodeRequest(Request):
    """A request for the code of the visitor's class, as a link to this address of the page."""

    address: str = Field(max_length=MAX_ADDRESS)


class JoinRequest(Request):
    """A request to join a class."""

    code: str = Field(max_length=40)
    nickname: str = Field(max_length=200)


class HelpRequest(Request):
    """A request for help, or to take it back."""

    wanted: bool


class StudentRequest(Request):
    """A request about one student of the visitor's class."""

    number: int = Field(ge=1)


class StudentsRequest(Request):
    """A request about several students, or several who wait to be let in."""

    numbers: list[int] = Field(min_length=1, max_length=MAX_NUMBERS)


class DoorRequest(Request):
    """A request to let students in by the code, to let them ask, or to let nobody in."""

    door: str = Field(max_length=20)


class SendRequest(Request):
    """A request to send parameters of the page's address to all students."""

    parameters: dict[str, str] = Field(max_length=MAX_PARAMETERS)


def class_functions(runs: VisitorRuns) -> Mapping[str, ServerFunction]:
    """Return the server functions of the script, which the bar adds to its own."""
    return {
        "class_role": validated(RoleRequest, partial(visit, runs)),
        "class_open": validated(Request, lambda _: open_class(runs)),
        "class_code": validated(CodeRequest, partial(code, runs)),
        "class_end": validated(Request, lambda _: end(runs)),
        "class_board": validated(Request, lambda _: board(runs)),
        "class_send": validated(SendRequest, partial(send, runs)),
        "class_helped": validated(StudentRequest, partial(helped, runs)),
        "class_stop": validated(StudentRequest, partial(stop, runs)),
        "class_remove": validated(StudentsRequest, partial(remove, runs)),
        "class_admit": validated(StudentsRequest, partial(admit, runs)),
        "class_door": validated(DoorRequest, partial(set_door, runs)),
        "class_new_code": validated(CodeRequest, partial(change_code, runs)),
        "class_results": validated(Request, lambda _: results(runs)),
        "class_answers": validated(Request, lambda _: answers(runs)),
        "class_questions": validated(Request, lambda _: questions()),
        "class_join": validated(JoinRequest, partial(join, runs)),
        "class_leave": validated(Request, lambda _: leave(runs)),
        "class_help": validated(HelpRequest, partial(ask_for_help, runs)),
    }


def visit(runs: VisitorRuns, request: RoleRequest) -> dict[str, Any]:
    """Return ``role``, after noting what a student's page says about lessons."""
    known = {f"{lesson.name}.{each.id}" for lesson in attention_lessons() for each in lesson.questions}
    answers = {key: given for key, given in request.answers.items() if key in known}  # a browser keeps old ones
    runs.classroom().note_lesson(request.lesson, answers)
    return role(runs)


def nickname_of(runs: VisitorRuns, run: str) -> str:
    """Return the nickname of the student who trained a run, for the teacher of their class; "" for everyone else."""
    if not runs.has_visitors:
        return ""
    with suppress(RunError):  # the visitor has no cookie yet
        return runs.classroom().student_of(run)
    return ""


def role(runs: VisitorRuns) -> dict[str, Any]:
    """Return whether the visitor teaches a class, attends one or waits for one, and what a student's page shows."""
    classroom = runs.classroom()
    seat = classroom.seat()
    if seat is not None:
        handout = seat.handout and seat.handout.model_dump() | {"key": f"{seat.class_id} {seat.handout.number}"}
        return {"role": "student", "nickname": seat.nickname, "help": seat.asks_for_help, "handout": handout}
    if nickname := classroom.waits_as():
        return {"role": "waiting", "nickname": nickname}
    if classroom.taught is not None:
        return {"role": "teacher"}
    return {"role": "none", "hours": runs.limits.class_hours, "most_hours": MAX_HOURS}


# ---- the teacher


def open_class(runs: VisitorRuns) -> dict[str, Any]:
    """Open a class."""
    runs.classroom().open()
    return role(runs)


def code(runs: VisitorRuns, request: CodeRequest) -> dict[str, Any]:
    """Return the code of the visitor's class, its link, its QR code as the address of a picture, and the presets.

    If the page was opened on the machine that serves it, ``addresses`` are those at which others may reach it, and the
    link has the first of them instead of a loopback address. ``local`` is whether only this machine opens the link.

    Raises:
        InputError: the address is not that of a page.
    """
    page, port = _parsed(request.address)
    classroom = runs.classroom()
    taught = classroom.taught
    if taught is None:
        return role(runs)
    found = reachable_addresses(port or {"http": 80, "https": 443}[page.scheme]) if classroom.is_on_this_machine else []
    reach = [page._replace(netloc=f"{each}:{port}" if port else each) for each in found]
    if is_loopback(page.hostname or "") and reach:
        page = reach[0]
    link = f"{page.geturl()}?class={taught.code}"
    picture = segno.make(link, error="m", micro=False).svg_data_uri(scale=4, border=2, light="white")
    about = {"code": taught.code, "link": link, "picture": picture, "presets": preset_names()}
    addresses = [each.geturl() for each in reach]
    return about | {"address": page.geturl(), "addresses": addresses, "local": is_loopback(page.hostname or "")}


def _parsed(address: str) -> tuple[SplitResult, int | None]:
    """Return the address of a page and its port, if it has one; InputError if it is none."""
    try:
        page = urlsplit(address)
        if _ADDRESS.fullmatch(address) and page.hostname:
            return page, page.port
    except ValueError:  # a port above 65535, or half a bracket
        pass
    raise InputError(f"address={short_repr(address)} is not the address of a page")


def end(runs: VisitorRuns) -> dict[str, Any]:
    """End the class."""
    runs.classroom().end()
    return role(runs)


def board(runs: VisitorRuns) -> dict[str, Any]:
    """Return the board."""
    classroom = runs.classroom()
    rows = [_row(each) for each in classroom.board()]
    taught = classroom.taught
    waiting = [] if taught is None else [each.model_dump(include={"number", "nickname"}) for each in taught.applicants]
    door = "open" if taught is None else taught.door
    return {"rows": rows, "max": runs.limits.max_students, "waiting": waiting, "door": door}


def _row(row: BoardRow) -> dict[str, Any]:
    headline = [figure.model_dump() for figure in row.headline]
    return asdict(row) | {"headline": headline, "needs_help": row.needs_help}


def send(runs: VisitorRuns, request: SendRequest) -> dict[str, Any]:
    """Send parameters of the page's address to all students.

    Raises:
        InputError: a parameter is not one of the page's address, or names what is not there.
    """
    if unknown := sorted(request.parameters.keys() - PARAMETERS):
        raise InputError(f"link: {short_repr(unknown[0], 30)} is not a parameter of this page's address")
    for name, value in request.parameters.items():
        if len(value) > MAX_VALUE:
            raise InputError(f"link: {name} has {len(value):,} characters; the maximum is {MAX_VALUE:,}")
    named = request.parameters.get("run")
    run = named if named and can_open(runs, named) else None
    if problems := problems_of_link(runs, request.parameters, run):
        raise InputError(f"link: {'; '.join(problems.values())}")
    runs.classroom().send(request.parameters)
    return {"sent": True}


def helped(runs: VisitorRuns, request: StudentRequest) -> dict[str, Any]:
    """Note that a student was helped; return the board."""
    runs.classroom().answer_help(request.number)
    return board(runs)


def stop(runs: VisitorRuns, request: StudentRequest) -> dict[str, Any]:
    """Stop and save what a student trains or has queued; return the board."""
    runs.classroom().stop(request.number)
    return board(runs)


def remove(runs: VisitorRuns, request: StudentsRequest) -> dict[str, Any]:
    """Remove students, or turn away those who wait; return the board."""
    runs.classroom().remove(request.numbers)
    return board(runs)


def admit(runs: VisitorRuns, request: StudentsRequest) -> dict[str, Any]:
    """Let those who wait in; return the board."""
    runs.classroom().admit(request.numbers)
    return board(runs)


def set_door(runs: VisitorRuns, request: DoorRequest) -> dict[str, Any]:
    """Decide what the code does; return the board."""
    runs.classroom().set_door(request.door)
    return board(runs)


def change_code(runs: VisitorRuns, request: CodeRequest) -> dict[str, Any]:
    """Give the class another code, and return what ``code`` returns."""
    runs.classroom().change_code()
    return code(runs, request)


def results(runs: VisitorRuns) -> dict[str, Any]:
    """Return the runs of all students as CSV."""
    return {"csv": _csv(RESULT_COLUMNS, runs.classroom().results())}


def answers(runs: VisitorRuns) -> dict[str, Any]:
    """Return what all students answered as CSV: a row for each answer, and one for each student without any."""
    rows: list[tuple[Any, ...]] = []
    for student in sorted(runs.classroom().board(), key=lambda row: row.number):
        before = len(rows)
        for lesson in attention_lessons():
            for each in lesson.questions:
                if (given := student.answers.get(f"{lesson.name}.{each.id}")) is not None:
                    right = "yes" if each.is_right(given) else "no"
                    rows.append((student.nickname, lesson.title, each.text, each.answer_text(given), right))
        if len(rows) == before:
            rows.append((student.nickname, *[None] * (len(ANSWER_COLUMNS) - 1)))
    return {"csv": _csv(ANSWER_COLUMNS, rows)}


def questions() -> dict[str, Any]:
    """Return the lessons' questions with their answers, for the board."""
    return {
        "lessons": [
            {"name": each.name, "title": each.title, "questions": [one.model_dump() for one in each.questions]}
            for each in attention_lessons()
        ]
    }


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(columns)
    writer.writerows([[csv_cell(each) for each in row] for row in rows])
    return written.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a cell; text that a spreadsheet would run as a formula starts with an apostrophe instead."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


# ---- the students


def join(runs: VisitorRuns, request: JoinRequest) -> dict[str, Any]:
    """Join a class."""
    runs.classroom().join(request.code, request.nickname)
    return role(runs)


def leave(runs: VisitorRuns) -> dict[str, Any]:
    """Leave the class."""
    runs.classroom().leave()
    return role(runs)


def ask_for_help(runs: VisitorRuns, request: HelpRequest) -> dict[str, Any]:
    """Ask the teacher for help, or no longer."""
    runs.classroom().ask_for_help(request.wanted)
    return role(runs)
