"""Classes: a teacher, the students who joined with a code, and the runs that they train meanwhile.

Each class is one file beside the runs, written atomically and checked when it is read. This module knows runs by name
only, and visitors by the id that ``ownership.owner_of`` makes of their cookie.
"""

import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.server.limits import Limits
from core.server.networks import site_of
from core.server.nicknames import look_alike, validate_nickname
from core.server.steady_time import steady_time
from core.server.stored_class import (
    ALPHABET,
    CODE_LENGTH,
    CODE_PATTERN,
    MAX_APPLICANTS,
    MAX_STUDENT_RUNS,
    Applicant,
    Class,
    Handout,
    Student,
)
from core.server.wrong_codes import WrongCodes
from core.storage.atomic import write_atomically
from core.storage.error_messages import explain_error, short_repr, shortened
from core.storage.errors import LabError
from core.storage.validation_errors import problem_of

MAX_HOURS = 24  # that a class lasts, whoever visits it
CLASSES_PER_NETWORK = 2  # a school has one address; the second only while half of all are free
DOORS = ("open", "approval", "locked")
_log = logging.getLogger(__name__)


class ClassError(LabError):
    """There is no such class or student, a limit on classes is reached, or a class cannot be saved."""


class Classes:
    """The classes of a server. Thread-safe.

    Args:
        folder: where they are stored; it is created with the first class.
        limits: how many classes there are, how many students each has, and when one ends.
        clock: returns seconds since 1970.
        on_left: called with a student's id and pool when they leave a class, are removed, or it ends.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        *,
        clock: Callable[[], float] = steady_time,
        on_left: Callable[[str, str], None] = lambda owner, pool: None,
    ) -> None:
        self._folder, self._limits, self._clock, self._on_left = folder, limits, clock, on_left
        self._lock = threading.RLock()
        self._wrong_codes = WrongCodes(clock)
        self._classes: dict[str, Class] = {}
        self._applied_to: dict[str, str] = {}  # id of the class by visitor who waits; replaced, never changed
        self._class_of: dict[str, str] = {}  # id of the class by visitor, the teacher's too; replaced, never changed
        self._teacher_of: dict[str, str] = {}  # by run; replaced, never changed
        self._visited: dict[str, float] = {}  # by visitor in a class, since the server started
        self._started = clock()
        for file in sorted(folder.glob("*.json")):
            self._read(file)
        self._index()

    # ---- who is who

    def taught_by(self, owner: str | None) -> Class | None:
        """Return the class that a visitor teaches."""
        found = self._of(owner)
        return found if found is not None and found.teacher == owner else None

    def attended_by(self, owner: str | None) -> Class | None:
        """Return the class that a visitor is a student of."""
        found = self._of(owner)
        return found if found is not None and found.teacher != owner else None

    def applied_to(self, owner: str) -> Class | None:
        """Return the class whose teacher a visitor has asked to let them in."""
        found = self._classes.get(self._applied_to.get(owner, ""))
        return None if found is None or self._has_expired(found) else found

    def may_read(self, owner: str | None, run: str) -> bool:
        """Return whether a run was trained in a class that the visitor teaches."""
        return owner is not None and self._teacher_of.get(run) == owner and self.taught_by(owner) is not None

    def pool_of(self, owner: str | None) -> str:
        """Return the pool that a new run of a visitor counts in; "" for visitors who are not students."""
        attended = self.attended_by(owner)
        return "" if attended is None else attended.pool

    def seconds_away(self, owner: str) -> float:
        """Return the seconds since a visitor's page last asked about its class, at most the server's uptime."""
        return self._clock() - self._visited.get(owner, self._started)

    def visit(self, owner: str) -> None:
        """Note that a visitor's page asked about its class."""
        if owner in self._class_of:
            self._visited[owner] = self._clock()

    def _of(self, owner: str | None) -> Class | None:
        found = self._classes.get(self._class_of.get(owner or "", ""))
        return None if found is None or self._has_expired(found) else found

    # ---- the teacher

    def open(self, owner: str, network: str) -> Class:
        """Open a class, and return it; the teacher's open one if there is one.

        Raises:
            ClassError: the server or the network has as many as allowed, or the visitor is a student.
        """
        with self._lock:
            self.expire()
            if (taught := self.taught_by(owner)) is not None:
                return taught
            if self.attended_by(owner) is not None:
                raise ClassError("you are a student of a class; leave it before you open one")
            if len(self._classes) >= self._limits.max_classes:
                raise ClassError(f"{len(self._classes)} classes are open, which is the limit; try again later")
            pool = _pool(network)
            site = _pool(site_of(network))
            of_network = sum(pool == each.pool or site == each.site for each in self._classes.values())
            if network and of_network >= CLASSES_PER_NETWORK:
                raise ClassError(f"{of_network} classes of your network are open, which is the limit; end one of them")
            if network and of_network and len(self._classes) >= self._limits.max_classes // 2:
                raise ClassError("a class of your network is open, and the other places are for other networks; end it")
            code = self._unused_code()
            new = Class(id=secrets.token_hex(8), code=code, teacher=owner, pool=pool, site=site, opened=self._clock())
            self._store(new)
            self.visit(owner)
            return new

    def end(self, owner: str) -> None:
        """End the class that a visitor teaches, and delete all of it but the runs; ClassError if they teach none."""
        with self._lock:
            self._delete(self._taught(owner))

    def send(self, owner: str, parameters: dict[str, str]) -> None:
        """Send parameters of the page's address to all students, in place of what was sent before.

        Raises:
            ClassError: the visitor teaches no class, or the parameters are not valid.
        """
        with self._lock:
            taught = self._taught(owner)
            number = 1 if taught.handout is None else taught.handout.number + 1
            try:
                handout = Handout(number=number, parameters=parameters)
            except ValidationError as error:
                detail = error.errors()[0]
                raise ClassError(f"link: {problem_of(detail, '.'.join(map(str, detail['loc'][1:])))}") from error
            self._store(taught.model_copy(update={"handout": handout}))

    def remove(self, owner: str, numbers: Collection[int]) -> None:
        """Remove students from the class that a visitor teaches, and turn away those who wait with these numbers."""
        with self._lock:
            taught = self._taught(owner)
            gone = [each for each in taught.students if each.number in numbers]
            students = tuple(each for each in taught.students if each.number not in numbers)
            waiting = tuple(each for each in taught.applicants if each.number not in numbers)
            self._store(taught.model_copy(update={"students": students, "applicants": waiting}))
            for student in gone:
                self._on_left(student.owner, taught.pool)

    def admit(self, owner: str, numbers: Collection[int]) -> None:
        """Let those with these numbers, who wait, into the class that a visitor teaches; ClassError if it is full."""
        with self._lock:
            taught = self._taught(owner)
            admitted = [each for each in taught.applicants if each.number in numbers]
            if len(taught.students) + len(admitted) > self._limits.max_students:
                raise ClassError(f"the class has {self._limits.max_students} places; remove students, or admit fewer")
            waiting = tuple(each for each in taught.applicants if each.number not in numbers)
            new = tuple(Student(number=each.number, owner=each.owner, nickname=each.nickname) for each in admitted)
            self._store(taught.model_copy(update={"students": (*taught.students, *new), "applicants": waiting}))
            for each in admitted:
                self.visit(each.owner)

    def set_door(self, owner: str, door: str) -> None:
        """Decide what the code of the class that a visitor teaches does; see ``Class``."""
        if door not in DOORS:
            raise ClassError(f"door={short_repr(door, 20)} is not one of {', '.join(DOORS)}")
        with self._lock:
            self._store(self._taught(owner).model_copy(update={"door": door}))

    def change_code(self, owner: str) -> None:
        """Give the class that a visitor teaches another code; the students stay, the old code lets nobody in."""
        with self._lock:
            self._store(self._taught(owner).model_copy(update={"code": self._unused_code()}))

    def student(self, owner: str, number: int) -> tuple[Class, Student]:
        """Return the class that a visitor teaches, and a student of it; ClassError if there is none."""
        with self._lock:
            taught = self._taught(owner)
            return taught, self._numbered(taught, number)

    def answer_help(self, owner: str, number: int) -> None:
        """Note that a student of the class that a visitor teaches was helped."""
        with self._lock:
            taught = self._taught(owner)
            self._replace(taught, self._numbered(taught, number), help_since=None)

    # ---- the students

    def join(self, owner: str, network: str, code: str, nickname: str) -> Class:
        """Make a visitor a student of the class with a code, and return it. A student who joins again gets a new name.

        If the teacher admits students, or the network has tried many wrong codes, the visitor waits for the teacher.

        Raises:
            InputError: the nickname is not valid.
            ClassError: no class has this code, it is locked or full, somebody else in it has a nickname that looks like
                this one, or the visitor teaches a class.
        """
        with self._lock:
            self.expire()
            found = self._with_code(code, network)
            nickname = validate_nickname(nickname)
            if self.taught_by(owner) is not None:
                raise ClassError("you teach a class; end it before you join one")
            others = [each for each in (*found.students, *found.applicants) if each.owner != owner]
            if any(look_alike(each.nickname, nickname) for each in others):
                raise ClassError(f"the nickname {nickname} is taken in this class; choose another one")
            if (student := found.student(owner)) is not None:
                return self._replace(found, student, nickname=nickname)
            if len(found.students) >= self._limits.max_students:
                raise ClassError(f"the class has {len(found.students)} students, which is the limit")
            if found.door == "locked":
                raise ClassError("the class is locked: its teacher lets nobody else in")
            waits = found.door == "approval" or self._wrong_codes.suspects(site_of(network))
            if waits and len(found.applicants) >= MAX_APPLICANTS:
                raise ClassError(f"{MAX_APPLICANTS} wait for the teacher to let them in, which is the limit")
            with suppress(ClassError):
                self.leave(owner)
            found = self._classes[found.id]  # without the visitor's last request to join it
            new: dict[str, Any] = {"number": found.next_number, "owner": owner, "nickname": nickname}
            if waits:
                joined: dict[str, Any] = {"applicants": (*found.applicants, Applicant(**new))}
            else:
                joined = {"students": (*found.students, Student(**new))}
            self._store(found := found.model_copy(update=joined | {"next_number": found.next_number + 1}))
            self.visit(owner)
            return found

    def leave(self, owner: str) -> None:
        """Leave the class, whose teacher no longer sees the student's runs; ClassError if the visitor is in none.

        Whoever waits to be let in waits no longer.
        """
        with self._lock:
            if (found := self.applied_to(owner)) is not None:
                waiting = tuple(each for each in found.applicants if each.owner != owner)
                return self._store(found.model_copy(update={"applicants": waiting}))
            self._without(*self._attended(owner))

    def ask_for_help(self, owner: str, wanted: bool) -> None:
        """Ask the teacher for help, or no longer; ClassError if the visitor is in no class."""
        with self._lock:
            attended, student = self._attended(owner)
            since = (student.help_since or self._clock()) if wanted else None
            self._replace(attended, student, help_since=since)

    def note_lesson(self, owner: str, lesson: str, answers: Mapping[str, float]) -> None:
        """Note which lesson a visitor opened last, and all that they answered; nothing if they are in no class."""
        with self._lock:
            attended = self.attended_by(owner)
            student = attended.student(owner) if attended is not None else None
            if attended is None or student is None or (student.lesson, student.answers) == (lesson, answers):
                return
            try:
                self._replace(attended, student, lesson=lesson, answers=dict(answers))
            except ClassError as error:  # the student's page asks for more than this
                _log.warning("answers not noted: %s", error)

    def add_run(self, owner: str | None, run: str) -> None:
        """Note that a visitor started or resumed a run, which their teacher may then view; nothing if in no class."""
        with self._lock:
            attended = self.attended_by(owner)
            student = attended.student(owner) if attended is not None and owner is not None else None
            if attended is None or student is None:
                return
            runs = (*(each for each in student.runs if each != run), run)[-MAX_STUDENT_RUNS:]
            try:
                self._replace(attended, student, runs=runs)
            except ClassError as error:  # the run trains; only the teacher does not see it
                _log.warning("not noted in its class: %s", error, extra={"run": run})

    def expire(self) -> None:
        """Delete the classes that nobody has visited for ``class_hours``, and those older than ``MAX_HOURS``."""
        with self._lock:
            for each in list(self._classes.values()):
                if self._has_expired(each):
                    self._delete(each)

    # ---- changes; all require the lock

    def _has_expired(self, found: Class) -> bool:
        if not self._file(found).exists():  # the operator has closed it, see ``core.cli.classes``
            return True
        visits = [self._visited.get(owner, 0.0) for owner in (found.teacher, *(each.owner for each in found.students))]
        last = max(self._started, found.opened, *visits)
        return self._clock() - last > 3600 * self._limits.class_hours or self._clock() - found.opened > 3600 * MAX_HOURS

    def _with_code(self, code: str, network: str) -> Class:
        plain = re.sub(r"[\s-]", "", code).upper()
        for each in self._classes.values():
            if each.code == plain:
                return each
        if re.fullmatch(CODE_PATTERN, plain):
            self._wrong_codes.count(site_of(network))
            advice = "check every letter; the class may have ended"
        else:
            advice = f"a code has {CODE_LENGTH} letters and digits, none of them I, L, O, 0 or 1"
        raise ClassError(f"no class is open with the code {shortened(code.strip(), 20)}; {advice}")

    def _taught(self, owner: str) -> Class:
        if (taught := self.taught_by(owner)) is None:
            raise ClassError("you teach no open class")
        return taught

    def _attended(self, owner: str) -> tuple[Class, Student]:
        attended = self.attended_by(owner)
        student = attended.student(owner) if attended is not None else None
        if attended is None or student is None:
            raise ClassError("you are in no open class")
        return attended, student

    def _numbered(self, taught: Class, number: int) -> Student:
        for each in taught.students:
            if each.number == number:
                return each
        raise ClassError(f"student={number}: there is no such student in your class")

    def _replace(self, found: Class, student: Student, **changes: object) -> Class:
        new = student.model_copy(update=changes)
        students = tuple(new if each.number == student.number else each for each in found.students)
        self._store(found := found.model_copy(update={"students": students}))
        return found

    def _without(self, found: Class, student: Student) -> None:
        students = tuple(each for each in found.students if each.number != student.number)
        self._store(found.model_copy(update={"students": students}))
        self._on_left(student.owner, found.pool)

    def _unused_code(self) -> str:
        codes = {each.code for each in self._classes.values()}
        return next(code for code in iter(_new_code, "") if code not in codes)

    def _store(self, changed: Class) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file(changed), changed.model_dump_json().encode())
        except OSError as error:
            raise ClassError(f"the class cannot be saved: {explain_error(error)}") from error
        self._classes[changed.id] = changed
        self._index()

    def _delete(self, ended: Class) -> None:
        try:
            self._file(ended).unlink(missing_ok=True)
        except OSError as error:
            raise ClassError(f"the class cannot be deleted: {explain_error(error)}") from error
        del self._classes[ended.id]
        self._index()
        for student in ended.students:
            self._on_left(student.owner, ended.pool)
        _log.info("class ended", extra={"students": len(ended.students)})

    def _file(self, of: Class) -> Path:
        return self._folder / f"{of.id}.json"

    def _read(self, file: Path) -> None:
        """Read a stored class; one that is damaged, or contradicts another, is left alone."""
        try:
            read = Class.model_validate_json(file.read_bytes())
        except (OSError, ValidationError, LabError) as error:
            _log.warning("class not read: %s: %s", file.name, type(error).__name__)
            return
        owners = [read.teacher, *(each.owner for each in (*read.students, *read.applicants))]
        numbers = [each.number for each in (*read.students, *read.applicants)]
        is_consistent = (
            file.stem == read.id
            and len(set(owners)) == len(owners)
            and len(set(numbers)) == len(numbers)
            and max(numbers, default=0) < read.next_number
            and not any(read.code == each.code for each in self._classes.values())
            and not any(owner in self._class_of for owner in owners)
        )
        if not is_consistent:
            _log.warning("class not read: %s contradicts itself or another class", file.name)
            return
        self._classes[read.id] = read
        self._index()

    def _index(self) -> None:
        classes = list(self._classes.values())
        self._class_of = {owner.owner: each.id for each in classes for owner in each.students}
        self._applied_to = {waiting.owner: each.id for each in classes for waiting in each.applicants}
        self._class_of |= {each.teacher: each.id for each in classes}
        self._teacher_of = {run: each.teacher for each in classes for one in each.students for run in one.runs}
        self._visited = {owner: at for owner, at in list(self._visited.items()) if owner in self._class_of}


def _new_code() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def _pool(network: str) -> str:
    return f"class-{hashlib.sha256(network.encode()).hexdigest()[:16]}"
