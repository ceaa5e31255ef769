"""A lesson on attention: a YAML file with sections of text, live figures, questions with answers, and links."""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from core.config import PRESET_FOLDER
from core.models.seq2seq import Block
from core.storage import bounded_yaml
from core.storage.error_messages import short_repr
from core.storage.errors import InputError, LabError

ATTENTION_LESSON_FOLDER = PRESET_FOLDER / "attention-lessons"

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern="^[a-z][a-z0-9-]{1,40}$")]
FigureKind = Literal[
    "tokens", "similarity", "row", "map", "orders", "causal", "padding", "heads", "training", "reading", "text"
]
Stage = Literal["embedding", "position", "sum", "encoder"]


class LessonPart(BaseModel):
    """Base class of the parts of a lesson: unknown keys and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Figure(LessonPart):
    """A live figure, computed by the model of the lesson's run for the reader's input.

    Attributes:
        kind: of the figure; the page has a script of that name for each.
        block: attention block of the maps.
        layer: numbered from 1; 0 for all layers.
        head: the head shown first, numbered from 1.
        row: the row marked first, numbered from 1.
        stage: the vectors compared first; see ``token_vectors``.
        run, input: of a figure of another run, which has an input of its own; empty for those of the lesson.
    """

    kind: FigureKind
    run: str = ""
    input: str = ""
    block: Block = "cross"
    layer: int = Field(default=0, ge=0)
    head: int = Field(default=1, ge=1)
    row: int = Field(default=1, ge=1)
    stage: Stage = "embedding"


class Choice(LessonPart):
    """One of the answers to choose from, with the reason why it is right or wrong."""

    text: Text
    reason: Text
    correct: bool = False


class NumberAnswer(LessonPart):
    """The answer to a question with a number as its answer.

    Attributes:
        value: the correct number; numbers at most ``tolerance`` away also count as correct.
        right, wrong: shown for a correct and for a wrong number.
    """

    value: float
    tolerance: float = Field(default=0, ge=0)
    right: Text
    wrong: Text


class Question(LessonPart):
    """A question with checked answers: either choices, of which exactly one is correct, or a number."""

    id: Name
    text: Text
    choices: list[Choice] = Field(default=[], max_length=5)
    number: NumberAnswer | None = None

    @model_validator(mode="after")
    def _has_one_correct_answer(self) -> Self:
        if (self.number is None) == (not self.choices):
            raise ValueError(f"question {self.id} must have either choices or a number")
        if self.choices and sum(choice.correct for choice in self.choices) != 1:
            raise ValueError(f"question {self.id} must have exactly one correct choice")
        return self

    def is_right(self, given: float) -> bool:
        """Return whether an answer is right: a number, or the index of a choice; False if there is no such choice."""
        if self.number is not None:
            return abs(given - self.number.value) <= self.number.tolerance
        return given in range(len(self.choices)) and self.choices[int(given)].correct

    def answer_text(self, given: float) -> str:
        """Return an answer as it was read: the number, or the choice's text; "" if there is no such choice."""
        if self.number is not None:
            return repr(given).removesuffix(".0")
        return self.choices[int(given)].text if given in range(len(self.choices)) else ""


class Link(LessonPart):
    """A link to another tab of the page: the parameters of its address."""

    text: Text
    query: dict[str, str | int]

    @property
    def href(self) -> str:
        """The address relative to the page."""
        return "?" + urlencode(self.query)


class Section(LessonPart):
    """A section: text in paragraphs, with code in backticks, and optionally a figure, links and a question."""

    title: Text
    text: Text
    figure: Figure | None = None
    question: Question | None = None
    links: list[Link] = []


class AttentionLesson(LessonPart):
    """A lesson on attention.

    Attributes:
        name: in the page's address.
        number: position in the course, from 1.
        summary: one sentence for the list of lessons.
        run: the run with the model that computes the figures.
        input: the initial input of the figures.
    """

    name: Name
    number: int = Field(ge=1)
    title: Text
    summary: Text
    run: Text
    input: Text
    sections: list[Section] = Field(min_length=3, max_length=5)

    @property
    def questions(self) -> list[Question]:
        """The lesson's questions, in order."""
        return [section.question for section in self.sections if section.question]

    @property
    def runs(self) -> set[str]:
        """The runs whose models compute the figures."""
        return {self.run, *(section.figure.run for section in self.sections if section.figure and section.figure.run)}

    def run_of(self, kind: FigureKind) -> str:
        """The run of the figure of a kind: its own, or the lesson's."""
        figures = (section.figure for section in self.sections if section.figure and section.figure.kind == kind)
        return next((figure.run for figure in figures if figure.run), self.run)

    @model_validator(mode="after")
    def _has_unique_questions(self) -> Self:
        ids = [question.id for question in self.questions]
        if len(set(ids)) != len(ids):
            raise ValueError(f"lesson {self.name} has two questions of one id: {', '.join(ids)}")
        return self


@cache
def attention_lessons(folder: Path = ATTENTION_LESSON_FOLDER) -> tuple[AttentionLesson, ...]:
    """Read all lessons of a folder, in the order of their numbers.

    Raises:
        LabError: a file is not a lesson.
    """
    lessons = [_read(path) for path in folder.glob("*.yaml")]
    return tuple(sorted(lessons, key=lambda lesson: lesson.number))


def load_attention_lesson(name: str) -> AttentionLesson:
    """Return a lesson by its name, which may come from a visitor; InputError if it does not exist."""
    lessons = {lesson.name: lesson for lesson in attention_lessons()}
    if name not in lessons:
        raise InputError(f"lesson={short_repr(name)} is not one of {', '.join(lessons)}")
    return lessons[name]


def _read(path: Path) -> AttentionLesson:
    try:
        return AttentionLesson.model_validate(bounded_yaml.load(path.read_bytes()))
    except (bounded_yaml.BoundedYamlError, ValidationError) as error:
        raise LabError(f"lesson={path.name}: {error}") from error
