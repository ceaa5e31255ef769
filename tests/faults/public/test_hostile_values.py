"""Every public endpoint answers invalid values with an error message."""

import json
from collections.abc import Callable

import httpx
import pytest

from tests.faults.public.conftest import Public
from tests.faults.public.session import Session, reports_a_bug
from tests.serving import SHIPPED

GOOD = {
    "run": SHIPPED,
    "names": [SHIPPED, SHIPPED],
    "input": "4829",
    "block": "cross",
    "layer": 1,
    "preset": "tiny",
} | {"title": "Mine"}
BAD = [
    None,
    True,
    -1,
    10**400,
    1.5,
    "",
    "x" * 1_000_000,
    "../../etc/passwd",
    "\ud800",
    "a\x00b",
    "\u202egnp.exe",
    "<img src=x onerror=alert(1)>",
    "${alert(1)} {{7*7}}",
    "'; DROP TABLE runs; --",
    [],
    [[[["x"]]]] * 50,
    {"a": {"b": {"c": None}}},
    {"__proto__": {"admin": True}, "training.steps": "NaN"},
]
HELD = {"since_step": -1, "since_evaluation": -1, "step_width": 0, "evaluation_width": 0}
LESSON = {"lesson": "tokens", "input": "4829"}
SHOWN = {"run": SHIPPED, "source": ["<BOS>", "4", "<EOS>"], "tokens": ["4", "<EOS>"], "ablate": [], "patterns": []}
BASE = {"preset": "tiny", "document": "", "set": {"training.steps": 20}}
AXIS = {"key": "training.learning_rate", "kind": "values", "values": "0.001, 0.002", "low": "", "high": "", "step": ""}
DRAFT = {"name": "mine", "base": BASE, "axes": [AXIS], "seeds": "1", "metric": "validation_loss", "budget": "preset"}
DRAFT |= {"amount": "", "search": "grid", "trials": "", "pruning": "none", "jobs": "1"}
# Valid arguments of the components' functions, in which one field at a time is replaced; {"run": …} for the others.
# Where two components have a function of a name, that of the second begins with its id.
REQUESTS = {
    "list_runs": {"search": "tiny", "task": ""},
    "runs_by_task": {"search": "tiny", "keep": [SHIPPED]},
    "lesson": {"name": "mask"},
    "symptoms": {"name": "symptoms"},
    "picture": {"title": "a", "rows": ["x"], "columns": ["y"], "weights": [[1.0]], "marked": []},
    "feed": {"run": SHIPPED} | HELD | {"since_snapshot": -1, "known_snapshots": 0, "block": "", "input": 0},
    "snapshot": {"run": SHIPPED, "step": 0, "block": "", "input": 0},
    "rename": {"run": SHIPPED, "title": "Mine"},
    "times": {"presets": ["tiny"], "chosen": "tiny"},
    "replay": {"run": SHIPPED, "since": -1} | HELD,
    "share": {"run": SHIPPED, "shared": False},
    "attention_lesson": {"name": "tokens"},
    "snapshots": {"name": "tokens"},
    "vectors": LESSON,
    "scores": LESSON,
    "decode": LESSON,
    "reading": LESSON,
    "orders": LESSON | {"other": "9284"},
    "causality": LESSON | {"masked": True},
    "padding": LESSON | {"masked": True, "num_pad": 3},
    "ablation": LESSON | {"ablate": "cross.2.1"},
    "text": LESSON,
    "class_role": {},
    "class_open": {},
    "class_code": {"address": "https://example.org/"},
    "class_board": {},
    "class_send": {"parameters": {"tab": "train"}},
    "class_helped": {"number": 1},
    "class_remove": {"numbers": [1]},
    "class_admit": {"numbers": [1]},
    "class_door": {"door": "locked"},
    "class_new_code": {"address": "https://example.org/"},
    "class_stop": {"number": 1},
    "class_results": {},
    "class_answers": {},
    "class_questions": {},
    "class_join": {"code": "ABCD2345", "nickname": "Anna"},
    "class_help": {"wanted": True},
    "class_leave": {},
    "class_end": {},
    "still_open": {},
    "health": {"run": SHIPPED, "since": -1},
    "part": SHOWN | {"part": "encoder.1.mlp", "training_step": None},
    "cell": SHOWN | {"block": "cross", "layer": 1, "head": 1, "row": 0, "column": 0, "training_step": None},
    "why": SHOWN | {"method": "tokens", "step": 0, "foil": None, "position": None, "replacement": None},
    "plan": {"draft": DRAFT},
    "estimate": {"draft": DRAFT},
    "start": {"draft": DRAFT, "sure": False},
    "yaml": {"draft": DRAFT},
    "open_file": {"text": "preset: tiny", "base": BASE},
    "sweep.resume": {"sweep": "mine", "jobs": 1},
    "sweep.stop": {"sweep": "mine"},
    "stop_trial": {"sweep": "mine", "trial": "1"},
    "edit": {"sweep": "mine"},
    "sweeps": {},
    "sweep.progress": {"sweep": "mine", "version": ""},
    "rows": {"sweep": "mine", "start": 0},
    "heat": {"sweep": "mine", "row": "training.learning_rate", "column": "training.seed"},
    "curves": {"sweep": "mine", "trials": ["1"]},
    "trial": {"sweep": "mine", "trial": "1"},
    "table": {"sweep": "mine", "format": "csv"},
}


