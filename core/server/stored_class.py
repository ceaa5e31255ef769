"""A class as it is stored: its teacher, the students with their runs and answers, and who waits to be let in."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from core.config import NAME_PATTERN
from core.server.nicknames import validate_nickname
from core.text.validation import validate_text

ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # without I, L, O, 0 and 1, which look alike
CODE_LENGTH = 8  # 31^8: 850 billion codes
MAX_APPLICANTS = 100  # who wait for the teacher to let them in
MAX_STUDENT_RUNS = 50  # remembered of each student, the latest
MAX_ANSWERS = 100  # of a student to the questions of all lessons
MAX_PARAMETERS, MAX_VALUE = 40, 2_000  # of a page's address that the teacher sends
CODE_PATTERN = f"[{ALPHABET}]{{{CODE_LENGTH}}}"
LESSON_PATTERN = r"[a-z][a-z0-9-]{0,40}"


def _nickname(text: str) -> str:
    if validate_nickname(text) != text:
        raise ValueError("spaces around the nickname")
    return text


def _value(text: str) -> str:
    return validate_text("value", text, max_length=MAX_VALUE)


Id = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Parameters = Annotated[
    dict[Annotated[str, Field(pattern=r"^[a-z_]{1,30}$")], Annotated[str, AfterValidator(_value)]],
    Field(min_length=1, max_length=MAX_PARAMETERS),
]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Applicant(_Stored):
    """A visitor who waits for the teacher to let them in.

    Attributes:
        number: names them on the teacher's page, where owners' ids are not shown; theirs as a student too.
        owner: id of the visitor.
    """

    number: int = Field(ge=1)
    owner: Id
    nickname: Annotated[str, AfterValidator(_nickname)]


class Student(Applicant):
    """A student.

    Attributes:
        runs: names of the runs that were started or resumed in the class, the latest last.
        help_since: when the student asked for help, in seconds since 1970; None if they did not.
        lesson: the lesson that was open last; "" if none was.
        answers: the number that was given, or the index of the choice, by ``lesson.question``.
    """

    runs: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] = Field(default=(), max_length=MAX_STUDENT_RUNS)
    help_since: float | None = None
    lesson: str = Field(default="", pattern=f"^({LESSON_PATTERN})?$")
    answers: dict[Annotated[str, Field(pattern=rf"^{LESSON_PATTERN}\.{LESSON_PATTERN}$")], float] = Field(
        default={}, max_length=MAX_ANSWERS
    )


class Handout(_Stored):
    """What the teacher sent to all: parameters of the page's address, and a number that grows with each."""

    number: int = Field(ge=1)
    parameters: Parameters


class Class(_Stored):
    """A class, as stored.

    Attributes:
        id: also the name of its file.
        teacher: id of the visitor who opened it.
        pool: names the runs that share one turn in the queue: those of all classes that were opened from one network.
        site: as ``pool``, of the networks of IPv6 that may be the same customer's.
        opened: in seconds since 1970.
        next_number: of the next student.
        door: whether the code lets students in, lets them ask the teacher, or lets nobody in.
    """

    id: str = Field(pattern=r"^[0-9a-f]{16}$")
    code: str = Field(pattern=f"^{CODE_PATTERN}$")
    teacher: Id
    pool: str = Field(pattern=r"^class-[0-9a-f]{16}$")
    site: str = Field(default="", pattern=r"^(class-[0-9a-f]{16})?$")
    opened: float
    next_number: int = Field(default=1, ge=1)
    students: tuple[Student, ...] = Field(default=(), max_length=10_000)
    handout: Handout | None = None
    door: Literal["open", "approval", "locked"] = "open"
    applicants: tuple[Applicant, ...] = Field(default=(), max_length=MAX_APPLICANTS)

    def student(self, owner: str) -> Student | None:
        """Return a visitor as a student of this class; None if they are not."""
        return next((each for each in self.students if each.owner == owner), None)
