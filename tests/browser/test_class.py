"""A class with a teacher and a student, each in a browser of their own, on a public server."""

import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Page, expect

from core.config import load_preset
from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.limits import PUBLIC
from core.teaching.attention_lessons import attention_lessons
from tests.browser.chromium import DESKTOP, NOTHING_SIDEWAYS, PHONE, box_of, new_context
from tests.serving import SHIPPED, TRANSLATOR

REPOSITORY = Path(__file__).resolve().parents[2]

NICKNAME = "=1+1<img src=x onerror=x()>"
QUICK = {"training.steps": 60, "training.evaluate_every": 30, "training.validation_sequences": 16}


@pytest.fixture
def public(tmp_path: Path) -> Iterator[tuple[Runs, str]]:
    """A public server; its runs and address."""
    from ui.serving.launch import serve
    from ui.serving.visitors import Presence

    shutil.copytree(DEFAULT_ROOT / SHIPPED, tmp_path / SHIPPED)
    runs = Runs(tmp_path, limits=PUBLIC)
    page, address = serve(runs, Presence())
    yield runs, address
    runs.close()
    page.close(verbose=False)


@pytest.fixture
def people(tab: tuple[Page, list[str]]) -> Iterator[tuple[Page, Page, list[str]]]:
    """The pages of a teacher and of a student with a phone, and the errors of their scripts."""
    browser, errors = tab[0].context.browser, []
    assert browser is not None
    contexts = [new_context(browser, viewport=each, accept_downloads=True) for each in (DESKTOP, PHONE)]
    teacher, student = (each.new_page() for each in contexts)
    for page in (teacher, student):
        page.on("pageerror", lambda error: errors.append(str(error)))
    yield teacher, student, errors
    for each in contexts:
        each.close()


def test_without_visitors_the_dialog_says_what_a_class_needs(page: Page):
    page.locator("#run-bar .class").click()
    dialog = page.locator("dialog.lab-class_board")
    expect(dialog.get_by_role("alert")).to_contain_text("python app.py --host 0.0.0.0 --public")
    expect(dialog.get_by_role("button")).to_have_text(["✕"])


