"""The table: figures and intervals over seeds, in every format, from ``run.json`` alone."""

import csv
import io
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.evaluation.significance import bootstrap_interval, t_interval
from core.runs import RunInfo, ValidationFigures
from core.runs.sweeps.folder import SweepError, SweepFile, SweepFolder, TrialRecord
from core.runs.sweeps.processes import REPOSITORY
from core.runs.sweeps.table import as_csv, as_latex, as_text, sweep_table
from core.runs.sweeps.trials import grid_trials
from tests.runs.sweeps.conftest import make_sweep


def write_run(root: Path, name: str, loss: float | None, **fields) -> None:
    figures = None if loss is None else ValidationFigures(validation_loss=loss, token_accuracy=0.5, exact_match=0.25)
    info = RunInfo(**{"status": "finished", "validation": figures, "seconds": 2.0, "parameters": 1234} | fields)
    (root / name).mkdir(parents=True)
    (root / name / "run.json").write_text(info.model_dump_json())


@pytest.fixture
def swept(root, tiny) -> SweepFolder:
    """A sweep of four trials and three seeds with made-up losses, of which one trial lacks a seed and one is pruned."""
    sweep = make_sweep(seeds=3)
    folder = SweepFolder(root, "s")
    folder.prepare(SweepFile(sweep=sweep, base=tiny), extend=False)
    losses = [(0.5, 0.6, 0.7), (0.2, 0.1, 0.3), (0.05, None, None), (9.0, None, None)]
    for trial, values in zip(grid_trials(sweep, tiny), losses, strict=True):
        folder.write_record(trial.name, TrialRecord(settings=trial.settings, pruned=2 if values[0] == 9.0 else None))
        for seed, loss in enumerate(values):
            if loss is not None:
                write_run(root, trial.run(seed), loss, status="stopped" if loss == 9.0 else "finished")
            elif values[0] == 0.05 and seed == 1:
                write_run(root, trial.run(seed), None, status="failed")
    return folder


def test_the_best_complete_trial_is_first_and_what_is_not_complete_last(swept):
    rows = sweep_table(swept).rows
    assert [row.state for row in rows] == ["3/3", "3/3", "1/3, 1 failed", "pruned"]
    assert [row.mean for row in rows] == [pytest.approx(0.2), pytest.approx(0.6), 0.05, None]
    assert rows[0].settings == {"model.d_model": 16, "training.learning_rate": 0.01}
    assert (rows[0].sd, rows[0].seconds, rows[0].parameters) == (pytest.approx(0.1), 2.0, 1234)
    assert rows[2].t_interval is None


def test_pruned_and_stopped_trials_and_what_cannot_be_drawn_are_not_left_to_train(root, tiny, swept):
    assert sweep_table(swept).runs_left == 2  # of the third trial, one of which failed
    trial = sweep_table(swept).rows[2].trial
    swept.write_record(trial, swept.record(trial).model_copy(update={"stopped": True}))
    assert sweep_table(swept).runs_left == 0
    drawn = SweepFolder(root, "drawn")
    sweep = make_sweep(name="drawn", seeds=3, search="random", trials=6)
    drawn.prepare(SweepFile(sweep=sweep, base=tiny), extend=False)
    assert sweep_table(drawn).runs_left == 18
    drawn.exhausted.touch()
    assert sweep_table(drawn).runs_left == 0


def test_a_metric_that_should_be_large_sorts_the_other_way(root, tiny):
    sweep = make_sweep(seeds=1, goal={"metric": "exact_match"})
    folder = SweepFolder(root, "s")
    folder.prepare(SweepFile(sweep=sweep, base=tiny), extend=False)
    for i, trial in enumerate(grid_trials(sweep, tiny)):
        folder.write_record(trial.name, TrialRecord(settings=trial.settings))
        figures = ValidationFigures(validation_loss=1.0, token_accuracy=0.5, exact_match=i / 4)
        write_run(root, trial.run(0), None, validation=figures)
    assert [row.mean for row in sweep_table(folder).rows] == [0.75, 0.5, 0.25, 0.0]


def test_intervals_are_those_of_the_textbook():
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    low, high = t_interval(values)  # 0.3 ± 2.776 · 0.1581 / √5
    assert (low, high) == (pytest.approx(0.3 - 0.19632, abs=1e-5), pytest.approx(0.3 + 0.19632, abs=1e-5))
    from scipy.stats import bootstrap

    theirs = bootstrap(
        (values,), lambda each, axis: each.mean(axis=axis), method="percentile", rng=1
    ).confidence_interval
    ours = bootstrap_interval(values)
    assert ours == (pytest.approx(theirs.low, abs=0.01), pytest.approx(theirs.high, abs=0.01))
    assert low < ours[0] < ours[1] < high  # narrower with so few values, as the documentation says
    assert ours == bootstrap_interval(values)
    assert t_interval([1.0]) is bootstrap_interval([1.0]) is None


