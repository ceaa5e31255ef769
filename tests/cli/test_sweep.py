"""``sweep``, ``sweep-table`` and ``sweep-best`` on the command line, with threads in place of processes."""

import signal
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from core.__main__ import main
from core.config import load_preset_file, preset_to_yaml
from core.reports.sweep_figure import sweep_figure
from core.runs import RunFolder
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.table import sweep_table
from core.training.memory import training_memory
from tests.runs.sweeps.conftest import train_in_threads
from tests.support.command_output import last_json

EXAMPLE = Path(__file__).parents[2] / "docs/examples/modern_blocks.py"
AXES = "axes:\n  model.d_model: [16, 32]\n"
GRID = f"{AXES}  training.learning_rate: [0.003, 0.01]\n"
SEARCH = "search: tpe\ntrials: 2\naxes:\n  training.learning_rate: {low: 0.001, high: 0.01, log: true}\n"


@pytest.fixture
def lab(lab, monkeypatch):
    """Run a command, with threads in place of processes."""
    train_in_threads(monkeypatch)
    monkeypatch.setattr("core.cli.sweep.usable_cores", lambda: 2)
    return lab


@pytest.fixture
def file(tmp_path, tiny):
    """Return a function that writes ``s.yaml``, a sweep of ``small.yaml``, and returns its path."""
    layers = {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1}
    short = tiny.with_changes(layers | {"training.steps": 4, "training.validation_sequences": 4})
    (tmp_path / "small.yaml").write_text(preset_to_yaml(short))

    def write(text: str = AXES, seeds: int = 2) -> str:
        (tmp_path / "s.yaml").write_text(f"preset: small.yaml\nseeds: {seeds}\n{text}")
        return str(tmp_path / "s.yaml")

    return write


def test_a_sweep_prints_a_line_a_run_and_then_its_table(lab, file, root):
    code, output, errors = lab("sweep", file(), "--jobs", "2", "--json")
    assert (code, errors) == (0, "")  # no bar without a terminal
    lines = [line for line in output.splitlines() if line.startswith("s-")]
    assert len(lines) == 4
    assert all("-seed-" in line and "  validation loss " in line for line in lines)
    *_, hint = [line for line in output.splitlines() if line.startswith("sweep s:")]
    assert hint == f"sweep s: 4 runs trained; python -m core --checkpoints {root} sweep-table s"
    counts = {"sweep": "s", "status": "finished", "runs": 4, "done": 4, "skipped": 0, "pruned": 0, "failed": 0}
    assert last_json(output) == counts
    code, output, _ = lab("sweep-table", "s", "--json")
    rows = last_json(output)["rows"]
    assert code == 0
    assert len(output.splitlines()) == 1 + 2 + 1
    assert [row["mean"] for row in rows] == sorted(row["mean"] for row in rows)
    info = RunFolder(root, rows[0]["runs"][1]).read_info()
    assert rows[0]["values"][1] == info.validation.validation_loss
    assert lab("sweep-table", "s", "--format", "csv")[1].count("\n") == 3
    assert lab("sweep-table", "s", "--format", "latex")[1].startswith(r"\begin{tabular}")
    assert last_json(lab("sweep", file(), "--json")[1]) == counts | {"done": 0, "skipped": 4}


def test_a_sweep_of_a_plugins_family_trains_in_processes_that_load_the_plugin(
    root, tmp_path, capsys, own_plugins, monkeypatch
):
    monkeypatch.setattr("core.cli.sweep.usable_cores", lambda: 2)
    steps = "{training.steps: 4, training.warmup_steps: 1, training.evaluate_every: 4, training.batch_size: 8}"
    axes = "axes: {training.learning_rate: [0.003]}"
    (tmp_path / "s.yaml").write_text(f"preset: modern-reversal\nseeds: 1\nset: {steps}\n{axes}\n")
    command = ["--checkpoints", str(root), "sweep", str(tmp_path / "s.yaml"), "--jobs", "2"]
    assert main([*command, "--plugin", str(EXAMPLE)]) == 0, capsys.readouterr()
    (run,) = (RunFolder(root, path.name).read_info() for path in root.glob("*-seed-0"))
    assert (run.status, run.provenance[0].plugins[0].name) == ("finished", "modern_blocks.py")
    assert main([*command, "--ray", "auto"]) == 2
    assert "--ray with --plugin modern_blocks.py: the nodes do not have the file" in capsys.readouterr().err
    assert SweepFolder(root, "s").read().base.model.family == "modern"


