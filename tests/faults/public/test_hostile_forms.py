"""Every form of the page answers hostile values with a message: also those that only a single user's page has."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from core.server import Runs
from tests.faults.public.session import Session, reports_a_bug
from tests.faults.public.test_hostile_values import BAD, request_for
from ui.serving.launch import serve

SENT = ("run", "step", "text", "head", "block", "layer", "lesson", "name")  # with events
VALUES = [bad for bad in BAD if bad != 10**400]


def hostile(good: Any) -> Iterator[Any]:
    """Yield a request in which one value at a time, however deep, is replaced by each hostile one."""
    if isinstance(good, dict | list):
        for key in good if isinstance(good, dict) else range(len(good)):
            for bad in [*VALUES, *hostile(good[key])] if isinstance(good[key], dict | list) else VALUES:
                changed = good.copy()
                changed[key] = bad
                yield changed


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Runs]]:
    """The page of a single user, with the forms for sweeps and for paths of this computer."""
    runs = Runs(tmp_path_factory.mktemp("checkpoints"))
    page, address = serve(runs)
    session = Session(address)
    yield session, runs
    session.close()
    runs.close()
    page.close(verbose=False)


@pytest.mark.parametrize("name", ["plan", "yaml", "open_file", "progress", "rows", "heat", "curves", "trial", "table"])
def test_the_forms_of_sweeps_answer_hostile_values_with_a_message(own, name: str):
    session, runs = own
    (component,) = (each["id"] for each in session.config["components"] if each["props"].get("elem_id") == "sweep")
    answers = []
    for request in hostile(request_for(session, component, name)):
        answer = session.call_component(component, name, request)
        if answer.status_code == 413:
            continue  # millions of characters are refused unread
        assert answer.status_code == 200, str(request)[:300]
        assert isinstance(answer.json(), dict), str(request)[:300]
        assert not reports_a_bug(answer.text), (str(request)[:300], answer.text[:300])
        answers.append(answer.json())
    assert not runs.sweeps.active()
    assert any("error" in each or "problems" in each for each in answers)


def test_every_event_of_the_page_answers_hostile_values_with_a_message(own, capsys):
    """All inputs of an event, and what its script sends with it, get the same value, so that each form meets each."""
    session, _ = own
    for position, dependency in enumerate(session.config["dependencies"]):
        for bad in VALUES[position % 3 :: 3]:  # a third of them each: all would take minutes
            if isinstance(bad, str) and len(bad) > 100_000:
                bad = bad[:5_000]  # many inputs of a million characters are more than a request may have
            data, sent = [bad] * len(dependency["inputs"]), dict.fromkeys(SENT, bad) if bad else None
            answer = session.http.post(
                "/gradio_api/queue/join",
                content=json.dumps(
                    {"data": data, "event_data": sent, "fn_index": dependency["id"], "session_hash": session.hash}
                ),
                headers={"content-type": "application/json"},
            )
            what = f"event {dependency['id']} of {dependency['targets']}: {str(bad)[:40]!r}"
            assert answer.status_code == 200, (what, answer.text[:300])
            answers = list(session._messages(answer.json()["event_id"]))
            messages = json.dumps(answers)
            assert "process_completed" in messages, what
            assert not reports_a_bug(messages), (what, messages[:1_000])
            errors = [each["output"].get("error") for each in answers if each["msg"] == "process_completed"]
            assert "<img" not in str(errors), what  # Gradio shows errors as HTML
    assert "Traceback" not in capsys.readouterr().err
