"""What the class's script calls: what a teacher can send, the link's code, and results that no spreadsheet runs."""

import csv
import io
import math
import shutil
import socket
from collections.abc import Callable
from typing import Any

import pytest

from core.generation import Beam
from core.runs import DEFAULT_ROOT
from core.server.access import Visitor, VisitorRuns
from core.server.classes import Classes
from core.server.limits import PUBLIC
from core.server.ownership import owner_of
from core.server.registry import CLASSES
from core.teaching.attention_lessons import attention_lessons
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for, wait_for_status
from tests.ui.server_functions import call
from ui.components.class_board import PARAMETERS, csv_cell
from ui.components.run_bar import run_bar
from ui.serving.local_addresses import is_loopback, reachable_addresses

TEACHER, STUDENT = (Visitor(owner_of(name)) for name in ("teacher", "student"))
ADDRESS = "https://someone-attention-lab.hf.space/"


class People:
    """The server functions of the bar, called by one visitor after another."""

    def __init__(self, make_runs: Callable[..., Any]) -> None:
        self.all = make_runs(**PUBLIC.model_dump())
        self.asks = TEACHER
        self.runs = VisitorRuns(self.all, lambda: self.asks)
        self.bar = run_bar(self.runs)

    def by(self, visitor: Visitor, name: str, **argument: Any) -> dict[str, Any]:
        self.asks = visitor
        return call(self.bar, f"class_{name}", argument)


@pytest.fixture
def people(make_runs: Callable[..., Any]) -> People:
    """A teacher with an open class, and a student in it."""
    people = People(make_runs)
    assert people.by(TEACHER, "open") == {"role": "teacher"}
    code = people.by(TEACHER, "code", address=ADDRESS)["code"]
    assert people.by(STUDENT, "join", code=code, nickname="@SUM(A1)")["nickname"] == "@SUM(A1)"
    return people


def test_the_code_is_part_of_a_link_to_this_page(people: People):
    about = people.by(TEACHER, "code", address=ADDRESS)
    assert about["link"] == f"{ADDRESS}?class={about['code']}"
    assert about["picture"].startswith("data:image/svg+xml")
    assert "<script" not in about["picture"]
    for bad in ("javascript:alert(1)", f"{ADDRESS}?x=1", f'{ADDRESS}"><script>', "//example.org", "https://a b/"):
        assert "is not the address of a page" in people.by(TEACHER, "code", address=bad)["error"]
    assert "code" not in people.by(STUDENT, "code", address=ADDRESS)


def test_the_link_has_an_address_that_the_room_reaches(people: People, monkeypatch: pytest.MonkeyPatch):
    local = "http://127.0.0.1:7860/"
    monkeypatch.setattr("ui.components.class_board.reachable_addresses", lambda port: ["192.168.1.20", "10.0.0.5"])
    about = people.by(TEACHER, "code", address=local)
    assert about["link"] == f"http://192.168.1.20:7860/?class={about['code']}"
    assert about["addresses"] == ["http://192.168.1.20:7860/", "http://10.0.0.5:7860/"]
    assert not about["local"]
    assert people.by(TEACHER, "code", address=about["addresses"][1])["link"].startswith("http://10.0.0.5:7860/?class=")
    elsewhere = Visitor(TEACHER.owner, network="203.0.113.7")  # learns nothing about this machine
    assert people.by(elsewhere, "code", address=local)["addresses"] == []
    monkeypatch.setattr("ui.components.class_board.reachable_addresses", lambda port: [])
    about = people.by(TEACHER, "code", address=local)
    assert about["local"]
    assert about["link"].startswith(local)
    assert "is not the address of a page" in people.by(TEACHER, "code", address="http://127.0.0.1:99999/")["error"]


