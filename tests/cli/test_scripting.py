"""What scripts rely on: exit codes, JSON also for errors, output in any encoding, no bar without a terminal."""

import argparse
import contextlib
import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.__main__ import command_parser, main
from core.cli import COMMANDS, EXAMPLES
from core.config import ConfigError, load_preset, preset_to_yaml
from core.runs import DEFAULT_ROOT
from core.training.distributed import ProcessGroup
from tests.support.command_output import last_json

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = {"steps": 6, "warmup_steps": 2, "evaluate_every": 3, "validation_sequences": 8, "batch_size": 8}
MISTAKES = {
    "presets": "nothing",
    "rename": "nobody title",
    "classes": "--close 0123456789abcdef",
    "train": "--preset nothing",
    "resume": "--run nobody",
    "evaluate": "--run nobody",
    "decode": "--run nobody 1",
    "translate": "--run nobody",
    "analyze": "--run nobody",
    "compare": "--runs nobody",
    "report": "--run nobody",
    "perplexity": "--run nobody",
    "doctor": "--run nobody",
    "gradients": "--run nobody",
    "lesson": "nothing",
    "milestones": "6",
    "describe": "--preset nothing",
    "data": "nothing.tsv",
    "corpus": "help xx --out pairs.tsv",
    "export": "--run nobody --out x.zip",
    "import": "nothing.zip",
    "import-model": "nothing",
    "push": "--run nobody a/b",
    "deploy": "no-owner",
    "pull": "nothing",
    "bench": "solve --preset nothing",
    "sweep": "nothing.yaml",
    "sweep-table": "nothing",
    "sweep-best": "nothing",
    "site": "--out new --presets no-such-preset",
}  # arguments with an error that the command finds, not its parser
CHANGES = [part for key, value in QUICK.items() for part in ("--set", f"training.{key}={value}")]


def at_step_4(monkeypatch, action) -> None:
    """Let something happen when a training makes its fourth step."""
    import core.cli.train as command

    genuine = command._show

    def shown(event, *rest) -> None:
        if event.step == 4:
            action()
        genuine(event, *rest)

    monkeypatch.setattr(command, "_show", shown)


# --- exit codes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("seeds", [[], ["--seeds", "2"]])
def test_a_stopped_training_ends_with_the_code_of_its_signal(lab, monkeypatch, number, code, seeds):
    with monkeypatch.context() as stopping:
        at_step_4(stopping, lambda: signal.raise_signal(number))
        ended, output, _ = lab("train", "--preset", "tiny", "--run", "a", *CHANGES, *seeds, "--json")
    assert ended == code
    assert last_json(output)["status"] == "stopped"
    ended, output, _ = lab("resume", "--run", "a-seed-0" if seeds else "a", "--json")
    assert ended == 0
    assert last_json(output)["status"] == "finished"


def test_a_training_that_another_process_stopped_does_not_end_with_success(lab, monkeypatch):
    group = ProcessGroup()
    monkeypatch.setattr("core.cli.train.process_group", lambda *_: contextlib.nullcontext(group))
    at_step_4(monkeypatch, group.request_stop)
    assert lab("train", "--preset", "tiny", *CHANGES)[0] == 143


# --- JSON -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "the following arguments are required: --preset"),
        (["evaluate", "--run", "a", "--sequences", "many"], "argument --sequences: invalid int value: 'many'"),
        (["bench", "paint"], "argument SUBJECT: invalid choice: 'paint'"),
        (["paint"], "argument COMMAND: invalid choice: 'paint'"),
    ],
)
def test_a_mistake_in_the_command_line_is_printed_as_json_too(lab, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        lab(*arguments, "--json")
    assert ended.value.code == 2
    output, errors = capsys.readouterr()
    assert json.loads(output)["error"].startswith(message)
    assert errors.startswith("usage: ")
    assert message in errors


def test_an_interrupted_command_prints_json_too(lab, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("core.cli.runs.list_runs", interrupted)
    assert lab("runs", "--json") == (130, '{"error": "interrupted"}\n', "")


def test_every_command_has_json():
    groups = "bench", "corpus"
    parsers = {name: command_parser(name) for name in COMMANDS if name not in groups}
    for group in groups:
        parsers |= subcommands(command_parser(group))
    assert [name for name, parser in parsers.items() if "--json" not in parser.format_help()] == []


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    assert action.choices
    return dict(action.choices)


def test_every_command_with_arguments_has_a_mistake_below():
    assert COMMANDS.keys() - MISTAKES.keys() == {"runs"}  # takes none but the folder, see below


@pytest.mark.parametrize("command", MISTAKES)
def test_every_command_prints_its_errors_as_json(lab, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    code, output, errors = lab(*shlex.split(f"{command} {MISTAKES[command]}"), "--json")
    assert code == 2
    assert json.loads(output).keys() == {"error"}
    assert errors == f"error: {json.loads(output)['error']}\n"


def test_a_folder_of_runs_that_is_a_file_is_an_error_in_json(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["--checkpoints", str(tmp_path / "file"), "runs", "--json"]) == 2
    assert json.loads(capsys.readouterr().out).keys() == {"error"}


def test_a_folder_that_cannot_be_written_to_is_named(lab, root, monkeypatch):
    def refused(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    root.mkdir()
    monkeypatch.setattr("core.runs.folder.Path.mkdir", refused)
    code, output, errors = lab("train", "--preset", "tiny", "--json")
    assert code == 2
    assert re.fullmatch(r"error: checkpoints='/.*/checkpoints' cannot be written to: Permission denied\n", errors)
    assert f"error: {json.loads(output)['error']}\n" == errors


def test_the_list_of_lessons_is_printed_as_json(lab):
    code, output, _ = lab("lesson", "--json")
    assert code == 0
    lessons = last_json(output)["lessons"]
    assert lessons["no-causal-mask"] in output.splitlines()[list(lessons).index("no-causal-mask")]


def test_all_lessons_are_printed_as_one_object(lab, monkeypatch, tmp_path):
    results = {"seconds": 1.0}
    monkeypatch.setattr("core.cli.lesson._measured", lambda lesson, known: results | {"name": lesson.name})
    monkeypatch.setattr("core.cli.lesson._lines", lambda lesson, results: [lesson.name])
    output = lab("lesson", "all", "--out", str(tmp_path), "--json")[1].splitlines()
    assert json.loads(output[-1])["lessons"] == {name: results | {"name": name} for name in output[:-1]}
    output = lab("lesson", "no-eos-in-targets", "--out", str(tmp_path), "--json")[1].splitlines()
    assert output == ["no-eos-in-targets", json.dumps(results | {"name": "no-eos-in-targets"})]


# --- output -----------------------------------------------------------------------------------------------------


def test_output_in_an_encoding_without_the_characters_is_escaped():
    command = [sys.executable, "-m", "core", "presets", "tiny"]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert r"decay by 1/\u221astep" in done.stdout.decode("cp1252")


def test_a_summary_of_pairs_is_printed_in_any_encoding(tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text("".join(f"{n}\t{n % 7} ▁→\n" for n in range(100, 160)), encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="cp1252"))
    monkeypatch.setattr("core.cli.data.estimate_training_time", lambda *_, **__: None)
    assert main(["data", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "own.yaml")]) == 0
    assert "\\u2192" in written.getvalue().decode("cp1252")


def test_the_time_to_train_on_pairs_is_measured_with_the_threads_that_train_uses(tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text("".join(f"{n}\t{n % 7}\n" for n in range(100, 160)), encoding="utf-8")
    measured = []
    monkeypatch.setattr("core.cli.data.estimate_training_time", lambda *_, threads, **__: measured.append(threads))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert main(["data", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "own.yaml")]) == 0
    finally:
        torch.set_num_threads(threads)
    assert measured == [3]


def test_a_translation_is_utf_8_whatever_the_encoding(trained, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"4 8\n")))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="cp1252"))
    answer = type("Answer", (), {"output": "Öl → ▁", "problem": "", "note": ""})
    monkeypatch.setattr("core.cli.translate.translate", lambda *_, **__: [answer])
    assert main(["--checkpoints", str(trained), "translate", "--run", "done"]) == 0
    assert written.getvalue().decode("utf-8").splitlines() == ["Öl → ▁"]


