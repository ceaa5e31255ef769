"""The command line: its last line is JSON, its mistakes are one line, and nothing is left half-done."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.__main__ import main
from core.config import load_preset, preset_names, preset_to_yaml
from core.evaluation.accuracy import evaluate
from core.runs import RunFolder, RunInfo
from core.server import Runs
from core.tasks import fixed_pairs

REPOSITORY = Path(__file__).resolve().parents[2]
FIGURES = {"exact_match", "token_accuracy", "loss", "perplexity"}
QUICK = ["--set", "training.steps=6", "--set", "training.warmup_steps=2", "--set", "training.evaluate_every=3"]
SMALL = ["--set", "training.validation_sequences=8", "--set", "training.batch_size=8", "--set", "model.d_model=16"]


@pytest.fixture
def lab(root, capsys):
    """Run a command below a folder of its own: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(root), *arguments])
        return code, *capsys.readouterr()

    return run


def last_json(output: str) -> dict:
    return json.loads(output.strip().splitlines()[-1])


# --- train and resume -------------------------------------------------------------------------------------------


def test_train_keeps_a_run_and_ends_with_one_line_of_json(lab, root):
    code, output, _ = lab("train", "--preset", "tiny", "--run", "mine", "--seed", "5", *QUICK, *SMALL, "--json")
    assert code == 0
    said = last_json(output)
    assert set(said) >= FIGURES
    assert (said["run"], said["preset"], said["status"]) == ("mine", "tiny", "finished")
    assert (said["steps"], said["sequences_seen"], said["sequences"]) == (6, 48, 8)
    assert said["parameters"] > 0
    assert said["seconds"] > 0
    assert 0 <= said["exact_match"] <= said["token_accuracy"] <= 1
    folder = RunFolder(root, "mine")
    assert folder.info().status == "finished"
    assert folder.preset().training.seed == 5
    assert folder.preset().model.d_model == 16
    folder.lock().release()


def test_train_makes_up_a_name_and_speaks_plainly_without_json(lab, root):
    code, output, errors = lab("train", "--preset", "tiny", *QUICK, *SMALL)
    assert code == 0
    (name,) = os.listdir(root)
    assert f"run {name}: finished after 6 of 6 steps" in output
    assert "{" not in output
    assert name in errors  # the progress bar


