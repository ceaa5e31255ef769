"""A visitor cannot reach another's private run by id, link, API, path, session or script."""

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from gradio_client import Client

from core.runs import RunFolder
from tests.faults.public.conftest import Public
from tests.faults.public.session import Session
from tests.serving import SHIPPED
from ui.serving.assets import asset_address

SEED = 424_242_421  # of the private run: must appear in no response to another visitor
MISSING = "tiny-1-aaaaaaaaaaaaaaaaaaaaaaaa"
BAR = {"feed", "snapshot", "actions", "stop", "resume", "rename", "share", "delete"}
ABOUT_A_RUN = BAR | {
    "replay",
    "saved",
    "bundle",
    "examine",
    "parts",
    "diagram",
    "health",
}  # the components' functions that take a run


@dataclass(frozen=True)
class Reach:
    """Anna's private run, her session, and the session of Ben, another visitor."""

    run: str
    anna: Session
    ben: Session


@pytest.fixture(scope="module")
def reach(public: Public, visit: Callable[[], Session], brief: dict[str, int]) -> Reach:
    anna, ben = visit(), visit()
    run = anna.call("train", "tiny", brief | {"training.seed": SEED}, "")["data"][0]["run"]
    while anna.call("progress", run, -1)["data"][0]["status"] not in ("finished", "failed"):
        time.sleep(0.2)
    assert str(SEED) in json.dumps(anna.call("report", run))
    return Reach(run, anna, ben)


def arguments(endpoint: str, parameters: list[dict[str, Any]], run: str) -> list[Any]:
    """Return arguments that are valid for the run's owner."""
    given = {"run": run, "names": [run, SHIPPED], "input": "4829", "block": "cross", "layer": 1, "preset": "tiny"}
    given["title"] = "Mine"
    return [given.get(each["parameter_name"], each.get("parameter_default")) for each in parameters]


def test_every_endpoint_answers_as_if_the_run_did_not_exist(reach: Reach):
    tried = 0
    for endpoint, parameters in reach.ben.endpoints().items():
        if not {"run", "names"} & {each["parameter_name"] for each in parameters}:
            continue
        private = reach.ben.call(endpoint, *arguments(endpoint, parameters, reach.run))
        missing = reach.ben.call(endpoint, *arguments(endpoint, parameters, MISSING))
        assert private["event"] == "error", endpoint
        assert json.dumps(private) == json.dumps(missing).replace(MISSING, reach.run), endpoint
        assert "there is no such run" in json.dumps(private)
        tried += 1
    assert tried >= 8


def test_the_list_shows_each_visitor_only_their_own_runs(reach: Reach):
    def listed(session: Session) -> list[str]:
        return [each["id"] for each in session.call("list_runs")["data"][0]["runs"]]

    assert listed(reach.anna) == [reach.run, SHIPPED]
    assert listed(reach.ben) == [SHIPPED]


def test_every_component_function_refuses_another_visitors_run(reach: Reach):
    functions = reach.ben.server_functions()
    assert ABOUT_A_RUN | {"list_runs"} <= {name for _, name in functions}
    arguments_tried = [{"run": reach.run}, {"current": reach.run}, reach.run]
    arguments_tried += [{"run": reach.run} | rest for rest in ({"shared": True}, {"title": "Mine"}, {"step": 60})]
    refused = set()
    for component, name in functions:
        for argument in arguments_tried:
            answer = reach.ben.call_component(component, name, argument)
            assert answer.status_code == 200
            assert str(SEED) not in answer.text, name
            assert "error" in answer.text or name == "list_runs", name
            assert reach.run not in json.dumps(answer.json().get("runs", [])), name
            refused |= {name} if "there is no such run" in answer.text else set()
    assert refused == ABOUT_A_RUN
    of = {name: component for component, name in functions}
    seen_by_owner = reach.anna.call_component(of["feed"], "feed", {"run": reach.run}).json()
    assert seen_by_owner["step"] == 60


def test_no_page_event_reveals_the_run_when_given_its_id(reach: Reach):
    """Trigger every event of Ben's page with the run's id as input, selection and query."""
    messages = []
    for dependency in reach.ben.config["dependencies"]:
        data = [reach.run if index % 2 else None for index in range(len(dependency["inputs"]))]
        for values in ([None] * len(data), data):
            query, event_data = (
                f"?run={reach.run}&tab=report&compare={reach.run},{SHIPPED}",
                {"run": reach.run, "name": "x"},
            )
            messages += reach.ben.trigger(dependency["id"], values, event_data=event_data, query=query)
            assert not [each for each in messages if each.get("status", 0) >= 500]
    text = json.dumps(messages)
    assert str(SEED) not in text
    assert "tiny" not in [each for each in text.split() if reach.run in each]
    assert len(messages) > len(reach.ben.config["dependencies"])


def test_another_visitors_session_cannot_be_used(reach: Reach):
    own = reach.anna.trigger(reach.anna.config["dependencies"][0]["id"], [])
    assert own
    thief = Session(str(reach.ben.http.base_url))
    thief.hash = reach.anna.hash
    body = {"data": [], "fn_index": reach.anna.config["dependencies"][0]["id"], "session_hash": reach.anna.hash}
    assert "belongs to another visitor" in thief.http.post("/gradio_api/run/predict", json=body).text
    assert reach.anna.http.post("/gradio_api/run/predict", json=body).status_code == 200
    assert thief.http.get("/gradio_api/queue/data", params={"session_hash": reach.anna.hash}).status_code == 403


