"""What a visitor may do with classes, as a teacher or as a student: a teacher reads the runs of their class only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.evaluation.headline import HeadlineFigure
from core.runs import RunError
from core.server.classes import ClassError
from core.server.registry import Runs
from core.server.steady_time import steady_time
from core.server.stored_class import Class, Handout, Student

BY_TEACHER = "stopped and saved by the teacher of the class"
AWAY_SECONDS = 90.0  # since the student's page last asked: browsers let a hidden page ask once a minute
RESULT_COLUMNS = (
    "nickname",
    "run",
    "preset",
    "task",
    "status",
    "step",
    "steps",
    "measure",
    "value",
    "best step",
    "seconds",
)


@dataclass(frozen=True)
class Seat:
    """What a student's page shows.

    Attributes:
        handout: what the teacher sent last.
    """

    class_id: str
    nickname: str
    asks_for_help: bool
    handout: Handout | None


@dataclass(frozen=True)
class BoardRun:
    """The name and title of a student's run."""

    name: str
    title: str


@dataclass(frozen=True)
class BoardRow:
    """One student on the teacher's board, with their latest run.

    Attributes:
        runs: all runs of the class, the latest first.
        seconds_to_start: see ``RunProgress``.
        help_seconds: how long ago the student asked for help; None if they did not.
        is_away: whether the student's page is closed.
        num_active: number of runs that train or wait, which ``Classroom.stop`` stops.
        lesson, answers: see ``Student``.
    """

    number: int
    nickname: str
    runs: tuple[BoardRun, ...]
    task: str = ""
    status: str = ""
    message: str = ""
    step: int = 0
    steps: int = 0
    exact_match: float | None = None
    headline: tuple[HeadlineFigure, ...] = ()
    queue_position: int | None = None
    seconds_to_start: float | None = None
    help_seconds: float | None = None
    is_away: bool = False
    num_active: int = 0
    lesson: str = ""
    answers: Mapping[str, float] = field(default_factory=dict)

    @property
    def needs_help(self) -> bool:
        """Whether the teacher should look at this student first."""
        return self.help_seconds is not None or self.status == "failed"