@pytest.fixture(scope="module")
def visitor(visit: Callable[[], Session]) -> Session:
    return visit()


def test_every_endpoint_answers_bad_values_with_a_message(visitor: Session):
    for endpoint, parameters in visitor.endpoints().items():
        names = [each["parameter_name"] for each in parameters]
        defaults = {each["parameter_name"]: each.get("parameter_default") for each in parameters}
        for name in names:
            good = {each: GOOD.get(each, defaults[each]) for each in names}
            for bad in BAD:
                if bad in (good[name], defaults[name]) and type(bad) is type(good[name]):
                    continue  # an empty prefix, for example, is valid
                answer = visitor.call(endpoint, *(good | {name: bad}).values())
                what = f"{endpoint}({name}={str(bad)[:40]!r}): {json.dumps(answer)[:300]}"
                assert answer["status"] == 200, what
                if answer["event"] == "complete":
                    assert harmless(endpoint, name, bad), what
                    continue
                assert answer["event"] == "error", what
                message = answer["data"]
                assert isinstance(message["error"] if isinstance(message, dict) else message, str), what
                assert len(json.dumps(message)) < 1_000, what
                assert not reports_a_bug(json.dumps(message)), what


def harmless(endpoint: str, name: str, bad: object) -> bool:
    """Whether a value from BAD is valid for this parameter: no changes, an empty prefix, no heads, any step."""
    if name == "since_step":
        return type(bad) is int
    return bad in ({}, "") and name in ("changes", "strategy", "prefix", "ablate", "pattern")


@pytest.mark.parametrize("count", [0, 1, 20])
def test_a_wrong_number_of_values_is_answered_with_a_message(visitor: Session, count: int):
    answer = visitor.call("decode", *["x"] * count)
    assert answer["event"] == "error"
    assert isinstance(answer["data"]["error"], str)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'{"data": 3}', b'{"data": null}', b"\xff\xfe", b'{"data": [' + b"[" * 5_000]
)
def test_malformed_request_bodies_are_refused(visitor: Session, body: bytes):
    for path in ("call/decode", "queue/join", "component_server/", "run/decode"):
        answer = visitor.http.post(f"/gradio_api/{path}", content=body, headers={"content-type": "application/json"})
        assert 400 <= answer.status_code < 500, (path, answer.text[:200])


def request_for(visitor: Session, component: int, name: str) -> dict:
    """Return a valid argument of a component's function."""
    props = next(each["props"] for each in visitor.config["components"] if each["id"] == component)
    return REQUESTS.get(f"{props['elem_id']}.{name}") or REQUESTS.get(name, {"run": SHIPPED})


def test_each_function_of_a_component_has_a_request_here_that_is_valid(visitor: Session):
    """Otherwise the other tests reach no further than the check of the first wrong field."""
    for component, name in visitor.server_functions():
        answer = visitor.call_component(component, name, request_for(visitor, component, name)).json()
        assert "invalid request" not in str(answer.get("error", "")), name


def test_component_functions_answer_bad_values_with_a_message(visitor: Session):
    for component, name in visitor.server_functions():
        request = request_for(visitor, component, name)
        for bad in [bad for bad in BAD if bad != 10**400]:
            for argument in (bad, *(request | {field: bad} for field in request)):
                answer = visitor.call_component(component, name, argument)
                if answer.status_code == 413:
                    continue  # two million characters are refused unread
                assert answer.status_code == 200, (name, argument)
                assert isinstance(answer.json(), dict), (name, argument)
                assert not reports_a_bug(answer.text), (name, argument)


def test_the_server_still_decodes_after_all_that(public: Public, visitor: Session):
    answer = visitor.call("decode", SHIPPED, "4829", {}, "", "", "", "zero")
    assert answer["data"][0]["output"] == list("9284")
    assert httpx.get(f"{public.address}health").json()["ok"] is True
