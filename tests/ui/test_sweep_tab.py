"""The Sweep tab: what the form stands for, problems at their fields, small answers, and no sweeps for visitors."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.config import ConfigError, load_preset
from core.runs.estimate import TrainingTime
from core.runs.sweeps.folder import SweepFile
from core.runs.sweeps.sweep import Range, Resources, load_sweep
from core.runs.sweeps.table import sweep_table
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.server.estimates import Estimates
from tests.runs.sweeps.conftest import train_in_threads
from tests.support.made_up_sweep import made_up_sweep
from tests.support.run_helpers import wait_for
from tests.ui.server_functions import call
from ui.components.sweep import sweep_view
from ui.components.sweep.results import MAX_POINTS, ROWS
from ui.forms.sweep_draft import SweepDraft, as_yaml, base_data, base_of_preset, draft_of, opened, sweep_file

MAX_ANSWER = 60_000  # bytes of the largest answer about a sweep, whatever its size
SHORT = {"training.steps": 8, "training.warmup_steps": 2, "training.evaluate_every": 4, "training.batch_size": 4}


def base(name: str = "tiny", changes: dict[str, Any] | None = None) -> dict[str, Any]:
    data = base_data(name, load_preset(name), changes or {})
    return {key: data[key] for key in ("preset", "document", "set")}


def draft(**fields: Any) -> dict[str, Any]:
    """The form's content: learning rates of ``tiny``, unless fields say otherwise."""
    axes = [axis("training.learning_rate", "0.001, 0.003")]
    return {"name": "s", "base": base(), "axes": axes, "seeds": "2", "jobs": "1"} | fields


def axis(key: str, values: str = "", **fields: str) -> dict[str, str]:
    return {"key": key, "kind": "values", "values": values, "low": "", "high": "", "step": ""} | fields


def file_of(**fields: Any) -> SweepFile:
    return sweep_file(SweepDraft.model_validate(draft(**fields)))


@pytest.fixture
def view(root: Path, monkeypatch: pytest.MonkeyPatch):
    """The component over an empty folder; every preset takes a second to train, and processes are threads."""
    train_in_threads(monkeypatch)
    monkeypatch.setattr("core.runs.sweeps.driver._POLL_SECONDS", 0.02)
    monkeypatch.setattr("core.server.sweeps.TABLE_SECONDS", 0.0)
    monkeypatch.setattr(Estimates, "wait", lambda *_, seconds: TrainingTime(1.0, 2.0))
    runs = Runs(root)
    yield sweep_view(VisitorRuns(runs))
    runs.close()


def problems(view, **fields: Any) -> dict[str, str]:
    return dict(call(view, "plan", {"draft": draft(**fields)})["problems"])


# ---- what the form stands for


@pytest.mark.parametrize(("typed", "seeds"), [("3, 4", (3, 4)), ("[7]", (7,)), ("7,", (7,)), ("7", 7)])
def test_texts_become_the_values_that_the_command_line_reads(tmp_path: Path, typed: str, seeds: Any):
    axes = [
        axis("training.learning_rate", kind="log", low="1e-4", high="0.01"),
        axis("model.d_model", kind="range", low="16", high="64", step="16"),
        axis("model.norm", "pre, post"),
        axis("model.tie_embeddings", "true; false"),
    ]
    fields: dict[str, Any] = {"search": "tpe", "trials": "20", "budget": "updates", "amount": "40"}
    fields |= {"metric": "exact_match", "resources": {"cpus": 0.5, "memory_mb": 300}}
    file = file_of(axes=axes, seeds=typed, pruning="halving", base=base(changes=SHORT), **fields)
    sweep = file.sweep
    assert sweep.axes["training.learning_rate"] == Range(low=0.0001, high=0.01, log=True)
    assert sweep.axes["model.d_model"] == Range(low=16, high=64, step=16)
    assert (sweep.axes["model.norm"], sweep.axes["model.tie_embeddings"]) == (("pre", "post"), (True, False))
    assert (sweep.seeds, sweep.goal.updates, sweep.trials) == (seeds, 40, 20)
    assert sweep.resources == Resources(cpus=0.5, memory_mb=300)
    assert "training.steps" not in sweep.set  # the updates replace them
    path = tmp_path / "s.yaml"
    path.write_text(as_yaml(file))
    assert load_sweep(path) == sweep
    assert opened(path.read_text(), SweepDraft.model_validate(draft()).base) == file
    again = draft_of(file) | {"jobs": "1"}
    again["base"] = {key: again["base"][key] for key in ("preset", "document", "set")}
    assert sweep_file(SweepDraft.model_validate(again)) == file


