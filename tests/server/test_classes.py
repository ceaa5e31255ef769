"""Classes: who may join, how many there are, what is stored, and that a teacher reads the runs of their class only."""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest

from core.__main__ import main
from core.config import Preset
from core.runs import RunError
from core.server import Runs
from core.server.access import ACTIVE_PER_STUDENT, Visitor, VisitorRuns
from core.server.classes import MAX_HOURS, ClassError, Classes
from core.server.classroom import BY_TEACHER
from core.server.limits import PUBLIC
from core.server.ownership import owner_of
from core.server.registry import AFTER_CLASS
from core.server.stored_class import MAX_APPLICANTS, Class
from core.server.waiting_times import starting_times
from core.server.wrong_codes import MAX_WRONG_CODES, WRONG_CODE_SECONDS
from core.storage.errors import InputError
from tests.support.run_helpers import LONG_TRAINING, wait_for, wait_for_status

SCHOOL = "203.0.113.7"
SEATS = 8
TEACHER, ANNA, BEN, STRANGER = (Visitor(owner_of(name), network=SCHOOL) for name in ("teacher", "anna", "ben", "else"))
BRIEF = {"training.steps": 60, "training.evaluate_every": 30}
HOSTILE = ("", " ", "a" * 31, "a\nb", "a\u202eb", "\u200b", "a\x00", "\ud800", "a\u2028b")
HARMLESS = ("<img src=x onerror=alert(1)>", "=HYPERLINK(1)", "'; DROP TABLE", "Zoë 🙂", "مريم")


class Clock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def classes(tmp_path: Path, clock: Clock) -> Classes:
    return Classes(tmp_path / ".classes", PUBLIC.model_copy(update={"max_students": 3}), clock=clock)


def owner(name: str) -> str:
    return owner_of(name)


def join(classes: Classes, name: str, opened: Class, network: str = SCHOOL) -> None:
    classes.join(owner(name), network, opened.code, name)


def refused(action, *arguments) -> str:
    with pytest.raises((ClassError, InputError)) as refusal:
        action(*arguments)
    return str(refusal.value)


# ---- classes alone