def test_only_addresses_that_accept_connections_are_offered():
    with socket.create_server(("127.0.0.1", 0)) as loopback:
        assert reachable_addresses(loopback.getsockname()[1]) == []
    with socket.create_server(("0.0.0.0", 0)) as everywhere:  # noqa: S104 - what --host 0.0.0.0 does
        found = reachable_addresses(everywhere.getsockname()[1])
    assert not any(map(is_loopback, found))
    for host in ("localhost", "127.0.0.1", "127.1.2.3", "[::1]"):
        assert is_loopback(host)
    assert not is_loopback("192.168.1.20")


def test_the_board_and_a_table_show_who_answered_what(people: People):
    first, second = attention_lessons()[:2]
    choice = next(each for each in second.questions if each.choices)
    wrong = next(at for at, each in enumerate(choice.choices) if not each.correct)
    number = next(each for lesson in attention_lessons() for each in lesson.questions if each.number)
    home = next(lesson for lesson in attention_lessons() if number in lesson.questions)
    answers = {f"{second.name}.{choice.id}": wrong, f"{home.name}.{number.id}": number.number.value}
    people.by(STUDENT, "role", lesson=second.name, answers=answers | {"old-lesson.gone": 1, "<b>": 2})
    people.by(TEACHER, "role", lesson=first.name, answers=answers)
    (row,) = people.by(TEACHER, "board")["rows"]
    assert (row["lesson"], row["answers"]) == (second.name, answers)
    head, *lines = csv.reader(io.StringIO(people.by(TEACHER, "answers")["csv"]))
    assert head == ["nickname", "lesson", "question", "answer", "right"]
    assert sorted(lines) == sorted(
        [
            ["'@SUM(A1)", second.title, choice.text, choice.choices[wrong].text, "no"],
            ["'@SUM(A1)", home.title, number.text, f"{number.number.value:g}", "yes"],
        ]
    )
    assert [number.answer_text(given) for given in (1234567.891, 12.0, 3)] == ["1234567.891", "12", "3"]
    shown = people.by(TEACHER, "questions")["lessons"]
    assert [len(each["questions"]) for each in shown] == [len(each.questions) for each in attention_lessons()]
    assert people.by(STUDENT, "answers")["error"] == "you teach no open class"
    people.by(STUDENT, "role", lesson=first.name)  # who forgot them
    assert people.by(TEACHER, "answers")["csv"].splitlines()[1] == "'@SUM(A1),,,,"


@pytest.mark.parametrize(
    "damage", [{"lesson": "<img>"}, {"answers": {"a.b": "1"}}, {"answers": {"a.b": math.nan}}, {"answers": {"a.b": []}}]
)
def test_only_numbers_are_answers(people: People, damage: dict[str, Any]):
    assert people.by(STUDENT, "role", **damage)["error"]
    assert people.by(TEACHER, "board")["rows"][0]["answers"] == {}


def test_answers_survive_a_restart(people: People, make_runs: Callable[..., Any]):
    lesson = attention_lessons()[0]
    answers = {f"{lesson.name}.{lesson.questions[0].id}": 1}
    people.by(STUDENT, "role", lesson=lesson.name, answers=answers)
    again = Classes(people.all.root / CLASSES, PUBLIC)
    (student,) = again.taught_by(TEACHER.owner).students
    assert (student.lesson, student.answers) == (lesson.name, answers)


def test_a_run_says_whose_it_is(people: People, tiny):
    people.asks = STUDENT
    run = people.runs.start(tiny)
    wait_for_status(people.all, run, "finished")
    assert call(people.bar, "feed", {"run": run})["student"] == ""
    people.asks = TEACHER
    assert call(people.bar, "feed", {"run": run})["student"] == "@SUM(A1)"