def test_the_base_is_the_form_of_the_train_tab_with_its_changes_and_its_seed():
    tiny = load_preset("tiny")
    changed = base_of_preset(tiny, tiny.with_changes({"model.d_ff": 48, "training.seed": 7}))
    assert (changed["preset"], changed["set"]) == ("tiny", {"model.d_ff": 48, "training.seed": 7})
    held = {key: changed[key] for key in ("preset", "document", "set")}
    file = file_of(base=held, seeds="3")
    assert (file.base, file.sweep.set, file.sweep.seeds) == (tiny, {"model.d_ff": 48}, (7, 8, 9))
    assert file_of(base=held, axes=[axis("model.d_ff", "16, 32")]).sweep.set == {}
    own = tiny.model_copy(update={"name": "my-own"})
    assert base_of_preset(own, own)["preset"] == "my-own.yaml"
    unshipped = base_of_preset(own, own)
    file = file_of(base={key: unshipped[key] for key in ("preset", "document", "set")})
    assert file.base == own
    assert as_yaml(file).startswith("# my-own.yaml must be beside this file")


def test_a_file_that_names_another_preset_file_is_refused_with_what_to_do():
    held = SweepDraft.model_validate(draft()).base
    text = "preset: other.yaml\naxes: {model.d_model: [16]}\n"
    with pytest.raises(ConfigError, match=r"preset='other.yaml' is a file, and a page cannot read"):
        opened(text, held)
    with pytest.raises(ConfigError, match="must be a mapping"):
        opened("- 1", held)


# ---- problems at their fields


@pytest.mark.parametrize(
    ("fields", "where", "message"),
    [
        ({"name": "Über"}, "name", "should be a-z, 0-9 and -"),
        ({"axes": [axis("model.nothing", "1, 2")]}, "model.nothing", "nothing"),
        ({"axes": [axis("nonsense", "1")]}, "axes.nonsense", "is not a key of presets"),
        ({"axes": [axis("model.d_model", "abc")]}, "model.d_model", "model.d_model='abc' should be a valid integer"),
        ({"axes": [axis("model.d_model", "")]}, "axes.model.d_model", "axes.model.d_model is empty"),
        ({"seeds": ""}, "seeds", "seeds is empty"),
        ({"seeds": ","}, "seeds", "seeds is empty"),
        ({"axes": [axis("model.d_model", "16, 16")]}, "axes.model.d_model", "lists 16 twice"),
        ({"axes": [axis("model.d_ff", "16"), axis("model.d_ff", "32")]}, "axes.model.d_ff", "is there twice"),
        (
            {"axes": [axis("model.d_ff", kind="range", low="64", high="16")], "search": "random", "trials": "4"},
            "axes.model.d_ff",
            "low=64 must be below high=16",
        ),
        (
            {"axes": [axis("model.d_ff", kind="range", low="1", high="x")]},
            "axes.model.d_ff.high",
            "'x' is not a number",
        ),
        (
            {"axes": [axis("model.d_ff", kind="range", low="8", high="16")]},
            "axes.model.d_ff",
            "needs a list",
        ),
        ({"seeds": "many"}, "seeds", "seeds='many' is not a number"),
        ({"seeds": "1.5"}, "seeds", "is not a whole number"),
        ({"seeds": "1.5" + 50 * "5"}, "seeds", f"seeds='1.5{35 * '5'}… is not a number"),
        ({"seeds": "1e99"}, "seeds", "… should be less than or equal to 100"),
        ({"search": "random", "trials": "1000000000"}, "trials", "less than or equal to 10000"),
        ({"search": "random", "trials": "9999", "seeds": "100"}, "trials", "at most 10,000 are allowed"),
        ({"search": "tpe", "trials": ""}, "trials", "trials is empty"),
        ({"budget": "updates", "amount": "-5"}, "goal.updates", "greater than or equal to 1"),
        ({"budget": "minutes", "amount": "soon"}, "goal.minutes", "'soon' is not a number"),
        ({"pruning": "roses"}, "pruning", "none"),
        ({"jobs": "two"}, "jobs", "jobs='two' is not a number"),
        ({"base": {"preset": "../secret", "document": "", "set": {}}}, "preset", "is not one of"),
        ({"base": {"preset": "x.yaml", "document": "{}", "set": {}}}, "preset", "is not a valid preset"),
    ],
)
def test_nonsense_is_refused_at_its_field(view, fields: dict, where: str, message: str):
    found = problems(view, **fields)
    assert message in found[where], found


def test_a_grid_of_a_billion_trials_is_refused_at_once(view):
    values = ", ".join(map(str, range(1, 1001)))
    axes = [axis(key, values) for key in ("model.d_ff", "training.steps", "training.warmup_steps")]
    assert "1,000,000,000 × 2" in problems(view, axes=axes)["trials"]


def test_what_this_machine_cannot_do_is_refused_before_anything_trains(view, root: Path, monkeypatch):
    monkeypatch.setattr("core.runs.sweeps.checks._OTHER_BYTES", 10**15)
    for name, sure in (("estimate", {}), ("start", {"sure": True})):
        ((where, message),) = call(view, name, {"draft": draft()} | sure)["problems"]
        assert where == "axes"
        assert "MB of disk space" in message
    assert not root.exists()


