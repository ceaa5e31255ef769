"""The bar: the feed of the current run, its snapshots, and who may stop, rename, download, share and delete a run."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.interpret.snapshots import Snapshot
from core.runs import DEFAULT_ROOT, RunFolder, RunQuality
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.server.limits import PUBLIC
from core.server.ownership import Ownership, write_ownership
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for, wait_for_status
from tests.support.translation_run import small_translation
from tests.ui.packed import unpacked
from tests.ui.server_functions import call
from ui import page
from ui.components.run_bar import run_bar, snapshot_value
from ui.tabs import train

SUFFIX = "a1b2c3d4e5f6a1b2c3d4e5f6"
MAX_UPDATE = 5_000  # bytes of the answer to a poll that brings a snapshot of eight heads
MAX_NO_NEWS = 1_500  # of one that brings nothing, twice a second


class Bar:
    """The bar of a visitor: its server functions by name."""

    def __init__(self, runs: Runs, visitor: Visitor | None = None) -> None:
        self.component = run_bar(VisitorRuns(runs, None if visitor is None else lambda: visitor))

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        return lambda **argument: call(self.component, name, argument)

    @property
    def names(self) -> list[str]:
        """Those about runs; tests/ui/test_class_board.py has those about classes."""
        names = [function.__name__ for function in self.component.server_fns]
        return [name for name in names if not name.startswith("class_")]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A public server with the shipped run."""
    shutil.copytree(DEFAULT_ROOT / SHIPPED, tmp_path / SHIPPED)
    return Runs(tmp_path, limits=PUBLIC)


def with_weights(runs: Runs, preset, name: str, owner: str | None = None) -> RunFolder:
    """Add a stopped run."""
    folder = RunFolder.create(runs.root, preset, name=name, status="stopped")
    shutil.copy(runs.root / SHIPPED / "best.safetensors", folder.best)
    write_ownership(folder, Ownership(owner=owner))
    return folder


# ---- the menu


def test_a_single_user_can_do_everything_but_share(runs: Runs, tiny):
    with_weights(runs, tiny, "mine")
    files = {"file": "download/mine", "package": "download/mine.zip"}
    rights = {"shared": None, "renamable": True, "deletable": True}
    assert Bar(runs).actions(run="mine") == files | rights | {"run": "mine", "title": "mine"}
    shipped = Bar(runs).actions(run=SHIPPED)
    assert (shipped["file"], shipped["renamable"], shipped["deletable"]) == (f"download/{SHIPPED}", False, False)


def test_a_run_without_weights_cannot_be_downloaded(runs: Runs, tiny):
    RunFolder.create(runs.root, tiny, name="empty", status="stopped")
    shown = Bar(runs).actions(run="empty")
    assert (shown["file"], shown["package"]) == (None, None)