def test_the_text_has_the_axes_that_differ_and_sensible_digits(swept):
    header, first, *_, last = as_text(sweep_table(swept)).splitlines()
    assert header.split("  ")[0].strip() == "d_model"
    assert "mean validation loss" in header
    assert first.split()[:5] == ["16", "0.01", "3/3", "0.20", "0.10"]
    assert "-0.05 to 0.45" in first
    assert last.split() == ["32", "0.01", "pruned", "–", "–", "–", "–", "–", "1,234"]


def test_the_csv_has_all_digits(swept):
    rows = list(csv.DictReader(io.StringIO(as_csv(sweep_table(swept)))))
    assert float(rows[0]["validation_loss_mean"]) == pytest.approx(0.2, abs=1e-15)
    assert rows[0]["model.d_model"] == "16"
    assert (rows[0]["runs"], rows[2]["runs"], rows[2]["failed"], rows[3]["pruned"]) == ("3", "1", "1", "2")
    assert rows[3]["validation_loss_mean"] == ""


def test_the_latex_is_a_tabular_with_escaped_names(swept):
    lines = as_latex(sweep_table(swept)).splitlines()
    assert lines[0] == r"\begin{tabular}{" + "r" * 9 + "}"
    assert lines[2].startswith(r"d\_model & learning\_rate & runs &")
    assert r"95 \% t interval" in lines[2]
    assert all(line.count(" & ") == 8 for line in lines if line.endswith(r"\\"))


def test_the_json_is_plain_data(swept):
    result = json.loads(json.dumps(sweep_table(swept).as_json()))
    assert (result["metric"], result["direction"], result["trials"]) == ("validation_loss", "minimize", 4)
    assert result["rows"][0]["values"] == [0.2, 0.1, 0.3]


def test_a_sweep_that_is_not_there_is_named_with_those_that_are(swept, root):
    with pytest.raises(SweepError, match="sweep='t': there is no such sweep; there are: s"):
        sweep_table(SweepFolder(root, "t"))
    for name in ("../s", "", "a b"):
        with pytest.raises(SweepError, match="is not a valid name"):
            SweepFolder(root, name)
    (swept.path / "sweep.json").write_text("{")
    with pytest.raises(SweepError, match=r"sweep.json is damaged"):
        sweep_table(swept)


def test_a_thousand_trials_are_read_in_two_seconds(root, tiny):
    rates = [round(1e-4 * (i + 1), 6) for i in range(250)]
    sweep = make_sweep(axes={"model.d_model": [16, 32, 48, 64], "training.learning_rate": rates}, seeds=1)
    folder = SweepFolder(root, "s")
    folder.prepare(SweepFile(sweep=sweep, base=tiny), extend=False)
    (folder.path / "trials").mkdir()
    for i, trial in enumerate(grid_trials(sweep, tiny)):
        record = TrialRecord(settings=trial.settings)
        (folder.path / "trials" / f"{trial.name}.json").write_text(record.model_dump_json())
        write_run(root, trial.run(0), math.sin(i) + 2)
    started = time.perf_counter()
    table = sweep_table(folder)
    assert len(as_text(table).splitlines()) == 1001
    assert time.perf_counter() - started < 2


def test_another_metric_than_the_goal_has_its_own_order(root, tiny):
    folder = SweepFolder(root, "s")
    sweep = make_sweep(seeds=1)
    folder.prepare(SweepFile(sweep=sweep, base=tiny), extend=False)
    for i, trial in enumerate(grid_trials(sweep, tiny)):
        folder.write_record(trial.name, TrialRecord(settings=trial.settings))
        figures = ValidationFigures(validation_loss=1.0 + i, token_accuracy=0.5, exact_match=i / 4)
        write_run(root, trial.run(0), None, validation=figures)
    assert [row.mean for row in sweep_table(folder).rows] == [1.0, 2.0, 3.0, 4.0]
    table = sweep_table(folder, metric="exact_match")
    assert [row.mean for row in table.rows] == [0.75, 0.5, 0.25, 0.0]
    assert "mean exact match" in as_text(table)


def test_the_command_does_not_wait_for_torch():
    code = "import sys; sys.modules['torch'] = None; import core.cli.sweep_table"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