def test_a_private_run_is_named_by_its_title(people: People, tiny):
    people.asks = TEACHER
    run = people.runs.start(tiny)
    message = people.by(TEACHER, "send", parameters={"run": run})["error"]
    assert message.startswith(f"“{people.all[run].title}” is not shared; choose “Share by link”")
    assert run not in message
    people.asks = STUDENT
    other = people.runs.start(tiny)
    message = people.by(TEACHER, "send", parameters={"run": other})["error"]
    assert message == "link: it names a run that your students may not see; send a shared or a shipped run"
    wait_for(lambda: not people.all.active())


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        ({"__theme": "dark"}, "is not a parameter of this page's address"),
        ({"class": "ABCD2345"}, "is not a parameter of this page's address"),
        ({"onload": "x"}, "is not a parameter of this page's address"),
        ({"preset": "../../etc/passwd"}, "is not one of the presets"),
        ({"tab": "lessons", "lesson": "zzz"}, "link: lesson='zzz' is not one of the lessons"),
        ({"tab": "zzz"}, "link: tab='zzz' is not one of the tabs"),
        ({"run": "somebodys-run"}, "may not see"),
        ({"input": "x" * 2_001}, "the maximum is 2,000"),
        ({"input": "a\x00"}, "U+0000"),
        ({}, "at least 1"),
    ],
)
def test_only_parameters_of_this_page_are_sent(people: People, parameters: dict[str, str], rule: str):
    assert rule in people.by(TEACHER, "send", parameters=parameters)["error"]
    assert people.by(STUDENT, "role")["handout"] is None


def test_a_link_to_a_head_that_the_run_lacks_is_not_sent(people: People):
    shutil.copytree(DEFAULT_ROOT / SHIPPED, people.all.root / SHIPPED)
    link = {"tab": "attention", "run": SHIPPED, "block": "cross", "layer": "9", "head": "77"}
    assert "which has 2 layers of 4 heads in block cross" in people.by(TEACHER, "send", parameters=link)["error"]
    assert people.by(TEACHER, "send", parameters=link | {"layer": "2", "head": "4"}) == {"sent": True}


def test_students_get_what_was_sent_as_it_was_sent(people: People):
    sent = {"tab": "decode", "input": "<b>4 8</b>", "strategy": "beam", "beam_size": "4"}
    assert people.by(TEACHER, "send", parameters=sent) == {"sent": True}
    assert people.by(STUDENT, "role")["handout"]["parameters"] == sent
    assert people.by(STUDENT, "send", parameters=sent)["error"] == "you teach no open class"
    assert Beam.model_fields.keys() - {"kind"} <= PARAMETERS


def test_results_have_a_line_for_each_run_and_no_formula(people: People, tiny):
    people.asks = STUDENT
    name = people.runs.start(tiny.with_changes({"training.steps": 20, "training.evaluate_every": 20}))
    wait_for_status(people.all, name, "finished")
    wait_for(lambda: not people.all.active())
    people.runs.rename(name, "=cmd|' /C calc'!A1")
    head, line = csv.reader(io.StringIO(people.by(TEACHER, "results")["csv"]))
    row = dict(zip(head, line, strict=True))
    assert (row["nickname"], row["run"]) == ("'@SUM(A1)", "'=cmd|' /C calc'!A1")
    assert (row["status"], row["step"], row["steps"]) == ("finished", "20", "20")
    people.asks = STUDENT
    people.runs.delete(name)
    assert people.by(TEACHER, "results")["csv"].splitlines()[1].strip(",") == "'@SUM(A1)"
    assert people.by(STUDENT, "results")["error"] == "you teach no open class"


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "  =1", "\t=1"])
def test_a_cell_that_begins_like_a_formula_is_text(text: str):
    assert csv_cell(text) == f"'{text}"
    assert [csv_cell(each) for each in ("a=1", -1, None, "")] == ["a=1", -1, None, ""]


def test_a_single_user_is_told_how_to_have_a_class(make_runs: Callable[..., Any]):
    answer = call(run_bar(VisitorRuns(make_runs())), "class_open", {})
    assert "python app.py --host 0.0.0.0 --public" in answer["error"]