def test_the_sweep_of_a_plugins_family_says_that_it_needs_the_plugin(lab, file, root):
    lab("sweep", file(seeds=1))
    path = root / "s.sweep" / "sweep.json"
    path.write_text(path.read_text().replace('"family": "transformer"', '"family": "modern"'))
    code, _, errors = lab("sweep-table", "s")
    assert code == 2
    assert errors.startswith("error: sweep='s': its preset cannot be used: model.family='modern' should be ")
    assert errors.endswith("; a family of your own needs what registers it: --plugin FILE, or its cell in a notebook\n")


def test_trials_are_drawn_along_an_axis(lab, file, tmp_path):
    lab("sweep", file(GRID, seeds=1))
    picture = tmp_path / "s.png"
    losses = sorted(row["mean"] for row in last_json(lab("sweep-table", "s", "--json")[1])["rows"])
    words = ["sweep-table", "s", "--plot", str(picture), "--by", "training.learning_rate"]
    code, output, _ = lab(*words, "--level", str(losses[1]))
    assert (code, output.splitlines()[-1]) == (0, f"written: {picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    table = sweep_table(SweepFolder(tmp_path / "checkpoints", "s"))
    figure = sweep_figure(table, key="training.learning_rate", level=losses[1])
    (axes,) = figure.axes
    assert sorted(axes.lines[0].get_ydata()) == losses
    assert axes.get_title() == f"s: 4 trials; 2 reach {losses[1]:g}"
    for wrong, message in (
        (["--by", "model.norm"], "--by=model.norm is not an axis of the sweep"),
        (["--plot", "s.gif"], "--plot=s.gif must end with .png"),
        (["--level", "nan"], "--level=nan must be a finite number"),
    ):
        code, _, errors = lab(*words, *wrong)
        assert (code, message in errors) == (2, True)
    assert lab("sweep-table", "s", "--by", "model.d_model")[2].startswith("error: --plot and --by must be given")
    assert "--level is drawn into the plot" in lab("sweep-table", "s", "--level", "0.5")[2]


def test_the_best_is_chosen_on_validation_and_only_it_is_tested(lab, file, tmp_path, monkeypatch):
    lab("sweep", file())
    tested = []
    from core.runs.sweeps import best

    genuine = best.load_run
    monkeypatch.setattr(best, "load_run", lambda path: tested.append(path.name) or genuine(path))
    preset = tmp_path / "best.yaml"
    code, output, _ = lab("sweep-best", "s", "--sequences", "20", "--save-preset", str(preset), "--json")
    result = last_json(output)
    row = last_json(lab("sweep-table", "s", "--json")[1])["rows"][0]
    assert (code, result["trial"]) == (0, row)
    assert tested == row["runs"]
    assert set(result["test"]) == {"loss", "token_accuracy", "exact_match"}
    assert (result["test"]["loss"]["n"], result["test_sequences"], result["candidates"]) == (2, 20, 2)
    lengths = result["input_lengths"]
    assert {split: sum(counts.values()) for split, counts in lengths.items()} == {
        "validation": load_preset_file(preset).training.validation_sequences,
        "test": 20,
    }
    listed = ", ".join(f"{length}: {count}" for length, count in lengths["test"].items())
    assert f"input lengths of the test set: {listed}\n" in output
    saved = load_preset_file(preset)
    assert (saved.name, saved.model.d_model) == ("s-best", row["settings"]["model.d_model"])
    code, _, errors = lab("sweep-best", "s", "--save-preset", str(preset))
    assert (code, "exists already" in errors) == (2, True)
    code, _, errors = lab("sweep-table", "s", "--metric", "bleu")
    assert (code, errors) == (2, "error: metric=bleu: no run of the sweep s measured it\n")


def test_no_best_before_a_trial_is_complete(lab, file, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: float("nan"))
    code, output, _ = lab("sweep", file(), "--json")
    assert (code, last_json(output)["status"], last_json(output)["failed"]) == (1, "failed", 4)
    code, _, errors = lab("sweep-best", "s")
    assert (code, errors) == (2, "error: sweep='s': no trial has all its 2 seeds done yet\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_sweep_goes_on_where_it_was(lab, file, monkeypatch, number, code):
    from core.cli.sweep import _Progress

    genuine, shown = _Progress.show, []

    def interrupted(progress, result):
        genuine(progress, result)
        shown.append(result)
        if len(shown) == 1:
            signal.raise_signal(number)

    with monkeypatch.context() as context:
        context.setattr(_Progress, "show", interrupted)
        ended, output, _ = lab("sweep", file(), "--json")
    assert (ended, last_json(output)["status"]) == (code, "stopped")
    done = last_json(output)["done"]
    assert 1 <= done <= 3
    ended, output, _ = lab("sweep", file(), "--json")
    assert (ended, last_json(output)["done"], last_json(output)["skipped"]) == (0, 4 - done, done)


def test_more_seeds_need_extend(lab, file):
    one = "axes: {model.d_model: [16]}\n"
    lab("sweep", file(one, seeds=1))
    code, _, errors = lab("sweep", file(one, seeds=2))
    assert (code, "pass --extend" in errors) == (2, True)
    assert last_json(lab("sweep", file(one, seeds=2), "--extend", "--json")[1])["done"] == 1


def test_a_search_is_drawn_trained_and_shown(lab, file):
    pytest.importorskip("optuna")
    code, output, _ = lab("sweep", file(f"{SEARCH}pruning: halving\n"), "--json")
    result = last_json(output)
    assert (code, result["done"] + result["pruned"]) == (0, 4)
    assert len(lab("sweep-table", "s")[1].splitlines()) == 3


def test_a_search_that_draws_no_other_settings_says_so_and_lacks_no_trial(lab, file):
    pytest.importorskip("optuna")
    code, output, errors = lab("sweep", file(f"search: random\ntrials: 5\n{AXES}", seeds=1))
    assert (code, errors) == (0, "")
    assert output.splitlines()[-1] == "2 trials of 5: no other valid settings were drawn"
    code, output, errors = lab("sweep-best", "s", "--sequences", "20", "--json")
    assert (code, errors, last_json(output)["open_trials"]) == (0, "", 0)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (AXES, ["--jobs", "3"], "--jobs=3 must be from 1 to 2, the number of cores that this process may use"),
        (AXES, ["--jobs", "0"], "--jobs=0 must be from 1 to 2"),
        (AXES, ["--index", "0"], "--index and --of must be given together"),
        (AXES, ["--index", "4", "--of", "4"], "--index=4 --of=4: the index must be from 0 to N - 1"),
        (SEARCH, ["--index", "0", "--of", "4"], "--index=0 is for search=grid without pruning"),
        (AXES, ["--storage", "sqlite:///x"], "--storage is for search=random or tpe, and for pruning"),
        (AXES, ["--ray", "ray://head:1"], "--ray=ray://head:1 must be HOST:PORT, or auto"),
        (AXES, ["--ray", "local"], "--ray=local must be HOST:PORT, or auto"),
        (AXES, ["--ray", "head:1", "--jobs", "0"], "--jobs=0 must be from 1 to 10,000 with --ray"),
        (AXES, ["--log", "mlflow"], "--log=mlflow is not known; there are csv, tensorboard, trackio, wandb"),
        (AXES + "resources: {gpus: 1}\n", [], "resources.gpus=1 needs --ray; without it, runs are trained on the CPU"),
        (AXES + "resources: {cpus: 1.5}\n", [], "resources: cpus=1.5 must be a whole number, or below 1"),
        (AXES + "resources: {gpu: 1}\n", [], "resources.gpu is not a known key; known keys are cpus, gpus, memory_mb"),
        (AXES + "gaol: {}\n", [], "gaol is not a known key"),
        (AXES + "goal: {metric: bleu}\n", [], "goal.metric='bleu' is measured for translations only"),
        (
            AXES + "goal: {metric: free_running_loss}\n",
            [],
            "goal.metric='free_running_loss' needs training.free_running",
        ),
        (GRID + "goal: {updates: 1}\n", [], "model.d_model=16, training.learning_rate=0.003: training.warmup_steps=2"),
        (AXES + "name: ../s\n", [], "name='../s' should be a-z, 0-9 and -"),
        (SEARCH.replace("0.01,", "1e-4,"), [], "axes.training.learning_rate: low=0.001 must be below high=0.0001"),
    ],
)
def test_what_cannot_succeed_is_refused_before_anything_is_written(lab, file, root, text, arguments, message):
    code, output, errors = lab("sweep", file(text), *arguments, "--json")
    assert (code, errors.startswith(f"error: {message}")) == (2, True), errors
    assert last_json(output).keys() == {"error"}
    assert not root.exists()


