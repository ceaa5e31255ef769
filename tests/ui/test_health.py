"""The fold Health of the bench: figures by step, new ones only; and the marks of heads on the bench and in decodes."""

import dataclasses
import re
from pathlib import Path

import pytest

from core.interpret.health import COLLAPSED, DEAD, MARKS, UNIFORM, head_marks
from core.interpret.health_course import health_rows, health_series, health_steps
from core.runs import Run, RunFolder
from core.runs.replay import Replay
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from tests.support.trainings import train_run
from tests.ui.server_functions import call
from ui.components import bench as bench_module
from ui.components.attention_viewer import replay_value
from ui.components.bench import bench
from ui.components.run_bar import snapshot_value
from ui.tabs.decode import decode


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny) -> Path:
    """A folder with a finished run; tests must not change it."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), tiny, name="a")
    train_run(folder)
    return folder.path.parent


@pytest.fixture
def runs(root: Path) -> VisitorRuns:
    return VisitorRuns(Runs(root))


def ask(runs: VisitorRuns, **argument):
    return call(bench(runs), "health", {"run": "a"} | argument)


def test_the_answer_has_every_figure_of_the_replay(runs):
    answer, course = ask(runs), health_steps(runs["a"].replay.snapshots())
    assert answer["steps"] == answer["added"] == [step for step, _ in course] == [0, 4, 8]
    series = health_series(health for _, health in course)
    assert answer["series"].keys() == series.keys()
    for measure, of in series.items():
        for name, values in of.items():
            shown = answer["series"][measure][name]
            assert [each is None for each in shown] == [each is None for each in values]
            assert [each or 0.0 for each in shown] == pytest.approx([each or 0.0 for each in values], rel=1e-3)
    assert series["perplexity"]["validation"] == [health.perplexity for _, health in course]
    assert series["entropy"]["cross.1.2"] == [health.heads.entropy["cross"][0][1] for _, health in course]
    assert series["gradient_norm"]["output"][0] is None
    assert not answer["by_layer"]


def test_only_steps_after_the_known_one_are_sent(runs):
    whole, rest = ask(runs), ask(runs, since=4)
    assert (rest["steps"], rest["added"]) == ([0, 4, 8], [8])
    for measure, of in rest["series"].items():
        assert of == {name: values[2:] for name, values in whole["series"][measure].items() if name in of}
    assert ask(runs, since=8)["added"] == []


def test_a_model_with_many_heads_has_a_line_for_each_layer(runs, monkeypatch):
    each = ask(runs)["series"]["distance"]
    monkeypatch.setattr(bench_module, "MAX_HEADS", 1)
    answer = ask(runs)
    assert answer["by_layer"]
    heads = [values for name, values in each.items() if name.startswith("cross.1.")]
    mean = [sum(values) / len(values) for values in zip(*heads, strict=True)]
    assert answer["series"]["distance"]["cross.1"] == pytest.approx(mean, rel=1e-3)


def test_a_run_recorded_without_health_has_no_figures_and_no_marks(runs, monkeypatch):
    old = Replay(4)
    for each in runs["a"].replay.snapshots():
        old.add(dataclasses.replace(each, health=None))
    monkeypatch.setattr(Run, "replay", old)
    answer = ask(runs)
    assert (answer["steps"], answer["added"]) == ([], [])
    assert all(of == {} for of in answer["series"].values())
    assert snapshot_value(old.snapshots()[-1])["marks"] == {}
    current, _ = decode(runs, "a", "1 2", "greedy")
    assert current.marks == {}


def test_a_visitor_gets_no_figures_of_a_run_that_is_not_theirs(root):
    answer = ask(VisitorRuns(Runs(root), lambda: Visitor("somebody")))
    assert "there is no such run" in answer["error"]
    assert "error" in call(bench(VisitorRuns(Runs(root))), "health", {"run": "a", "since": "x"})


def test_marks_are_those_of_the_snapshot(runs):
    last = runs["a"].replay.snapshots()[-1]
    marks = head_marks(last.health.heads)
    assert snapshot_value(last)["marks"] == marks
    assert replay_value([last])["snapshots"][0]["marks"] == marks
    current, _ = decode(runs, "a", "1 2", "greedy")
    near = min(health_steps(runs["a"].replay.snapshots()), key=lambda each: abs(each[0] - current.step))
    assert current.marks == head_marks(near[1].heads)


def test_the_csv_has_a_row_for_each_step(runs):
    header, *rows = health_rows(runs["a"].replay.snapshots())
    assert header[0] == "step"
    assert [row[0] for row in rows] == [0, 4, 8]
    assert all(len(row) == len(header) == len(set(header)) for row in rows)


def test_the_page_explains_marks_with_the_thresholds_that_decide():
    script = (Path(bench_module.__file__).parents[2] / "web/head_marks.js").read_text()
    explained = dict(re.findall(r"^  (\w+): \"(.+)\",$", script, re.MULTILINE))
    assert explained.keys() == MARKS.keys()
    for mark, threshold in {"dead": DEAD, "collapsed": COLLAPSED, "uniform": UNIFORM}.items():
        assert f"than {threshold * 100:.0f} % of" in explained[mark]