def test_visitors_share_only_their_own_runs(runs: Runs, tiny, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ui.components.run_bar.STOPPABLE", ("stopped",))  # as if the run were training
    name = f"tiny-2-{SUFFIX}"
    with_weights(runs, tiny, name, owner="anna")
    anna, ben = Bar(runs, Visitor("anna")), Bar(runs, Visitor("ben"))
    assert anna.actions(run=name)["title"] == "tiny 2"
    assert anna.share(run=name, shared=True)["shared"] is True
    seen = ben.actions(run=name)
    assert (seen["shared"], seen["renamable"], seen["deletable"]) == (None, False, False)
    assert seen["file"] == f"download/{name}"
    for function, rest in {
        "stop": {},
        "resume": {},
        "delete": {},
        "rename": {"title": "x"},
        "share": {"shared": False},
    }.items():
        assert "is not yours" in getattr(ben, function)(run=name, **rest)["error"]
    feed = ben.feed(run=name)
    assert (feed["stoppable"], feed["resumable"]) == (False, False)
    assert anna.feed(run=name)["stoppable"] is anna.feed(run=name)["resumable"] is True


def test_every_function_treats_another_visitors_run_as_missing(runs: Runs, tiny):
    name, missing = f"tiny-2-{SUFFIX}", f"tiny-3-{SUFFIX}"
    with_weights(runs, tiny, name, owner="anna")
    ben = Bar(runs, Visitor("ben"))
    rest = {"snapshot": {"step": 0}, "rename": {"title": "x"}, "share": {"shared": True}}
    tried = set(ben.names) - {"list_runs", "still_open"}
    assert tried == {"feed", "snapshot", "actions", "stop", "resume", "rename", "share", "delete"}
    for function in tried:
        answers = [getattr(ben, function)(run=run, **rest.get(function, {})) for run in (name, missing)]
        if function == "feed":  # it says more of both, for a page that shows the run
            told = [(each.pop("gone"), each.pop("app_id")) for each in answers]
            assert told == [("was deleted, or is not shared with you any more", None)] * 2
        assert answers == [{"error": f"The run “tiny-{number}”: there is no such run"} for number in (2, 3)]
    assert [each["id"] for each in ben.list_runs()["runs"]] == [SHIPPED]
    assert RunFolder(runs.root, name).exists()


def test_a_renamed_run_has_its_title_in_the_list_and_the_feed(runs: Runs, tiny):
    with_weights(runs, tiny, "tiny-1")
    bar = Bar(runs)
    assert (
        bar.rename(run="tiny-1", title=" My first run ")["title"] == bar.feed(run="tiny-1")["title"] == "My first run"
    )
    listed = {each["id"]: each["title"] for each in bar.list_runs()["runs"]}
    assert listed["tiny-1"] == "My first run"
    with_weights(runs, tiny, "tiny-2")
    assert "error" in bar.rename(run="tiny-2", title="My first run")
    assert bar.rename(run="tiny-1", title="")["title"] == "tiny 1"
    assert bar.delete(run="tiny-1") == {"run": None}
    assert not RunFolder(runs.root, "tiny-1").exists()


def test_a_stopped_run_is_resumed_and_stopped(make_runs, tiny):
    runs = make_runs()
    name = runs.start(tiny.with_changes({"training.steps": 100_000}))
    bar = Bar(runs)
    assert bar.feed(run=name)["stoppable"] is True
    assert bar.stop(run=name) == {"run": name}
    wait_for(lambda: not runs.active())
    shown = bar.feed(run=name)
    assert shown["status"] == "stopped"
    assert (shown["stoppable"], shown["resumable"]) == (False, True)
    assert "is not training" in bar.stop(run=name)["error"]
    assert bar.resume(run=name) == {"run": name}
    wait_for_status(runs, name, "queued", "training")


@pytest.mark.parametrize("request_", [None, [], "x", 3, {"run": 3}, {"run": SHIPPED, "extra": 1}, {"run": "x" * 101}])
def test_malformed_requests_return_an_error(runs: Runs, request_):
    bar = run_bar(VisitorRuns(runs))
    for function in bar.server_fns:
        assert list(function(request_)) == ["error"], function.__name__


@pytest.mark.parametrize(
    "changes",
    [
        {"since_step": -2},
        {"step_width": -1},
        {"known_snapshots": -1},
        {"block": "memory"},
    ],
    ids=str,
)
def test_an_invalid_feed_request_returns_an_error(runs: Runs, changes: dict):
    assert list(Bar(runs).feed(run=SHIPPED, **changes)) == ["error"]


def test_a_missing_run_is_named_in_the_error(runs: Runs):
    bar = Bar(runs)
    rest = {"snapshot": {"step": 0}, "rename": {"title": "x"}, "share": {"shared": True}}
    for name in set(bar.names) - {"list_runs", "still_open"}:
        answer = getattr(bar, name)(run="nobody", **rest.get(name, {}))
        assert answer["error"] == "The run “nobody”: there is no such run"
        assert answer.get("gone") == ("was deleted" if name == "feed" else None)


def test_an_invalid_upload_is_refused(runs: Runs, tmp_path):
    for content in (b"", b"not a run"):
        file = tmp_path / "upload.safetensors"
        file.write_bytes(content)
        assert train.import_run(VisitorRuns(runs), str(file))["message"]["problem"]
    assert train.import_run(VisitorRuns(runs), None)["message"]["problem"]


# ---- the feed


def test_the_feed_says_what_the_bar_shows(runs: Runs):
    answer = Bar(runs).feed(run=SHIPPED)
    assert answer["run"] == SHIPPED
    assert (answer["status"], answer["step"], answer["steps"]) == ("finished", 1000, 1000)
    assert answer["title"] == runs[SHIPPED].title
    assert answer["task"] == "reverse 3–10 digits"
    assert answer["headline"] == [{"measure": "exact_match", "name": "exact match", "value": 1}]
    assert (answer["shipped"], answer["stoppable"], answer["resumable"]) == (True, False, False)
    json.dumps(answer, allow_nan=False)


def test_the_feed_and_the_list_say_bleu_of_a_translation_and_of_no_other_run(runs: Runs, tiny):
    folder = with_weights(runs, tiny, "tiny-1")
    quality = {"bleu": 23.6, "chrf": 51.6, "bleu_name": "BLEU"}
    folder.write_info(folder.read_info().model_copy(update={"quality": RunQuality(**quality)}))
    bar = Bar(runs)
    shown = {
        SHIPPED: [{"measure": "exact_match", "name": "exact match", "value": 1}],
        "tiny-1": [{"measure": "bleu", "name": "BLEU", "value": 23.6}],
    }
    assert {name: bar.feed(run=name)["headline"] for name in shown} == shown
    assert {each["id"]: each["headline"] for each in bar.list_runs()["runs"]} == shown


def test_a_shipped_run_that_translates_is_offered_whatever_run_is_open(runs: Runs, tiny):
    folder = with_weights(runs, small_translation(), "translates")
    assert page._open(VisitorRuns(runs), {})["bar"]["translator"] is None  # a run of one's own is no example
    folder.write_info(folder.read_info().model_copy(update={"shipped": True, "parameters": 4_000_000}))
    with_weights(runs, tiny, "mine")
    fresh = Runs(runs.root, limits=PUBLIC)  # listings are cached for a second
    for query in ({}, {"run": "mine"}, {"run": "missing"}):
        assert page._open(VisitorRuns(fresh), query)["bar"]["translator"] == "translates"
    assert page._run_to_open(VisitorRuns(fresh)) == SHIPPED


def test_only_a_finished_training_of_ones_own_is_followed_by_next_steps(runs: Runs, tiny):
    folder = with_weights(runs, tiny, "tiny-1")
    bar = Bar(runs)
    finished = folder.read_info().model_copy(update={"status": "finished", "step": 5})
    folder.write_info(finished)
    assert bar.feed(run="tiny-1")["trained_here"]
    assert not bar.feed(run=SHIPPED)["trained_here"]
    for change in ({"status": "stopped"}, {"step": 0}):  # of another program, without a training
        folder.write_info(finished.model_copy(update=change))
        assert not bar.feed(run="tiny-1")["trained_here"]


def test_a_feed_with_a_snapshot_is_small(runs: Runs):
    bar = Bar(runs)
    first = bar.feed(run=SHIPPED)
    steps = first["snapshots"]["steps"]
    held = {"step_width": first["points"]["width"], "evaluation_width": first["evaluations"]["width"]}
    known = {"since_step": 1000, "since_evaluation": 1000, "known_snapshots": len(steps) - 1} | held
    one = bar.feed(run=SHIPPED, since_snapshot=steps[-2], **known)
    assert len(json.dumps(one)) <= MAX_UPDATE
    none = bar.feed(run=SHIPPED, since_snapshot=steps[-1], **known | {"known_snapshots": len(steps)})
    assert len(json.dumps(none)) <= MAX_NO_NEWS


def test_known_snapshots_are_not_sent_again(runs: Runs):
    bar = Bar(runs)
    first = bar.feed(run=SHIPPED)["snapshots"]
    steps = first["steps"]
    assert first["latest"]["step"] == steps[-1] == 1000
    assert [step for step, _ in first["masses"]] == steps
    again = bar.feed(run=SHIPPED, since_snapshot=steps[-1], known_snapshots=len(steps))["snapshots"]
    assert (again["steps"], again["masses"], again["latest"]) == (steps, [], None)
    newer = bar.feed(run=SHIPPED, since_snapshot=steps[-3], known_snapshots=len(steps) - 2)["snapshots"]
    assert [step for step, _ in newer["masses"]] == steps[-2:]
    assert newer["latest"]["step"] == steps[-1]


def test_a_browser_that_knows_no_snapshot_gets_everything(runs: Runs):
    shown = Bar(runs).feed(run=SHIPPED, since_snapshot=1000, known_snapshots=0)["snapshots"]
    assert shown["latest"] is not None
    assert len(shown["masses"]) == len(shown["steps"])


def test_the_maps_of_the_chosen_block_and_input_are_sent(runs: Runs):
    bar = Bar(runs)
    latest = {
        each: bar.feed(run=SHIPPED, block=each)["snapshots"]["latest"] for each in ("", "all", "encoder", "decoder")
    }
    assert {each: list(shown["maps"]) for each, shown in latest.items()} == {
        "": ["cross"],  # the block that attends to the source
        "all": ["cross", "decoder", "encoder"],
        "encoder": ["encoder"],
        "decoder": ["decoder"],
    }
    answers = latest[""]["answers"]
    assert answers[0] == {"source": list("4829"), "expected": [*"9284", "<EOS>"], "tokens": [*"9284", "<EOS>"]}
    for chosen, answer in enumerate(answers):
        shown = bar.feed(run=SHIPPED, block="encoder", input=chosen)["snapshots"]["latest"]
        assert (shown["input"], shown["answers"]) == (chosen, answers)
        assert shown["read"] == ["<BOS>", *answer["tokens"][:-1]]
        keys = len(answer["source"]) + 2
        assert shown["maps"]["encoder"]["shape"][2:] == (keys, keys)
        assert np.allclose(unpacked(shown["maps"]["encoder"]).sum(axis=-1), 1, atol=keys * 0.002)
    beyond = bar.feed(run=SHIPPED, input=99)["snapshots"]["latest"]
    assert beyond["input"] == len(answers) - 1


def test_a_run_without_snapshots_still_has_metrics(runs: Runs):
    (runs.root / SHIPPED / "replay.safetensors").unlink()
    answer = Bar(runs).feed(run=SHIPPED)
    assert answer["snapshots"] == {"steps": [], "masses": [], "latest": None}
    assert answer["evaluations"]["columns"]["step"][-1] == 1000
    assert "has no snapshot of this step" in Bar(runs).snapshot(run=SHIPPED, step=0)["error"]


def test_a_model_too_large_for_maps_still_has_scores():
    shown = snapshot_value(Snapshot(7, (), (), ((0.5,),), 0.25, 32))
    assert (shown["step"], shown["answers"], shown["blocks"], shown["maps"]) == (7, [], [], {})


# ---- one snapshot


def test_a_snapshot_of_any_saved_step_can_be_fetched(runs: Runs):
    bar = Bar(runs)
    feed = bar.feed(run=SHIPPED)["snapshots"]
    for step in (feed["steps"][0], feed["steps"][3], feed["steps"][-1]):
        shown = bar.snapshot(run=SHIPPED, step=step, block="cross", input=1)
        assert (shown["step"], shown["input"], list(shown["maps"])) == (step, 1, ["cross"])
    assert bar.snapshot(run=SHIPPED, step=1000) == feed["latest"]
    first = bar.snapshot(run=SHIPPED, step=0)
    assert first["answers"] != feed["latest"]["answers"]
    assert [each["source"] for each in first["answers"]] == [each["source"] for each in feed["latest"]["answers"]]


def test_maps_are_the_saved_bytes(runs: Runs):
    saved = runs[SHIPPED].replay.snapshots()[-1].outputs[2].maps["cross"]
    shown = Bar(runs).snapshot(run=SHIPPED, step=1000, input=2)["maps"]["cross"]
    assert (shown["shape"], shown["bytes"]) == (saved.shape, 1)
    assert base64.b64decode(shown["data"]) == saved.data


@pytest.mark.parametrize("step", [1, 999, 10**9])
def test_a_step_without_a_snapshot_is_refused(runs: Runs, step: int):
    assert f"step={step}" in Bar(runs).snapshot(run=SHIPPED, step=step)["error"]


def test_a_model_with_few_heads_shows_all_blocks_at_once(trained: Path):
    runs = Runs(trained)  # a Transformer with one layer of two heads in each block
    assert list(Bar(runs).feed(run="done")["snapshots"]["latest"]["maps"]) == ["cross", "decoder", "encoder"]
