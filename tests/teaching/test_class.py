"""The class in the documentation: its links open lessons and runs that exist, in the order of the course."""

import re
from pathlib import Path
from urllib.parse import parse_qsl

from core.runs import DEFAULT_ROOT
from core.teaching.attention_lessons import attention_lessons
from core.teaching.lessons import lesson_names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "teaching.md"
STEP = re.compile(r"^\| (\d+)–(\d+) \| .+ \| \[`(\?[^`]+)`\]\(http://127\.0\.0\.1:7860/(\?[^)]+)\) \|$", re.MULTILINE)


def test_the_steps_fill_45_minutes_and_open_what_exists():
    steps = STEP.findall(PAGE.read_text(encoding="utf-8"))
    ends = [0, *(int(end) for _, end, _, _ in steps)]
    assert [int(start) for start, _, _, _ in steps] == ends[:-1]
    assert ends[-1] == 45
    assert all(shown == linked for _, _, shown, linked in steps)
    opened = [dict(parse_qsl(linked[1:])) for _, _, _, linked in steps]
    course = [lesson.name for lesson in attention_lessons()]
    *taught, bug = (query["lesson"] for query in opened if query["tab"] == "lessons")
    assert taught == course[:6]
    assert bug in lesson_names()
    for query in opened:
        assert query.get("lesson") in [None, *course, *lesson_names()]
        assert "run" not in query or (DEFAULT_ROOT / query["run"]).is_dir()


def test_every_step_has_its_text():
    text = PAGE.read_text(encoding="utf-8")
    headings = re.findall(r"^## (\d+)–(\d+):", text, re.MULTILINE)
    assert headings == [step[:2] for step in STEP.findall(text)]