@pytest.mark.slow
def test_a_class_from_its_code_to_its_results(public: tuple[Runs, str], people: tuple[Page, Page, list[str]]):
    runs, address = public
    teacher, student, errors = people
    board = teacher.locator("dialog.lab-class_board")

    # The teacher opens a class
    scripts: list[str] = []
    teacher.on("request", lambda request: scripts.append(request.url))
    teacher.goto(address)
    expect(teacher.locator("#run-bar .title")).to_have_text(SHIPPED)
    assert not any("class_board" in each for each in scripts)  # loaded when it is needed
    teacher.locator("#run-bar .class").click()
    board.locator(".open").click()
    expect(board.locator(".qr")).to_be_visible()
    assert board.locator(".qr").evaluate("(picture) => picture.naturalWidth > 100")
    link = board.locator(".address").inner_text()

    # A student joins by the link; what looks like markup is text
    student.goto(link)
    entrance = student.locator("dialog.lab-class_board")
    entrance.locator(".nickname-input").fill(NICKNAME)
    entrance.locator(".join button").click()
    line = student.locator(".seat")
    expect(line).to_contain_text(NICKNAME)
    assert "class=" not in student.url
    row = board.locator("tr[data-student]")
    expect(row).to_contain_text(NICKNAME)
    expect(row).to_contain_text("no run yet")

    # The student asks for help without a connection, and again; the teacher answers
    student.context.set_offline(True)
    line.locator(".help").click()
    expect(line.get_by_role("alert")).to_contain_text("Not sent")
    student.context.set_offline(False)
    errors.clear()
    line.locator(".help").click()
    expect(line.get_by_role("alert")).to_have_count(0)
    expect(row.locator(".sign.help")).to_contain_text("needs help")
    row.locator(".helped").click()
    expect(row.locator(".sign.help")).to_have_count(0)

    # The teacher sends a preset; the student opens it and trains
    board.locator(".preset").select_option("digits-reversal")
    board.locator(".send-preset").click()
    problem = board.locator(".head + .problem")
    board.locator(".link").fill("http://localhost:7860/?tab=zzz")
    board.locator(".send-link").click()
    expect(problem).to_have_text("link: tab='zzz' is not one of the tabs")
    board.locator(".link").fill("https://example.org/?tab=train")
    board.locator(".send-link").click()
    expect(problem).to_have_text("This is not an address of this page with something to open.")
    expect(board.locator(".sent")).to_be_empty()
    board.locator(".link").fill("http://localhost:7860/?tab=lessons&lesson=queries")  # as in the documents
    board.locator(".send-link").click()
    expect(board.locator(".sent")).to_contain_text("Sent: the link.")
    expect(problem).to_be_empty()
    expect(line.locator(".handout")).to_contain_text("lesson")
    line.locator(".open-handout").click()
    (title,) = [lesson.title for lesson in attention_lessons() if lesson.name == "queries"]
    expect(row.locator(".lesson")).to_have_text(title)
    board.locator(".send-preset").click()
    expect(line.locator(".handout")).to_contain_text("digits-reversal")
    expect(line.locator(".help")).to_have_text("I need help")
    line.locator(".open-handout").click()
    expect(student.locator("#preset-picker input[value=digits-reversal]")).to_be_checked()
    expect(line).to_have_text(f"Class · {NICKNAME}I need help")
    assert student.evaluate(NOTHING_SIDEWAYS)
    (owner,) = [each.owner for each in runs.classes.taught_by(_teacher(runs)).students]
    run = runs.start(load_preset("tiny").with_changes(QUICK), owner=owner)
    runs.classes.add_run(owner, run)

    # The board shows the run, and opens it
    expect(row).to_contain_text("finished")
    expect(row.locator(".number").first).to_contain_text("60 / 60")
    with teacher.expect_download() as download:
        board.locator(".results").click()
    text = Path(download.value.path()).read_text("utf-8-sig")
    assert text.splitlines()[1].startswith(f"'{NICKNAME},{run.replace('-', ' ')},tiny,")
    row.locator(".open-run").click()
    expect(teacher.locator("#run-bar .title")).to_have_text(run.replace("-", " "))

    # The class ends
    teacher.locator("#run-bar .class").click()
    board.locator(".end").click()
    expect(board.locator(".end")).to_contain_text("Really end?")
    board.locator(".end").click()
    expect(board.locator(".open")).to_be_visible()
    expect(teacher.locator("#run-bar .title")).to_have_text(SHIPPED)  # the student's run was open
    expect(line).to_contain_text("You are no longer in the class")
    line.get_by_role("button").click()
    expect(line).to_be_hidden()
    assert runs.classes.attended_by(owner) is None
    assert errors == []


def _teacher(runs: Runs) -> str:
    (file,) = (runs.root / ".classes").glob("*.json")
    return file.read_text().split('"teacher":"')[1][:64]


def test_a_teacher_lets_students_in_one_by_one_and_removes_several(
    public: tuple[Runs, str], people: tuple[Page, Page, list[str]]
):
    _, address = public
    teacher, student, errors = people
    board = teacher.locator("dialog.lab-class_board")
    teacher.goto(address)
    teacher.locator("#run-bar .class").click()
    board.locator(".open").click()
    old = board.locator(".code").inner_text()
    board.locator(".new-code").click()
    expect(board.locator(".code")).not_to_have_text(old)
    board.locator("select.door").select_option("approval")
    student.goto(board.locator(".address").inner_text())
    entrance = student.locator("dialog.lab-class_board")
    entrance.locator(".nickname-input").fill("Anna")
    entrance.locator(".join button").click()
    expect(student.locator(".seat")).to_contain_text("waiting until your teacher lets you in")
    expect(board.locator(".waiting")).to_contain_text("1 waits to be let in")
    board.get_by_role("button", name="Admit Anna").click()
    expect(student.locator(".seat .help")).to_be_visible()
    expect(board.locator(".waiting")).to_be_hidden()
    board.get_by_role("checkbox", name="Choose Anna").check()
    expect(board.locator(".remove-chosen")).to_have_text("Remove the 1 chosen")
    board.locator(".remove-chosen").click()
    board.get_by_role("button", name="Really remove 1?").click()
    expect(board.locator(".empty")).to_be_visible()
    expect(student.locator(".seat")).to_contain_text("your teacher removed you")
    board.locator(".large").click()
    assert board.locator(".qr").evaluate("(picture) => picture.getBoundingClientRect().width") == 400
    expect(board.locator(".empty")).to_be_hidden()
    teacher.set_viewport_size({"width": 1366, "height": 768})
    assert board.evaluate("(dialog) => dialog.scrollHeight <= dialog.clientHeight")  # all of it is seen
    teacher.keyboard.press("Escape")
    teacher.locator("#run-bar .class").click()
    expect(board.locator(".empty")).to_be_visible()
    expect(board.locator(".large")).to_have_text("Show large")
    expect(board.locator(".large")).to_have_attribute("aria-pressed", "false")
    for size in (DESKTOP, PHONE):
        teacher.set_viewport_size(size)
        before = box_of(board.locator(".end"))
        board.locator(".end").click()
        expect(board.get_by_role("button", name="Really end?")).to_be_visible()
        expect(board.locator(".said")).to_have_text("Code, nicknames and board are deleted.")
        assert box_of(board.locator(".end")) == before  # where the second press goes
        teacher.keyboard.press("Escape")
        teacher.locator("#run-bar .class").click()
        expect(board.locator(".end")).to_have_text("End the class")
    assert errors == []


