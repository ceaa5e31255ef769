"""``analyze --health``: the recorded course of a run as a table, CSV and JSON."""

import csv
from pathlib import Path

import pytest

from core.config import load_preset
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.run import Runs
from tests.support.command_output import analyze, last_json
from tests.support.trainings import train_run


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny) -> Path:
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), tiny, name="a")
    train_run(folder)
    return folder.path.parent


def test_the_table_has_a_line_for_each_recorded_step(root):
    code, text, _ = analyze(root, "a", "--health")
    assert code == 0
    last = Runs(root)["a"].replay.snapshots()[-1].health
    header, *lines = text.split("\n\n")[1].splitlines()
    assert header.split()[:4] == ["step", "perplexity", "gradient", "update"]
    assert [line.split()[0] for line in lines] == ["0", "4", "8"]
    assert lines[0].split()[2] == "–"  # no update before step 0
    assert lines[2].split()[1:3] == [f"{last.perplexity:.3g}", f"{max(last.gradient_norm.values()):.3g}"]


def test_frequencies_of_numbers_have_a_column_in_their_runs_only(root, tmp_path):
    small = {"task.prime": 13, "model.d_model": 8, "model.d_ff": 8, "training.steps": 6, "training.evaluate_every": 3}
    small |= {"training.warmup_steps": 1}
    train_run(RunFolder.create(tmp_path, load_preset("grokking").with_changes(small), name="a"))
    spectrum = Runs(tmp_path)["a"].trained().fourier_power()
    _, text, _ = analyze(tmp_path, "a", "--health")
    header, *lines = text.split("\n\n")[1].splitlines()
    last = Runs(tmp_path)["a"].replay.snapshots()[-1].health.heads.fourier_power
    assert lines[-1].split()[header.split().index("frequency")] == f"{max(last):.3g}"
    assert "frequency" not in analyze(root, "a", "--health")[1].split("\n\n")[1]
    _, text, _ = analyze(tmp_path, "a", "--json")
    power = last_json(text)["fourier_power"]
    assert power == {str(frequency): pytest.approx(share, abs=1e-6) for frequency, share in spectrum.items()}
    assert "Fourier power of the number embeddings: none stands out (of 6 frequencies, 16.7 %" in text
    assert "fourier_power" not in last_json(analyze(root, "a", "--json")[1])


def test_csv_and_json_have_every_figure(root, tmp_path):
    code, text, _ = analyze(root, "a", "--health", "--csv", str(tmp_path / "h.csv"), "--json")
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "h.csv").open()))
    records = last_json(text)["health"]
    snapshots = Runs(root)["a"].replay.snapshots()
    assert [row["step"] for row in rows] == ["0", "4", "8"]
    for row, record, snapshot in zip(rows, records, snapshots, strict=True):
        entropy = snapshot.health.heads.entropy["cross"][0][1]
        assert float(row["entropy cross.1.2"]) == record["entropy cross.1.2"] == entropy
    assert rows[0]["gradient_norm output"] == ""
    assert records[0]["gradient_norm output"] is None


def test_a_run_recorded_without_health_is_refused_with_the_reason(root, tiny):
    RunFolder.create(root, tiny, name="old", status="stopped")
    code, _, errors = analyze(root, "old", "--health")
    assert code == 2
    assert "'old' has no recorded health" in errors


def test_a_csv_file_needs_health(tmp_path):
    code, _, errors = analyze(DEFAULT_ROOT, "digits-reversal-shipped", "--csv", str(tmp_path / "h.csv"))
    assert code == 2
    assert "needs --health" in errors


def test_a_csv_file_that_cannot_be_written_is_reported(root, tmp_path):
    code, _, errors = analyze(root, "a", "--health", "--csv", str(tmp_path / "missing" / "h.csv"))
    assert code == 2
    assert "cannot be written" in errors


def test_the_shipped_run_has_its_health_at_every_evaluation():
    code, text, _ = analyze(DEFAULT_ROOT, "digits-reversal-shipped", "--health")
    assert code == 0
    lines = text.split("\n\n")[1].splitlines()[1:]
    assert [line.split()[0] for line in lines] == [str(step) for step in range(0, 1001, 25)]
    assert "11 uniform" in lines[-1]  # as docs/documents.md counts in its best weights, above 0.95