# ---- starting


def test_the_estimate_names_size_time_and_pruning(view):
    said = call(view, "estimate", {"draft": draft(pruning="halving")})["text"]
    assert said.startswith("2 trials × 2 seeds: ")
    assert "on this machine, one run at a time; less with pruning" in said


def test_a_long_sweep_asks_first_and_a_short_one_trains(view, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(Estimates, "wait", lambda *_, seconds: TrainingTime(500.0, 800.0))
        asked = call(view, "start", {"draft": draft()})
        assert "2 trials × 2 seeds" in asked["question"]
        assert call(view, "sweeps", {}) == {"sweeps": [], "active": None}
    short = draft(base=base(changes=SHORT))
    assert call(view, "start", {"draft": short}) == {"sweep": "s"}
    wait_for(lambda: call(view, "progress", {"sweep": "s"})["status"] == "idle")
    progress = call(view, "progress", {"sweep": "s"})
    assert (progress["counts"]["complete"], progress["runs"]) == (2, {"done": 4, "total": 4})
    assert progress["best"]["n"] == 2
    assert "trials" not in call(view, "progress", {"sweep": "s", "version": progress["version"]})
    name = progress["best"]["trial"]
    trial = call(view, "trial", {"sweep": "s", "trial": name})
    assert [run["status"] for run in trial["runs"]] == ["finished", "finished"]
    curve = call(view, "curves", {"sweep": "s", "trials": [name]})["curves"][0]
    assert (curve["at"], curve["seeds"], len(curve["sd"])) == ([0, 4, 8], 2, 3)
    for same in ({"resources": {"cpus": 2}}, {"seeds": "[0, 1]"}):  # which adds no run, so nothing is asked
        assert call(view, "start", {"draft": short | same}) == {"sweep": "s"}
        wait_for(lambda: call(view, "progress", {"sweep": "s"})["status"] == "idle")
    refused = call(view, "start", {"draft": short | {"resources": {"gpus": 1}}})["problems"]
    assert refused == [("resources", "resources.gpus=1 needs a Ray cluster, which sweeps of the page do not use")]
    more = draft(base=base(changes=SHORT), seeds="3")
    assert "is extended to 6" in call(view, "start", {"draft": more})["question"]
    call(view, "start", {"draft": more, "sure": True})
    wait_for(lambda: call(view, "progress", {"sweep": "s"})["runs"] == {"done": 6, "total": 6})
    other = draft(base=base(changes=SHORT), metric="exact_match")
    ((where, message),) = call(view, "start", {"draft": other, "sure": True})["problems"]
    assert where == "goal"
    assert message.endswith("only seeds, values and trials can be added. Give the new sweep another name")


def test_answers_about_hundreds_of_trials_are_small(root: Path):
    folder = made_up_sweep(root, load_preset("tiny"), trials=600)
    runs = Runs(root)
    view = sweep_view(VisitorRuns(runs))
    answers = {
        "progress": call(view, "progress", {"sweep": "large"}),
        "rows": call(view, "rows", {"sweep": "large"}),
        "heat": call(view, "heat", {"sweep": "large", "row": "model.d_ff", "column": "training.learning_rate"}),
    }
    sizes = {name: len(json.dumps(answer)) for name, answer in answers.items()}
    assert max(sizes.values()) <= MAX_ANSWER, sizes
    trials, table = answers["progress"]["trials"], sweep_table(folder)
    assert (len(trials["names"]), trials["begun"]) == (MAX_POINTS, 600)
    assert trials["names"][:100] == [row.trial for row in table.rows[:100]]  # none of the best is left out
    assert (answers["rows"]["total"], len(answers["rows"]["cells"])) == (600, ROWS)
    assert call(view, "rows", {"sweep": "large", "start": 590})["trials"] == [row.trial for row in table.rows[590:]]
    assert len(call(view, "table", {"sweep": "large", "format": "csv"})["text"].splitlines()) == 601
    runs.close()


def test_names_from_a_browser_open_nothing_else(view, root: Path):
    (root / "x.sweep").mkdir(parents=True)
    for name in ("../x", "x/../x", "", "nothing", "x"):
        for function in ("progress", "rows", "edit"):
            assert "sweep=" in call(view, function, {"sweep": name})["error"]
    assert "error" in call(view, "progress", {"sweep": 3})
    assert "error" in call(view, "start", {"draft": {"name": "s"}})


def test_visitors_find_a_message_and_every_function_refuses(root: Path):
    runs = Runs(root)
    view = sweep_view(VisitorRuns(runs, lambda: Visitor("anna")))
    assert "switched off on a public server" in view.value["off"]
    assert "switched off" in call(view, "start", {"draft": draft(), "sure": True})["error"]
    for name in ("progress", "rows", "stop", "edit"):
        assert "switched off" in call(view, name, {"sweep": "s"})["error"]
    runs.close()