def test_a_bar_is_drawn_on_a_terminal_only(lab, monkeypatch):
    code, output, errors = lab("train", "--preset", "tiny", "--run", "a", *CHANGES)
    assert (code, errors) == (0, "")
    assert [line.split()[1] for line in output.splitlines() if line.startswith("step ")] == ["0", "3", "6"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "a2: 100%" in lab("train", "--preset", "tiny", "--run", "a2", *CHANGES)[2]


def test_compare_and_analyze_draw_no_bar_in_a_file(lab):
    assert lab("train", "--preset", "tiny", "--run", "a", "--seeds", "2", *CHANGES)[0] == 0
    for command in (["compare", "--runs", "a"], ["analyze", "--run", "a-seed-0"]):
        code, _, errors = lab(*command, "--sequences", "8")
        assert (code, errors) == (0, "")


# --- help -------------------------------------------------------------------------------------------------------


def test_every_command_has_examples_that_its_parser_takes():
    assert list(EXAMPLES) == list(COMMANDS)
    for name, examples in EXAMPLES.items():
        assert examples
        for example in examples:
            words = shlex.split(example.partition(" < ")[0])
            options = command_parser(name).parse_args(words)
            if preset := getattr(options, "preset", None):
                load_preset(preset)
            if getattr(options, "run", None) == "digits-reversal-shipped":
                assert (DEFAULT_ROOT / options.run).is_dir()


def test_help_shows_the_examples(capsys):
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        shown = capsys.readouterr().out
        assert all(f"  python -m core {name} {example}".rstrip() in shown.splitlines() for example in EXAMPLES[name])
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"  python -m core train {EXAMPLES['train'][0]}" in capsys.readouterr().out.splitlines()


# --- presets and their keys -------------------------------------------------------------------------------------


def test_a_preset_is_printed_with_every_key_that_set_takes(lab):
    code, output, _ = lab("presets", "tiny", "--json")
    assert code == 0
    *lines, last = output.splitlines()
    preset = load_preset("tiny")
    assert "\n".join(lines) + "\n" == preset_to_yaml(preset)
    assert json.loads(last) == {"presets": {"tiny": preset.model_dump(exclude={"name"})}}
    assert lab("presets", "nothing")[0] == 2
    assert lab("presets", "tiny", "--times")[0] == 2


def test_set_says_where_its_keys_are_listed():
    assert "`presets NAME` lists all keys" in " ".join(command_parser("train").format_help().split())


@pytest.mark.parametrize("steps", [1, 5, 30])
def test_the_refusal_of_few_steps_names_values_that_are_accepted(lab, steps):
    code, _, errors = lab(
        "train", "--preset", "tiny", "--set", f"training.steps={steps}", "--set", "training.warmup_steps=40"
    )
    assert code == 2
    advice = errors.partition("; set both, such as ")[2].split(" and ")
    changes = {key: int(value) for key, value in (each.strip().split("=") for each in advice)}
    assert changes["training.steps"] == steps
    for schedule in ("linear", "inverse-sqrt"):
        load_preset("tiny").with_changes(changes | {"training.schedule": schedule})
    with pytest.raises(ConfigError):
        load_preset("tiny").with_changes({"training.steps": steps, "training.warmup_steps": 40})