def test_a_cluster_needs_ray(lab, file, root, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, errors = lab("sweep", file(), "--ray", "head:6379")
    assert (code, errors) == (2, "error: --ray needs the package ray: pip install ray\n")
    assert not root.exists()


def test_resources_may_change_and_logs_are_passed_on(lab, file, root):
    lab("sweep", file(seeds=1), "--log", "csv")
    assert len(list(root.glob("*/log.csv"))) == 2
    code, output, _ = lab("sweep", file(AXES + "resources: {cpus: 0.5, memory_mb: 100}\n", seeds=1), "--json")
    assert (code, last_json(output)["skipped"]) == (0, 2)


def test_a_machine_without_room_refuses_a_sweep(lab, file, root, monkeypatch):
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as context:
        context.setattr("core.runs.sweeps.checks.shutil.disk_usage", lambda _: usage(10, 10, 10_000_000))
        errors = lab("sweep", file())[2]
    assert errors.startswith("error: 4 runs need up to ")
    assert "MB of disk space; 10 MB are free in checkpoints/" in errors
    with monkeypatch.context() as context:
        context.setattr("core.runs.sweeps.checks.machine_memory", lambda: 400_000_000)
        context.setattr("core.runs.sweeps.checks.training_memory", training_memory)
        errors = lab("sweep", file())[2]
    assert "a run needs about" in errors
    assert "this machine has 60 MB for the runs of a sweep" in errors
    assert not root.exists()


def test_a_run_of_the_same_name_is_not_taken_over(lab, file, root, tiny):
    lab("sweep", file(seeds=1))
    name = next(path.parent.name for path in root.glob("*/run.json"))
    trial = name.rpartition("-seed-")[0]
    (root / "s.sweep" / "trials" / f"{trial}.json").unlink()
    (root / name / "preset.yaml").write_text(preset_to_yaml(tiny.with_changes({"training.batch_size": 9})))
    code, _, errors = lab("sweep", file(seeds=1))
    assert (code, errors) == (
        2,
        f"error: run={name!r} exists already, with another preset; give the sweep another name\n",
    )


def test_own_pairs_come_from_the_file_beside_the_preset(lab, tmp_path, root):
    words = [f"{first}{second}" for first in "abcdefgh" for second in "abcdefghij"]
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    assert lab("data", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "own.yaml"))[0] == 0
    quick = "{training.steps: 4, training.warmup_steps: 1, training.evaluate_every: 4}"
    (tmp_path / "s.yaml").write_text(f"preset: own.yaml\nset: {quick}\naxes: {{model.dropout: [0.0, 0.1]}}\n")
    code, output, errors = lab("sweep", str(tmp_path / "s.yaml"), "--json")
    assert (code, last_json(output)["done"]) == (0, 2), errors
    assert lab("sweep-best", "s", "--save-preset", str(tmp_path / "best.yaml"))[0] == 0
    assert (tmp_path / "best.pairs.tsv").read_bytes() == (tmp_path / "own.pairs.tsv").read_bytes()