class Classroom:
    """The classes of a server, for one visitor.

    Args:
        owner: id of the visitor.
        network: where their request comes from; "" if unknown.
    """

    def __init__(self, runs: Runs, owner: str, network: str) -> None:
        self._runs, self._classes, self._owner, self._network = runs, runs.classes, owner, network

    # ---- the teacher

    @property
    def is_on_this_machine(self) -> bool:
        """Whether the visitor's browser runs on the machine that serves the page."""
        return not self._network

    @property
    def taught(self) -> Class | None:
        """The class that the visitor teaches."""
        return self._classes.taught_by(self._owner)

    def open(self) -> Class:
        """Open a class, or find the one that is open."""
        return self._classes.open(self._owner, self._network)

    def end(self) -> None:
        """End the class, and delete all of it but the runs, which are stopped and saved."""
        self._classes.end(self._owner)

    def send(self, parameters: dict[str, str]) -> None:
        """Send the students to a view of the page.

        Raises:
            ClassError: the students may not view a run that the parameters name.
        """
        for name in (parameters.get("run", ""), *parameters.get("compare", "").split(",")):
            if name and not self._is_for_all(name):
                raise ClassError(self._not_for_all(name))
        self._classes.send(self._owner, parameters)

    def remove(self, numbers: Collection[int]) -> None:
        """Remove students from the class, whose runs in it are stopped and saved, and turn away those who wait."""
        self._classes.remove(self._owner, numbers)

    def admit(self, numbers: Collection[int]) -> None:
        """Let those who wait into the class."""
        self._classes.admit(self._owner, numbers)

    def set_door(self, door: str) -> None:
        """Decide whether the code lets students in, lets them ask, or lets nobody in."""
        self._classes.set_door(self._owner, door)

    def change_code(self) -> None:
        """Give the class another code."""
        self._classes.change_code(self._owner)

    def stop(self, number: int) -> None:
        """Stop and save what a student trains or has queued in the class."""
        taught, student = self._classes.student(self._owner, number)
        self._runs.stop_in_class(student.owner, taught.pool, reason=BY_TEACHER)

    def answer_help(self, number: int) -> None:
        """Note that a student was helped."""
        self._classes.answer_help(self._owner, number)

    def board(self) -> list[BoardRow]:
        """Return a row for each student, first those who need help; ClassError if the visitor teaches no class."""
        self._classes.visit(self._owner)
        taught = self._taught()
        rows = [self._row(each, taught.pool) for each in taught.students]
        return sorted(rows, key=lambda row: (not row.needs_help, row.number))

    def results(self) -> list[list[Any]]:
        """Return a table with a row for each run of each student, columns as in ``RESULT_COLUMNS``."""
        table: list[list[Any]] = []
        for student in self._taught().students:
            before = len(table)
            for run in self._readable_runs(student):
                info, preset = self._runs[run.name].info, self._runs[run.name].preset
                about = [student.nickname, run.title, preset.name, preset.task.summary, info.status]
                measured = [[each.name, each.value] for each in info.figures[:1]] or [[None, None]]
                done, ended = [info.step, preset.training.steps], [info.best_step, round(info.seconds, 1)]
                table.append(about + done + measured[0] + ended)
            if len(table) == before:
                table.append([student.nickname, *[None] * (len(RESULT_COLUMNS) - 1)])
        return table

    def _taught(self) -> Class:
        if (taught := self.taught) is None:
            raise ClassError("you teach no open class")
        return taught

    def _readable_runs(self, student: Student) -> list[BoardRun]:
        """Return a student's runs that are still there, the latest first."""
        found = []
        for name in reversed(student.runs):
            if not self._classes.may_read(self._owner, name):
                continue
            try:
                run = self._runs[name]
                _ = run.progress  # can be read
                found.append(BoardRun(name, run.title))
            except RunError:  # it was deleted
                continue
        return found

    def _row(self, student: Student, pool: str) -> BoardRow:
        runs = self._readable_runs(student)
        row = BoardRow(
            number=student.number,
            nickname=student.nickname,
            runs=tuple(runs),
            help_seconds=None if student.help_since is None else max(0.0, steady_time() - student.help_since),
            is_away=self._classes.seconds_away(student.owner) > AWAY_SECONDS,
            lesson=student.lesson,
            answers=student.answers,
            num_active=sum(live.owner == student.owner and live.pool == pool for live in self._runs.active()),
        )
        if not runs:
            return row
        progress = self._runs[runs[0].name].progress
        return replace(
            row,
            task=self._runs[runs[0].name].preset.task.summary,
            status=progress.info.status,
            message=progress.info.message,
            step=progress.info.step,
            steps=progress.steps or progress.info.step,
            exact_match=progress.info.exact_match,
            headline=progress.info.figures,
            queue_position=progress.queue_position,
            seconds_to_start=progress.seconds_to_start,
        )

    def _not_for_all(self, name: str) -> str:
        """Return why a link to a run cannot be sent, with the run's title if it is the visitor's own."""
        try:
            is_own = self._runs.ownership(name).owner == self._owner
            title = self._runs[name].title if is_own else ""
        except RunError:
            title = ""
        if not title:
            return "link: it names a run that your students may not see; send a shared or a shipped run"
        return f"“{title}” is not shared; choose “Share by link” in the menu of runs before you send it"

    def student_of(self, run: str) -> str:
        """Return the nickname of the student of the visitor's class who trained a run; "" if none did."""
        taught = self.taught
        students = taught.students if taught is not None and self._classes.may_read(self._owner, run) else ()
        return next((each.nickname for each in students if run in each.runs), "")

    def note_lesson(self, lesson: str, answers: Mapping[str, float]) -> None:
        """Note which lesson the visitor opened last, and all that they answered."""
        self._classes.note_lesson(self._owner, lesson, answers)

    def _is_for_all(self, name: str) -> bool:
        try:
            return self._runs[name].info.shipped or self._runs.ownership(name).shared
        except RunError:
            return False

    # ---- the students

    def join(self, code: str, nickname: str) -> None:
        """Join the class with a code, under a nickname."""
        self._classes.join(self._owner, self._network, code, nickname)

    def leave(self) -> None:
        """Leave the class, whose teacher no longer sees the runs; those that train or wait are stopped and saved."""
        self._classes.leave(self._owner)

    def ask_for_help(self, wanted: bool) -> None:
        """Ask the teacher for help, or no longer."""
        self._classes.ask_for_help(self._owner, wanted)

    def waits_as(self) -> str:
        """Return the nickname under which the visitor waits to be let into a class; "" if they do not."""
        found = self._classes.applied_to(self._owner)
        return next((each.nickname for each in found.applicants if each.owner == self._owner), "") if found else ""

    def seat(self) -> Seat | None:
        """Return what the visitor sees as a student; None if they are in no class."""
        self._classes.visit(self._owner)
        attended = self._classes.attended_by(self._owner)
        student = attended.student(self._owner) if attended is not None else None
        if attended is None or student is None:
            return None
        return Seat(attended.id, student.nickname, student.help_since is not None, attended.handout)
