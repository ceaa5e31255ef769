"""The HTTP API, used by a client."""

from datetime import UTC, datetime, timedelta

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from core.server import Runs
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for_status


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    """A client of the served page."""
    return Client(address, verbose=False)


@pytest.fixture
def few_inputs(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports and comparisons measure 100 inputs."""
    monkeypatch.setattr("ui.api.SEQUENCES", 100)
    monkeypatch.setattr("ui.tabs.compare.SEQUENCES", 100)
    monkeypatch.setattr("ui.tabs.compare.INPUTS_PER_LENGTH", 10)


def test_a_client_can_train_decode_inspect_report_and_compare(client: Client, runs: Runs, few_inputs: None):
    assert [run["id"] for run in client.predict(api_name="/list_runs")["runs"]][-1] == SHIPPED

    small = {"model.max_seq_len": 12, "training.learning_rate": 0.01, "training.evaluate_every": 20}
    run = client.predict("tiny", small | {"training.steps": 60, "training.warmup_steps": 10}, api_name="/train")["run"]
    wait_for_status(runs, run, "finished")
    progress = client.predict(run, -1, api_name="/progress")
    assert progress["status"] == "finished"
    assert run == "tiny-1"
    assert client.predict(run, " My first run ", api_name="/rename_run") == {"run": run, "title": "My first run"}
    listed = client.predict(api_name="/list_runs")["runs"][0]
    assert (listed["id"], listed["title"], listed["preset"]) == (run, "My first run", "tiny")
    assert listed["task"] == "reverse 2–5 digits"
    assert datetime.now(UTC) - datetime.fromisoformat(listed["created"]) < timedelta(minutes=5)
    assert progress["points"]["step"] == list(range(1, 61))
    assert progress["evaluations"]["step"] == list(range(0, 61, 20))
    losses = progress["points"]["loss"]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])

    answer = client.predict(run, "1 2 3", api_name="/decode")
    assert answer["expected"] == ["3", "2", "1"]
    best = client.predict(run, "1 2 3", {"kind": "beam", "beam_size": 3, "n_best": 2}, "3", api_name="/decode")
    assert len(best["n_best"]) == 2
    assert best["steps"][0]["forced"]
    heads = client.predict(SHIPPED, "4 8 2 9", "encoder", 1, api_name="/attention")["heads"]
    assert len(heads) == 4
    assert len(heads[0]["weights"]) == 6
    without = client.predict(SHIPPED, "4 8 2 9", {}, "", "cross.1.2", "", "mean", api_name="/decode")
    assert without["output"] != without["expected"]
    forced = client.predict(SHIPPED, "4 8 2 9", "cross", 1, "", "cross.1.2=position 0", api_name="/attention")["heads"]
    assert [row[0] for row in forced[1]["weights"]] == [1] * len(forced[1]["weights"])
    worth = client.predict(run, api_name="/head_importance")
    assert (worth["sequences"], worth["ablate_with"], len(worth["heads"])) == (500, "zero", 9)
    report = client.predict(run, api_name="/report")
    assert report["markdown"].startswith(f"# Report: My first run\n\n**{report['summary']}**")

    short = {"training.steps": 5, "training.warmup_steps": 1, "training.seed": 1}
    other = client.predict("tiny", small | short, api_name="/train")["run"]
    wait_for_status(runs, other, "finished")
    tuned = client.predict("", short, run, api_name="/train")["run"]  # with the preset of the run that it begins from
    begun = next(each for each in client.predict(api_name="/list_runs")["runs"] if each["id"] == tuned)
    assert (begun["preset"], begun["steps"], run.startswith(begun["start_from"])) == ("tiny", 5, True)
    compared = client.predict([run, other], api_name="/compare")
    assert [each["run"] for each in compared["runs"]] == [run, other]
    assert compared["pairs"][0]["wins"] > compared["pairs"][0]["losses"]


@pytest.mark.parametrize(
    ("endpoint", "arguments", "part"),
    [
        ("/train", ("tiny", {"model.d_model": 31}), "d_model=31"),
        ("/train", ("../secret", {}), "preset="),
        ("/train", ("", {}, "nobodys"), "no such run"),
        ("/train", ("tiny", {}, SHIPPED), "model.d_model=32, and digits-reversal-shipped has 64"),
        ("/decode", ("../../x", "1"), "is not a valid name"),
        (
            "/decode",
            (SHIPPED, "1", {"kind": "beam", "beam_size": 99}),
            "beam_size=99 should be less than or equal to 32",
        ),
        ("/decode", (SHIPPED, "1", {}, "x"), "prefix: 'x' at position 1"),
        ("/attention", (SHIPPED, "1 2 3", "cross", 7), "layer=7"),
        ("/decode", (SHIPPED, "1", {}, "", "cross.9"), "ablate=cross.9 is not in this model"),
        ("/attention", (SHIPPED, "1", "cross", 1, "", "cross.1.1"), "must be HEAD=PATTERN"),
        ("/head_importance", (SHIPPED, "median"), "ablation='median' is not one of zero, mean"),
        ("/stop", (SHIPPED,), "is not training"),
        ("/rename_run", (SHIPPED, "Mine"), "is shipped with the program and cannot be renamed"),
        ("/resume", (SHIPPED,), "is shipped with the program"),
        ("/compare", ([SHIPPED],), "select 2 to 10 runs of one task to compare; 1 selected"),
    ],
)
def test_invalid_requests_are_explained(client: Client, endpoint: str, arguments: tuple, part: str):
    with pytest.raises(AppError) as raised:
        client.predict(*arguments, api_name=endpoint)
    assert part in str(raised.value)


def test_only_the_documented_endpoints_are_public(client: Client):
    named = client.view_api(return_format="dict")["named_endpoints"]
    actions = "list_runs train stop resume rename_run progress decode attention report compare head_importance"
    assert set(named) == {f"/{name}" for name in actions.split()}