@pytest.mark.slow
def test_the_teacher_of_the_plan_sees_who_answered_what(public: tuple[Runs, str], people: tuple[Page, Page, list[str]]):
    """A class of 45 minutes: the student follows the plan's links and answers each lesson's first question wrong."""
    runs, address = public
    shutil.copytree(DEFAULT_ROOT / TRANSLATOR, runs.root / TRANSLATOR)
    teacher, student, errors = people
    teacher.goto(address)
    teacher.locator("#run-bar .class").click()
    board = teacher.locator("dialog.lab-class_board")
    board.locator(".open").click()
    student.goto(board.locator(".address").inner_text())
    entrance = student.locator("dialog.lab-class_board")
    entrance.locator(".nickname-input").fill("Ana")
    entrance.locator(".join button").click()
    expect(student.locator(".seat")).to_contain_text("Ana")
    lessons = {lesson.name: lesson for lesson in attention_lessons()}
    plan = (REPOSITORY / "docs" / "teaching.md").read_text()
    links = re.findall(r"\| \[`(\?\S+)`\]", plan)
    for link in links:
        student.goto(f"{address}{link}")
        name = dict(parse_qsl(link[1:])).get("lesson", "")
        for at, question in enumerate(lessons[name].questions if name in lessons else ()):
            form = student.locator(f"#lesson form[data-question={question.id}]")
            if question.number:
                form.locator("input").fill(str(question.number.value + 100 * (at == 0)))
            else:
                given = next(n for n, each in enumerate(question.choices) if each.correct != (at == 0))
                form.locator("input").nth(given).check()
            form.get_by_role("button", name="Check").click()
            expect(form.locator(".result")).to_contain_text("✗" if at == 0 else "✓")
    expect(board.locator("tr[data-student] .lesson")).to_have_text("no causal mask")
    walked = [lesson for name, lesson in lessons.items() if f"lesson={name}" in " ".join(links)]
    assert len(walked) >= 6
    assert all(f"lesson={name}`" in plan for name in lessons)  # the others are in what follows the plan
    answers = board.locator(".answers")
    answers.locator("summary").click()
    marks = [mark for lesson in walked for mark in ("✗", *["✓"] * (len(lesson.questions) - 1))]
    unanswered = ["·"] * sum(len(lesson.questions) for lesson in lessons.values() if lesson not in walked)
    expect(answers.locator("tbody td")).to_have_text(marks + unanswered)
    first = walked[0].questions[0]
    answers.locator("thead button").first.click()
    expect(answers.locator(".asked")).to_contain_text(first.text)
    expect(answers.locator(".asked li")).to_contain_text("— 1: Ana")
    with teacher.expect_download() as download:
        board.locator(".answers-file").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"))))
    assert [row["question"] for row in rows] == [each.text for lesson in walked for each in lesson.questions]
    assert [row["right"] for row in rows] == ["no" if mark == "✗" else "yes" for mark in marks]
    assert {row["nickname"] for row in rows} == {"Ana"}
    assert errors == []