def test_a_code_is_typed_in_any_case_and_with_spaces(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    typed = f" {opened.code[:4].lower()}-{opened.code[4:]} "
    classes.join(owner("anna"), SCHOOL, typed, "  Anna ")
    assert [each.nickname for each in classes.taught_by(owner("teacher")).students] == ["Anna"]


def test_wrong_codes_of_a_network_make_its_students_wait_for_the_teacher_and_keep_nobody_out(
    classes: Classes, clock: Clock
):
    opened = classes.open(owner("teacher"), SCHOOL)
    wrong = "2" * 8 if opened.code != "2" * 8 else "3" * 8
    for number in range(MAX_WRONG_CODES + 1):
        assert "no class is open with the code" in refused(classes.join, owner(f"g{number}"), SCHOOL, wrong, "G")
    join(classes, "anna", opened)
    assert classes.attended_by(owner("anna")) is None
    assert [each.nickname for each in classes.applied_to(owner("anna")).applicants] == ["anna"]
    classes.admit(owner("teacher"), [1])
    assert classes.attended_by(owner("anna")).student(owner("anna")).nickname == "anna"
    join(classes, "ben", opened, "198.51.100.1")  # another network is not affected
    assert classes.attended_by(owner("ben")) is not None
    clock.now += WRONG_CODE_SECONDS + 1
    join(classes, "cem", opened)
    assert classes.attended_by(owner("cem")) is not None


def test_a_locked_class_lets_nobody_in_and_its_students_stay(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    join(classes, "anna", opened)
    classes.set_door(owner("teacher"), "locked")
    assert refused(join, classes, "ben", opened) == "the class is locked: its teacher lets nobody else in"
    join(classes, "anna", opened)  # with another nickname, for example
    assert "is not one of open, approval, locked" in refused(classes.set_door, owner("teacher"), "ajar")
    assert refused(classes.set_door, owner("anna"), "open") == "you teach no open class"


def test_a_teacher_admits_turns_away_and_keeps_the_seats_from_a_program(classes: Classes, clock: Clock, tmp_path: Path):
    """The attack: one program takes every seat; the teacher changes the code, removes all, and admits."""
    opened = classes.open(owner("teacher"), SCHOOL)
    for number in range(3):
        join(classes, f"fake{number}", opened)
    assert "has 3 students" in refused(join, classes, "anna", opened)
    classes.remove(owner("teacher"), [1, 2, 3])
    classes.set_door(owner("teacher"), "approval")
    classes.change_code(owner("teacher"))
    assert "no class is open with the code" in refused(join, classes, "fake4", opened)
    opened = classes.taught_by(owner("teacher"))
    for name in ("anna", "fake5", "ben"):
        join(classes, name, opened)
    assert "is taken" in refused(classes.join, owner("fake6"), SCHOOL, opened.code, "Anna")
    again = Classes(tmp_path / ".classes", PUBLIC, clock=clock)  # who waits, waits after a restart
    assert again.applied_to(owner("ben")) is not None
    anna, fake, ben = classes.taught_by(owner("teacher")).applicants
    classes.admit(owner("teacher"), [anna.number, ben.number])
    classes.remove(owner("teacher"), [fake.number])
    assert [each.nickname for each in classes.taught_by(owner("teacher")).students] == ["anna", "ben"]
    assert classes.applied_to(owner("fake5")) is None
    join(classes, "cem", opened)
    classes.leave(owner("cem"))
    assert classes.taught_by(owner("teacher")).applicants == ()
    for number in range(MAX_APPLICANTS):
        join(classes, f"g{number}", opened)
    assert "which is the limit" in refused(join, classes, "late", opened)
    everybody = [each.number for each in classes.taught_by(owner("teacher")).applicants]
    assert "admit fewer" in refused(classes.admit, owner("teacher"), everybody)


def test_two_networks_do_not_hold_all_classes(classes: Classes):
    for number in range(2):
        network = f"198.51.100.{number}"
        classes.open(owner(f"first{number}"), network)
        with suppress(ClassError):
            classes.open(owner(f"second{number}"), network)
    assert classes.open(owner("teacher"), SCHOOL).code


def test_a_customer_with_256_networks_of_ipv6_opens_two_classes_and_guesses_no_codes(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    classes.open(owner("a"), "2001:db8:1:100::/56")
    assert "of your network" in refused(classes.open, owner("b"), "2001:db8:1:200::/56")
    wrong = "2" * 8 if opened.code != "2" * 8 else "3" * 8
    for number in range(MAX_WRONG_CODES):
        refused(classes.join, owner(f"g{number}"), f"2001:db8:1:{number:02x}00::/56", wrong, "G")
    join(classes, "guesser", opened, "2001:db8:1:ff00::/56")
    assert classes.attended_by(owner("guesser")) is None


def test_the_operator_lists_and_closes_classes(classes: Classes, tmp_path: Path, capsys):
    opened = classes.open(owner("teacher"), SCHOOL)
    join(classes, "anna", opened)
    command = ["--checkpoints", str(tmp_path), "classes"]
    assert main(command) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["id", "open", "for"]
    assert row.startswith(opened.id)
    assert opened.code in row
    assert main([*command, "--close", "0" * 16]) == 2
    assert "is not the id of an open class" in capsys.readouterr().err
    assert main([*command, "--close", opened.id]) == 0
    assert capsys.readouterr().out == f"closed class {opened.id}\nno class is open\n"
    assert classes.taught_by(owner("teacher")) is None
    assert classes.attended_by(owner("anna")) is None
    classes.expire()
    assert refused(join, classes, "ben", opened).startswith("no class is open with the code")


@pytest.mark.parametrize("nickname", ["Аna", "Anа", "Αna", "\u3164", "Anna\u3164", "A\u115fnna", "\u2800"])
def test_nicknames_with_foreign_or_invisible_letters_are_refused(classes: Classes, nickname: str):
    opened = classes.open(owner("teacher"), SCHOOL)
    message = refused(classes.join, owner("x"), SCHOOL, opened.code, nickname)
    assert "look alike" in message or "invisible" in message


def test_a_nickname_in_another_alphabet_is_taken_if_it_looks_like_one(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    classes.join(owner("sara"), SCHOOL, opened.code, "CAPA")
    assert "is taken" in refused(classes.join, owner("x"), SCHOOL, opened.code, "САРА")  # Cyrillic
    classes.join(owner("аня"), SCHOOL, opened.code, "Аня")
    classes.join(owner("αννα"), SCHOOL, opened.code, "Άννα")


@pytest.mark.parametrize("nickname", HOSTILE)
def test_hostile_nicknames_are_refused(classes: Classes, nickname: str):
    opened = classes.open(owner("teacher"), SCHOOL)
    assert refused(classes.join, owner("anna"), SCHOOL, opened.code, nickname).startswith("nickname ")
    assert classes.taught_by(owner("teacher")).students == ()


@pytest.mark.parametrize("nickname", HARMLESS)
def test_text_that_looks_like_markup_is_kept_as_text(classes: Classes, tmp_path: Path, clock: Clock, nickname: str):
    opened = classes.open(owner("teacher"), SCHOOL)
    classes.join(owner("anna"), SCHOOL, opened.code, nickname)
    again = Classes(tmp_path / ".classes", PUBLIC, clock=clock)
    assert again.taught_by(owner("teacher")).students[0].nickname == nickname


def test_nicknames_differ_and_the_same_browser_is_the_same_student(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    join(classes, "anna", opened)
    assert "is taken" in refused(classes.join, owner("ben"), SCHOOL, opened.code, "ＡNNA")
    classes.add_run(owner("anna"), "tiny-1")
    classes.join(owner("anna"), SCHOOL, opened.code, "Anna B.")
    (student,) = classes.taught_by(owner("teacher")).students
    assert (student.nickname, student.runs) == ("Anna B.", ("tiny-1",))


def test_students_classes_and_those_of_a_network_are_limited(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    for name in ("anna", "ben", "cem"):
        join(classes, name, opened)
    assert "has 3 students" in refused(join, classes, "dora", opened)
    assert classes.open(owner("teacher"), SCHOOL).id == opened.id  # a second press opens no second class
    classes.open(owner("second"), SCHOOL)
    assert "2 classes of your network" in refused(classes.open, owner("third"), SCHOOL)
    for number in range(2):
        classes.open(owner(f"far{number}"), f"198.51.100.{number}")
    assert "4 classes are open" in refused(classes.open, owner("fifth"), "198.51.100.9")


def test_a_visitor_has_one_role(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    other = classes.open(owner("second"), SCHOOL)
    assert "you teach a class" in refused(join, classes, "second", opened)
    join(classes, "anna", opened)
    assert "you are a student" in refused(classes.open, owner("anna"), SCHOOL)
    join(classes, "anna", other)
    assert [
        len(each.students) for each in (classes.taught_by(owner("teacher")), classes.taught_by(owner("second")))
    ] == [
        0,
        1,
    ]


def test_a_class_ends_by_its_teacher_or_after_hours_without_anybody(classes: Classes, clock: Clock, tmp_path: Path):
    opened = classes.open(owner("teacher"), SCHOOL)
    join(classes, "anna", opened)
    clock.now += 3600 * PUBLIC.class_hours - 10
    classes.visit(owner("anna"))  # one student is enough
    clock.now += 3600 * PUBLIC.class_hours - 10
    classes.expire()
    assert classes.taught_by(owner("teacher")) is not None
    clock.now += 20
    assert classes.taught_by(owner("teacher")) is None
    classes.expire()
    assert list((tmp_path / ".classes").iterdir()) == []
    second = classes.open(owner("teacher"), SCHOOL)
    assert refused(classes.end, owner("anna")) == "you teach no open class"
    classes.end(owner("teacher"))
    assert "no class is open with the code" in refused(join, classes, "anna", second)
    assert list((tmp_path / ".classes").iterdir()) == []
    classes.open(owner("teacher"), SCHOOL)
    for _ in range(MAX_HOURS):  # however often it is visited
        classes.visit(owner("teacher"))
        clock.now += 3601
    assert classes.taught_by(owner("teacher")) is None


def test_only_parameters_of_an_address_are_sent(classes: Classes):
    opened = classes.open(owner("teacher"), SCHOOL)
    join(classes, "anna", opened)
    refusals = (
        {},
        {"TAB": "x"},
        {"tab": "\x00"},
        {"tab": "x" * 2_001},
        {f"a{'b' * number}": "" for number in range(41)},
    )
    for bad in refusals:
        assert refused(classes.send, owner("teacher"), bad).startswith("link: ")
    assert refused(classes.send, owner("anna"), {"tab": "train"}) == "you teach no open class"
    for number in (1, 2):
        classes.send(owner("teacher"), {"tab": "decode", "input": "<b>4 8</b>"})
        assert classes.attended_by(owner("anna")).handout.number == number


def test_a_class_survives_a_restart(classes: Classes, tmp_path: Path, clock: Clock):
    opened = classes.open(owner("teacher"), SCHOOL)
    join(classes, "anna", opened)
    classes.ask_for_help(owner("anna"), True)
    classes.add_run(owner("anna"), "tiny-1")
    classes.send(owner("teacher"), {"tab": "train"})
    again = Classes(tmp_path / ".classes", PUBLIC, clock=clock)
    assert again.taught_by(owner("teacher")) == classes.taught_by(owner("teacher"))
    assert again.may_read(owner("teacher"), "tiny-1")
    assert again.pool_of(owner("anna")) == opened.pool != ""


def stored_class(classes: Classes) -> Class:
    found = classes.taught_by(owner("teacher"))
    assert found is not None
    return found


def damaged(stored: dict) -> list[object]:
    """Contents of a class's file that are no class."""
    student = stored["students"][0]
    return [
        None,
        stored | {"teacher": "me"},
        stored | {"extra": 1},
        stored | {"code": "IL0O1111"},
        stored | {"next_number": 1},
        stored | {"id": "../../../../etc"},
        stored | {"students": [student, student]},
        stored | {"students": [student | {"nickname": "a\u202eb"}]},
        stored | {"students": [student | {"runs": ["../x"]}]},
        stored | {"handout": {"number": 1, "parameters": {"A": "b"}}},
    ]


def test_a_damaged_class_is_not_read_and_not_fatal(classes: Classes, tmp_path: Path, clock: Clock):
    opened = classes.open(owner("teacher"), SCHOOL)
    join(classes, "anna", opened)
    file = tmp_path / ".classes" / f"{opened.id}.json"
    stored = json.loads(file.read_text())
    assert Classes(tmp_path / ".classes", PUBLIC, clock=clock).taught_by(owner("teacher")) == stored_class(classes)
    for content in damaged(stored):
        file.write_text(json.dumps(content))
        again = Classes(tmp_path / ".classes", PUBLIC, clock=clock)
        assert again.taught_by(owner("teacher")) is None, content
        assert again.attended_by(owner("anna")) is None, content


# ---- with runs


class School:
    """A server with one worker, and what each visitor sees of it."""

    def __init__(self, runs: Runs) -> None:
        self.all, self.asks = runs, TEACHER
        self.runs = VisitorRuns(runs, lambda: self.asks)

    def by(self, visitor: Visitor) -> VisitorRuns:
        self.asks = visitor
        return self.runs


@pytest.fixture
def school(make_runs) -> School:
    """A class with Anna and Ben in it."""
    limits = PUBLIC.model_dump() | {"max_runs": 1, "max_queued": 2, "max_active_per_visitor": 3, "max_students": SEATS}
    school = School(make_runs(**limits))
    code = school.by(TEACHER).classroom().open().code
    for visitor, name in ((ANNA, "Anna"), (BEN, "Ben")):
        school.by(visitor).classroom().join(code, name)
    return school


def sees(school: School, visitor: Visitor, run: str) -> bool:
    try:
        _ = school.by(visitor)[run].info
    except RunError:
        return False
    return True


def test_the_teacher_and_nobody_else_reads_the_runs_of_the_class(school: School, tiny: Preset):
    school.by(BEN).classroom().leave()
    before = school.by(BEN).start(tiny.with_changes(BRIEF))  # outside of the class
    school.by(BEN).classroom().join(school.by(TEACHER).classroom().taught.code, "Ben")
    run = school.by(ANNA).start(tiny.with_changes(BRIEF))
    wait_for_status(school.all, run, "finished")
    wait_for(lambda: not school.all.active())
    assert [sees(school, each, run) for each in (ANNA, TEACHER, BEN, STRANGER)] == [True, True, False, False]
    assert [sees(school, each, before) for each in (ANNA, TEACHER, BEN, STRANGER)] == [False, False, True, False]
    teacher = school.by(TEACHER)
    assert list(teacher) == [run]  # opened above; Ben's is not listed
    for action in (teacher.stop, teacher.delete, teacher.resume):
        with pytest.raises(RunError, match="is not yours"):
            action(run)
    with pytest.raises(RunError, match="is not yours"):
        teacher.share(run, True)
    school.by(ANNA).classroom().leave()
    assert not sees(school, TEACHER, run)
    school.by(TEACHER).classroom().end()
    assert list(school.by(TEACHER)) == []
    assert sees(school, ANNA, run)  # the runs stay


def test_the_board_shows_each_students_latest_run_and_who_needs_help_first(school: School, tiny: Preset):
    run = school.by(ANNA).start(tiny)
    wait_for_status(school.all, run, "finished")
    school.by(BEN).classroom().ask_for_help(True)
    ben, anna = school.by(TEACHER).classroom().board()
    assert (ben.nickname, ben.needs_help, ben.runs, ben.is_away) == ("Ben", True, (), False)
    assert (anna.nickname, anna.needs_help, anna.status) == ("Anna", False, "finished")
    assert (anna.runs[0].name, anna.step, anna.exact_match) == (
        run,
        tiny.training.steps,
        school.all[run].info.exact_match,
    )
    assert list(school.runs) == []  # looking at the board opens no run
    school.runs.classroom().answer_help(ben.number)
    assert [each.nickname for each in school.runs.classroom().board()] == ["Anna", "Ben"]
    for visitor in (ANNA, STRANGER):
        classroom = school.by(visitor).classroom()
        for read in (classroom.board, classroom.results, classroom.end):
            assert refused(read) == "you teach no open class"


def test_a_link_to_a_private_run_is_not_sent(school: School, tiny: Preset):
    private = school.by(TEACHER).start(tiny)
    for parameters in ({"run": private}, {"compare": f"{private},x"}):
        assert "is not shared" in refused(school.runs.classroom().send, parameters)
    assert "your students may not see" in refused(school.runs.classroom().send, {"run": "nobodys"})
    school.runs.share(private, True)
    school.runs.classroom().send({"run": private})
    assert school.by(ANNA).classroom().seat().handout.parameters == {"run": private}


def test_quotas_are_those_of_students_not_of_their_network(school: School, tiny: Preset):
    long = tiny.with_changes(LONG_TRAINING)
    names = [school.by(visitor).start(long) for visitor in (ANNA, BEN) for _ in range(ACTIVE_PER_STUDENT)]
    for visitor in (ANNA, BEN):
        with pytest.raises(RunError, match=f"the limit is {ACTIVE_PER_STUDENT}"):
            school.by(visitor).start(long)
    assert len(names) > school.all.limits.max_queued  # and the queue of the others is still empty
    stranger = school.by(STRANGER).start(long)
    assert school.by(STRANGER)[stranger].progress.queue_position == 1  # the class has had a turn
    assert [school.by(each)[names[at]].progress.queue_position for each, at in ((BEN, 2), (ANNA, 1), (BEN, 3))] == [
        2,
        3,
        4,
    ]


def test_a_student_who_comes_and_goes_leaves_nothing_in_the_queue(school: School, tiny: Preset):
    """The attack: join with an invented cookie, start two long runs, leave, and again, until the class is full."""
    long = tiny.with_changes(LONG_TRAINING)
    code, fakes = school.by(TEACHER).classroom().taught.code, []
    for number in range(SEATS + 2):
        invented = Visitor(owner_of(f"invented{number}"), network=SCHOOL)
        school.by(invented).classroom().join(code, "X")
        fakes += [school.by(invented).start(long) for _ in range(ACTIVE_PER_STUDENT)]
        school.by(invented).classroom().leave()
    run = school.by(ANNA).start(tiny)
    wait_for_status(school.all, run, "finished")
    wait_for(lambda: not school.all.active())
    info = school.all[fakes[0]].info
    assert (info.status, info.message) == ("stopped", AFTER_CLASS)


@pytest.mark.parametrize("how", ["removed", "another class", "end", "end of the hours"])
def test_whoever_is_no_longer_in_a_class_has_no_run_in_it(school: School, tiny: Preset, how: str):
    long = tiny.with_changes(LONG_TRAINING)
    names = [school.by(ANNA).start(long) for _ in range(ACTIVE_PER_STUDENT)]
    teacher = school.by(TEACHER).classroom()
    if how == "removed":
        teacher.remove([1])
    elif how == "another class":
        code = school.by(STRANGER).classroom().open().code
        school.by(ANNA).classroom().join(code, "Anna")
    elif how == "end":
        teacher.end()
    else:
        school.all.classes._clock = lambda: time.time() + 3600 * MAX_HOURS
        school.all.classes.expire()
    wait_for(lambda: not school.all.active())
    assert {school.all[name].info.message for name in names} == {AFTER_CLASS}
    if how == "removed":  # and she goes on when she is back, or outside
        school.by(ANNA).resume(names[0])
        assert school.all[names[0]].info.status in ("queued", "training")


def test_the_teacher_stops_the_runs_of_a_student_and_no_others(school: School, tiny: Preset):
    long = tiny.with_changes(LONG_TRAINING)
    school.by(ANNA).classroom().leave()
    before = school.by(ANNA).start(long)  # outside of the class
    school.by(ANNA).classroom().join(school.by(TEACHER).classroom().taught.code, "Anna")
    anna, ben = school.by(ANNA).start(long), school.by(BEN).start(long)
    teacher = school.by(TEACHER).classroom()
    assert {each.nickname: each.num_active for each in teacher.board()} == {"Anna": 1, "Ben": 1}
    (number,) = [each.number for each in teacher.board() if each.nickname == "Anna"]
    teacher.stop(number)
    wait_for_status(school.all, anna, "stopped")
    assert school.all[anna].info.message == BY_TEACHER
    assert {live.folder.name for live in school.all.active()} == {before, ben}
    assert refused(school.by(BEN).classroom().stop, number) == "you teach no open class"


def test_a_second_class_of_a_school_does_not_keep_the_first_from_training(make_runs, tiny: Preset):
    school = School(make_runs(**PUBLIC.model_dump() | {"max_runs": 1, "max_students": 1}))
    long = tiny.with_changes(LONG_TRAINING)
    for teacher, student in ((TEACHER, ANNA), (STRANGER, BEN)):
        school.by(student).classroom().join(school.by(teacher).classroom().open().code, "X")
        for _ in range(ACTIVE_PER_STUDENT):
            school.by(student).start(long)
    assert len(school.all.active()) == 2 * ACTIVE_PER_STUDENT


def test_a_single_user_and_visitors_without_cookie_have_no_class(make_runs):
    runs = make_runs()
    with pytest.raises(RunError, match="--public"):
        VisitorRuns(runs).classroom()
    with pytest.raises(RunError, match="sent no cookie"):
        VisitorRuns(runs, lambda: Visitor(owner_of("x"), returning=False)).classroom()


def test_the_time_to_start_follows_from_what_trains_and_what_is_ahead():
    unknown = float("inf")
    assert starting_times([10, 4], [5, 5, 5], workers=2) == [4, 9, 10]
    assert starting_times([], [5, 5, 5], workers=2) == [0, 0, 5]
    assert starting_times([10, unknown], [5, 5], workers=2) == [10, 15]
    assert starting_times([unknown], [5], workers=1) == [unknown]
