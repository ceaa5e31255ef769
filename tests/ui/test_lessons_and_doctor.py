"""The lessons and the doctor's findings on the page."""

from types import SimpleNamespace

import pytest

from core.server import Runs
from core.server.access import VisitorRuns
from core.tasks import build_task
from core.teaching.bugs import new_state
from core.teaching.doctor import Examination
from core.teaching.lessons import lesson_names
from tests.serving import SHIPPED
from tests.ui.server_functions import call
from ui.components.doctor import doctor
from ui.components.lesson import lesson_view
from ui.tabs.lessons import train_pair


def test_every_lesson_has_text_both_runs_and_titles(runs):
    view = lesson_view(VisitorRuns(runs))
    for name in lesson_names():
        value = call(view, "lesson", {"name": name})
        assert value["name"] == name
        assert all(value["text"].values()), name
        assert value["sides"]["broken"]["titles"] == [value["title"]]
        assert value["sides"]["right"]["titles"] == [], name
        assert value["blocks"], name


def test_every_second_piece_of_a_paragraph_is_code(runs):
    view = lesson_view(VisitorRuns(runs))
    pieces = call(view, "lesson", {"name": "no-eos-in-targets"})["text"]["The fix"][0]
    assert len(pieces) % 2 == 1
    code = call(view, "lesson", {"name": "softmax-over-queries"})["text"]["The fix"][0][1]
    assert code == "softmax(dim=-1)"


def test_a_link_to_a_lesson_that_does_not_exist_says_so(runs):
    assert call(lesson_view(VisitorRuns(runs)), "lesson", {"name": "tokenz"}) == {
        "error": "There is no lesson “tokenz”."
    }


@pytest.mark.parametrize("request_", [{"name": "../x"}, {}, {"name": "a" * 500}, {"name": 3}])
def test_malformed_lesson_requests_return_an_error(request_, runs):
    assert set(call(lesson_view(VisitorRuns(runs)), "lesson", request_)) == {"error"}


def test_the_pair_of_a_lesson_starts_under_unused_names(root, monkeypatch):
    monkeypatch.setattr("core.server.workers.WorkerPool._start_workers", lambda slots: None)  # they wait in the queue
    runs = VisitorRuns(Runs(root))
    updates = train_pair(runs, "no-residual")
    assert updates["run"] == "no-residual-broken"
    assert "no-residual-right" in updates["message"]["text"]
    assert train_pair(runs, "no-residual")["run"] == "no-residual-broken-2"
    assert runs["no-residual-broken"].preset.bug == "no-residual"
    assert runs["no-residual-right"].preset.bug is None
    assert train_pair(runs, "nothing")["message"]["problem"]


def test_the_doctor_examines_the_same_weights_once(runs, monkeypatch):
    name = SHIPPED
    doctor_component, calls = doctor(runs), []
    import ui.components.doctor as panel

    examined = panel.examine_state
    monkeypatch.setattr(panel, "examine_state", lambda *given: calls.append(given[0]) or examined(*given))
    first = call(doctor_component, "examine", {"run": name})
    assert first["titles"] == []
    assert not first["training"]
    assert {each["light"] for each in first["findings"]} == {"green"}
    assert call(doctor_component, "examine", {"run": name}) == first
    assert calls == [name]
    assert set(call(doctor_component, "examine", {"run": "nobody"})) == {"error"}
    assert set(call(doctor_component, "examine", {"who": name})) == {"error"}


def test_the_doctor_pauses_between_examinations_of_a_training_run(tiny, monkeypatch):
    run = SimpleNamespace(status="training", step=0, model=new_state(tiny).model)
    task = build_task(tiny.task)

    class It:
        name, title, preset, history = "it", "It", tiny, None
        replay = SimpleNamespace(snapshots=list)
        info = property(lambda self: SimpleNamespace(status=run.status))

        def task(self):
            return task

        def trained(self):
            return SimpleNamespace(kind="latest", step=run.step, model=run.model, preset=tiny, task=task)

    runs = {"it": It()}

    def examined(name, state, history, course):
        run.now += 1
        return Examination(name, state.step, (), seconds=1.0)

    monkeypatch.setattr("ui.components.doctor.examine_state", examined)
    monkeypatch.setattr("ui.components.doctor.time", SimpleNamespace(monotonic=lambda: run.now))
    doctor_component, steps = doctor(runs), []
    for run.now, run.step, run.status in (
        (100, 5, "training"),
        (120, 6, "training"),  # twenty times the second that it took are not over
        (122, 7, "training"),
        (124, 8, "training"),
        (125, 9, "finished"),  # what is over is examined at once
    ):
        steps.append(call(doctor_component, "examine", {"run": "it"})["step"])
    assert steps == [5, 5, 7, 7, 9]


def test_the_doctor_refuses_large_models(runs, monkeypatch):
    monkeypatch.setattr("ui.components.doctor.MAX_PARAMETERS", 1_000)
    assert "too large" in call(doctor(runs), "examine", {"run": SHIPPED})["error"]
