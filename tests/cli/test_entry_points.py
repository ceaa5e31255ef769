"""How the command line starts: quickly, with few imports, and under the name it is installed by."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from core.__main__ import build_parser, command_parser, main
from core.cli import COMMANDS, analyze_prediction, parsers
from core.reports.comparison import groups
from core.runs import hub_space
from core.runs.sweeps import table
from core.tasks.ingest import formats
from tests.support.command_output import last_json

REPOSITORY = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
HEAVY = {"torch", "numpy", "pandas", "matplotlib", "gradio", "pydantic"}
REPORT = """
import json, sys
from core.__main__ import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
files = {name: getattr(module, "__file__", "") or "" for name, module in sys.modules.items()}
print(json.dumps({"code": code, "files": files}))
"""


def modules_of(*arguments: str, code: int = 0) -> set[str]:
    """Run a command in a new process and return the modules that it imported, packages left out."""
    command = [sys.executable, "-c", REPORT, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True)
    report = last_json(done.stdout)
    assert report["code"] == code
    return {name for name, file in report["files"].items() if not file.endswith("__init__.py")} | {
        name.split(".")[0] for name in report["files"]
    }


def test_help_imports_no_command_and_nothing_heavy():
    modules = modules_of("--help")
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith("core.cli.")}


def test_presets_are_listed_without_torch():
    modules = modules_of("presets")
    assert not modules & (HEAVY - {"pydantic"})
    assert {name for name in modules if name.startswith("core.cli.")} == {
        f"core.cli.{name}" for name in ("presets", "parsers", "arguments", "bench_subjects")
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--preset", "tiny", "--set", "training.stepz=5"),
        ("bench", "solve", "--preset", "nothing"),
    ],
    ids=" ".join,
)
def test_wrong_options_and_presets_are_refused_without_torch(arguments):
    assert not modules_of(*arguments, code=2) & (HEAVY - {"pydantic"})


def test_every_module_of_the_commands_is_reached():
    modules = {path.stem for path in (REPOSITORY / "core/cli").glob("*.py")} - {"__init__"}
    shared = {"arguments", "analyze_prediction", "bench_subjects", "doctor_benchmark", "parsers", "signals"}
    assert modules - shared == {"import_run" if name == "import" else name.replace("-", "_") for name in COMMANDS}


def test_choices_are_those_that_the_commands_know():
    assert tuple(hub_space.HARDWARE) == parsers.HARDWARE
    assert tuple(analyze_prediction.METHODS) == parsers.METHODS
    assert parsers.PAIR_FORMATS == formats.FORMATS
    assert parsers.TABLE_FORMATS == tuple(groups.FORMATS) == tuple(table.FORMATS)


def test_help_lists_every_command_with_its_summary():
    text = " ".join(build_parser().format_help().split())
    assert all(f"{name} {summary}" in text for name, summary in COMMANDS.items())


def test_every_command_explains_each_of_its_arguments(capsys):
    for name in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        output = capsys.readouterr().out
        assert output.startswith(f"usage: python -m core {name} ")
        for action in command_parser(name)._actions:
            assert action.help, f"{name}: {action.dest}"
            assert all(option in output for option in action.option_strings[:1])


def test_the_installed_command_is_this_command_line(capsys):
    assert PYPROJECT["project"]["name"] == "attention-lab"
    module, _, function = PYPROJECT["project"]["scripts"]["attention-lab"].partition(":")
    entry_point = getattr(importlib.import_module(module), function)
    with pytest.raises(SystemExit):
        entry_point(["--help"])
    as_module = subprocess.run(
        [sys.executable, "-m", "core", "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert " ".join(capsys.readouterr().out.split()) == " ".join(as_module.stdout.split())


def test_the_package_takes_its_version_from_one_place():
    dynamic = PYPROJECT["tool"]["setuptools"]["dynamic"]
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert dynamic == {"version": {"attr": "core.__version__"}}