def test_no_path_serves_the_run_to_another_visitor(public: Public, reach: Reach):
    folder = RunFolder(public.runs.root, reach.run).path
    files = [str(file) for file in folder.rglob("*") if file.is_file()]
    relative = os.path.relpath(folder / "run.json")
    paths = [f"/download/{reach.run}", f"/download/../{reach.run}", f"/checkpoints/{reach.run}/run.json"]
    for file in [*files, relative, f"{public.uploads}/../{folder.name}"]:
        paths += [f"/file={file}", f"/gradio_api/file={file}", f"/gradio_api/file/{file}", f"/static/{file}"]
        paths += [f"/gradio_api/file=%2e%2e/{file}", f"/assets/../../{file}", f"/gradio_api/proxy=file://{file}"]
    for path in paths:
        answer = reach.ben.http.get(path)
        assert 400 <= answer.status_code < 500, path
        assert str(SEED) not in answer.text, path
    assert reach.anna.http.get(f"/download/{reach.run}").status_code == 200


@pytest.mark.parametrize("cookie", ["", "x", "0" * 43, "a" * 42 + "é", '"; drop', "../../etc", "null"])
def test_a_forged_cookie_is_refused(public: Public, reach: Reach, cookie: str):
    headers = {"cookie": f"attention-lab-visitor={cookie}".encode()}
    answer = httpx.get(f"{public.address}download/{reach.run}", headers=headers)
    assert answer.status_code == 404


def test_the_cookie_is_http_only_random_and_lasting(public: Public):
    first, second = (httpx.get(public.address) for _ in range(2))
    for answer in (first, second):
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Max-Age=34560000" in cookie
    assert first.cookies["attention-lab-visitor"] != second.cookies["attention-lab-visitor"]
    assert len(first.cookies["attention-lab-visitor"]) == 43  # 256 bits
    https = httpx.get(public.address, headers={"x-forwarded-proto": "https"}).headers["set-cookie"]
    assert "SameSite=None; Secure; Partitioned" in https


def test_a_reload_and_a_second_tab_are_the_same_visitor(public: Public, reach: Reach):
    again = Session(public.address)
    again.http.cookies = reach.anna.http.cookies
    again.hash = "another-tab"
    assert reach.run in json.dumps(again.call("list_runs"))
    again.close()


def test_cross_site_requests_are_refused(reach: Reach):
    headers = {"sec-fetch-site": "cross-site", "origin": "https://elsewhere.example"}
    for path in ("/gradio_api/call/stop", "/gradio_api/component_server/", "/gradio_api/upload"):
        assert reach.anna.http.post(path, json={"data": [reach.run]}, headers=headers).status_code == 403


def test_files_that_caches_may_keep_carry_no_cookie(public: Public):
    files = re.findall(r'"(?:\./)?(assets/[^"\\]*)', httpx.get(public.address).text)
    assert files
    for file in [*files, asset_address("web/page.js"), asset_address("lab.css"), "theme.css", "static/img/logo.svg"]:
        answer = httpx.get(public.address + file)
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
    for path in ("", "config", "gradio_api/info", "health"):
        answer = httpx.get(public.address + path)
        assert "set-cookie" in answer.headers
        assert answer.headers["cache-control"] == "no-store"


def test_a_public_page_may_be_framed_as_on_a_space(public: Public):
    headers = httpx.get(public.address).headers
    assert "frame-ancestors" not in headers["content-security-policy"]
    assert "x-frame-options" not in headers


def test_a_client_keeps_access_while_it_keeps_its_cookie(public: Public):
    first, second = (Client(public.address, verbose=False) for _ in range(2))
    run = first.predict("tiny", {"training.steps": 2, "training.warmup_steps": 0}, api_name="/train")["run"]
    assert first.predict(run, -1, api_name="/progress")["run"] == run
    with pytest.raises(Exception, match="there is no such run"):
        second.predict(run, -1, api_name="/progress")
    third = Client(public.address, verbose=False, httpx_kwargs={"cookies": dict(first.cookies)})
    assert third.predict(run, -1, api_name="/progress")["run"] == run


def test_a_shared_run_can_be_read_but_not_changed(reach: Reach):
    shares = next(each for each in reach.anna.server_functions() if each[1] == "share")
    assert reach.anna.call_component(*shares, {"run": reach.run, "shared": True}).json()["shared"] is True
    try:
        assert reach.ben.call("decode", reach.run, "482", {}, "", "", "", "zero")["event"] == "complete"
        assert reach.ben.http.get(f"/download/{reach.run}").status_code == 200
        for endpoint in ("stop", "resume"):
            assert "is not yours" in json.dumps(reach.ben.call(endpoint, reach.run))
        assert "is not yours" in json.dumps(reach.ben.call("rename_run", reach.run, "Ours"))
        changes: dict[str, dict] = {"stop": {}, "resume": {}, "delete": {}, "share": {"shared": False}}
        for name, rest in (changes | {"rename": {"title": "Ours"}}).items():
            function = next(each for each in reach.ben.server_functions() if each[1] == name)
            assert "is not yours" in reach.ben.call_component(*function, {"run": reach.run} | rest).text
    finally:
        assert reach.anna.call_component(*shares, {"run": reach.run, "shared": False}).json()["shared"] is False
    assert "there is no such run" in json.dumps(reach.ben.call("progress", reach.run, -1))