def test_train_takes_a_file(lab, tiny, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(preset_to_yaml(tiny))
    code, output, _ = lab("train", "--preset", str(path), "--json")
    assert code == 0
    assert last_json(output)["steps"] == 8


def test_the_same_seed_gives_the_same_figures_and_another_others(lab):
    said = [last_json(lab("train", "--preset", "tiny", "--seed", seed, *QUICK, *SMALL, "--json")[1]) for seed in "334"]
    losses = [figures["loss"] for figures in said]
    assert losses[0] == losses[1] != losses[2]


def test_a_diverged_training_is_exit_code_one(lab, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: float("nan"))
    code, output, errors = lab("train", "--preset", "tiny", "--run", "a", *QUICK, *SMALL, "--json")
    assert code == 1
    assert last_json(output)["status"] == "failed"
    assert "step 1: loss=" in errors


def test_ctrl_c_saves_the_run_and_resume_finishes_it_as_if_uninterrupted(lab, root, monkeypatch):
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
    assert code == 0
    said = last_json(output)
    assert (said["status"], said["steps"]) == ("stopped", 4)
    assert signal.getsignal(signal.SIGINT) is before
    code, output, _ = lab("resume", "--run", "a", "--json")
    assert code == 0
    resumed = last_json(output)
    straight = last_json(lab("train", *arguments, "--run", "b")[1])
    for key in (*FIGURES, "status", "steps", "sequences_seen"):
        assert resumed[key] == straight[key], key
    assert sorted((root / "a/metrics.jsonl").read_text().splitlines()) == sorted(
        (root / "b/metrics.jsonl").read_text().splitlines()
    )


def test_resume_of_a_finished_run_is_refused(trained, capsys):
    assert main(["--checkpoints", str(trained), "resume", "--run", "done"]) == 2
    assert capsys.readouterr().err == "error: run='done' has finished all its 8 steps\n"


def test_resume_of_a_shipped_run_is_refused(lab, root, tiny):
    RunFolder.create(root, tiny, name="gift").write_info(RunInfo(status="stopped", shipped=True))
    assert lab("resume", "--run", "gift")[0] == 2


# --- evaluate, decode, presets ----------------------------------------------------------------------------------


def test_evaluate_measures_held_out_sequences(trained, capsys):
    arguments = ["--checkpoints", str(trained), "evaluate", "--run", "done", "--sequences", "50", "--json"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    said = last_json(output)
    assert FIGURES | {"parameters", "seconds", "cross_attention"} <= set(said)
    assert (said["run"], said["sequences"]) == ("done", 50)
    assert [(head["layer"], head["head"]) for head in said["cross_attention"]] == [(1, 1), (1, 2)]
    for head in said["cross_attention"]:
        assert {"attention_mass", "argmax_accuracy", "uniform_mass"} <= set(head)
    assert "exact match" in output
    loaded = Runs(trained).loaded("done")
    measured = evaluate(loaded.model, fixed_pairs(loaded.task, 50, split="test"))
    assert said["loss"] == pytest.approx(measured.loss, abs=1e-6)
    assert main(arguments) == 0
    again = last_json(capsys.readouterr().out)
    assert all(again[key] == said[key] for key in said if key != "seconds")


def test_decode_shows_the_answer_the_expected_one_and_every_step(trained, capsys):
    assert main(["--checkpoints", str(trained), "decode", "--run", "done", "4829", "--json"]) == 0
    output = capsys.readouterr().out
    said = last_json(output)
    assert said["input"] == "4 8 2 9"
    assert said["expected"] == "9 2 8 4"
    assert said["correct"] is (said["output"] == "9 2 8 4" and said["stopped"])
    for step in said["steps"]:
        assert step["token"] == step["candidates"][0]["token"]
        assert 0 < step["probability"] <= 1
    assert "expected  9 2 8 4" in output


def test_presets_lists_them_all(lab):
    code, output, _ = lab("presets", "--json")
    assert code == 0
    said = last_json(output)["presets"]
    assert sorted(said) == preset_names()
    for name in preset_names():
        assert said[name]["training"]["steps"] == load_preset(name).training.steps
        assert f"{name} " in output


def test_presets_does_not_wait_for_torch():
    script = (
        "import sys; from core.__main__ import main\n"
        "code = main(['presets'])\n"
        "print(code, sorted({'torch', 'numpy', 'matplotlib', 'gradio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_the_module_runs_from_a_shell_and_returns_its_code(tmp_path):
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
        (["train", "--preset", "tiny", "--run", "../x"], "run='../x' is not a valid name"),
        (["train", "--preset", "tiny", "--set", "training.steps"], "must look like training.steps=500"),
        (["train", "--preset", "tiny", "--set", "training.steps=many"], "training.steps='many' should be a valid int"),
        (["train", "--preset", "tiny", "--set", "training.steps=[1"], "training.steps: not valid YAML"),
        (["train", "--preset", "tiny", "--set", "training.stepz=5"], "training.stepz is not a known key"),
        (["train", "--preset", "tiny", "--set", "model.d_model=30", "--set", "model.num_heads=4"], "divisible"),
        (["train", "--preset", "tiny", "--seed", "-1"], "training.seed=-1 should be greater than or equal to 0"),
        (["resume", "--run", "nobody"], "run='nobody': there is no such run"),
        (["evaluate", "--run", "nobody"], "run='nobody': there is no such run"),
        (["evaluate", "--run", "UPPER"], "run='UPPER' is not a valid name"),
        (["evaluate", "--run", "nobody", "--sequences", "0"], "--sequences=0 must be from 1"),
        (["decode", "--run", "nobody", "12"], "run='nobody': there is no such run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_exit_code_two_and_one_line_and_leaves_nothing(lab, root, arguments, message):
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
def test_bad_input_for_a_model_is_named(trained, capsys, text, message):
    assert main(["--checkpoints", str(trained), "decode", "--run", "done", text]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_name_taken_is_refused_and_the_run_left_alone(trained, capsys):
    before = (trained / "done/run.json").read_bytes()
    assert main(["--checkpoints", str(trained), "train", "--preset", "tiny", "--run", "done"]) == 2
    assert "run='done' exists already" in capsys.readouterr().err
    assert (trained / "done/run.json").read_bytes() == before


@pytest.mark.parametrize("arguments", [[], ["paint"], ["train"], ["decode", "--run", "a"]])
def test_a_command_line_that_makes_no_sense_is_exit_code_two(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


# --- report -----------------------------------------------------------------------------------------------------


def test_a_report_is_written_into_the_runs_folder_or_where_asked_to(trained, tmp_path, capsys):
    for options, folder in (([], trained / "done" / "report"), (["--out", str(tmp_path / "out")], tmp_path / "out")):
        code = main(["--checkpoints", str(trained), "report", "--run", "done", "--sequences", "40", *options, "--json"])
        output = capsys.readouterr().out
        assert code == 0
        said = last_json(output)
        assert output.startswith(said["summary"])
        assert said["folder"] == str(folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(said["files"])


@pytest.mark.parametrize("sequences", ["0", "-1", "1000001"])
def test_a_report_on_no_sequences_is_refused(trained, capsys, sequences):
    assert main(["--checkpoints", str(trained), "report", "--run", "done", "--sequences", sequences]) == 2
    assert f"--sequences={sequences} must be from 1 to" in capsys.readouterr().err


def test_each_epoch_of_a_fixed_set_is_told_with_its_losses(lab):
    settings = ["training.training_sequences=16", "training.evaluate_every=2", "training.steps=6"]
    sets = [part for setting in settings for part in ("--set", setting)]
    code, output, _ = lab("train", "--preset", "tiny", *QUICK, *SMALL, *sets)
    assert code == 0
    lines = [line for line in output.splitlines() if line.startswith("step ")]
    assert [line.split()[3] for line in lines] == ["0.00", "1.00", "2.00", "3.00"]
    assert "train loss      –" in lines[0]
    for line in lines[1:]:
        assert re.search(r"train loss \d\.\d{4}  validation loss \d\.\d{4}  exact match +\d+\.\d%", line)
