"""A run that is published without its pairs: it decodes, and what measures it names the file and where it is from."""

import json
import shutil

import pytest

from core.__main__ import main
from core.config import preset_to_yaml
from core.runs import RunFolder
from core.runs.export import CARD, package_files
from core.runs.importing import import_run
from core.runs.run import Runs
from core.storage.errors import LabError
from core.tasks.ingest import PairFiles, prepare_preset
from tests.support.trainings import train_run

ORIGIN = "a list of numbers, in the public domain"
EXAMPLES = ["number 150 of 3", "number 7 of 0"]
SMALL = {"task.origin": ORIGIN, "task.examples": "\n".join(EXAMPLES)}
SMALL |= {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.steps": 2, "training.warmup_steps": 0}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two copies of a run: ``with`` has its pairs; ``without`` has not, and their file is beside both."""
    root = tmp_path_factory.mktemp("runs")
    lines = [f"number {n} of {n % 7}\tZahl {n} von {n % 7}\n" for n in range(200)]
    (root / "numbers.tsv").write_text("".join(lines))
    pairs = root / "numbers.pairs.tsv"
    (root / "other.tsv").write_text("".join(lines[1:]))
    _, preset = prepare_preset(PairFiles(root / "numbers.tsv"), pairs, kinds=("subword", "subword"), name="numbers")
    folder = RunFolder.create(root, preset.with_changes(SMALL), name="with", pairs=pairs)
    train_run(folder)
    shutil.copytree(folder.path, root / "without")
    (root / "without" / "pairs.tsv").unlink()
    return root


def test_it_decodes_as_with_its_pairs_and_suggests_the_examples_of_its_preset(root):
    whole, without = (Runs(root)[name].trained() for name in ("with", "without"))
    assert without.decode(EXAMPLES[0]).output == whole.decode(EXAMPLES[0]).output
    assert list(without.task.examples) == EXAMPLES
    assert without.task.has_pairs is False
    assert without.task.note(without.task.tokenize("number 3 of 5")) == ""
    assert without.ablate("cross.1.1").decode(EXAMPLES[0]).output


@pytest.mark.parametrize("command", ["evaluate", "report", "analyze"])
def test_commands_that_measure_it_take_the_file(root, capsys, command):
    arguments = ["--checkpoints", str(root), command, "--sequences", "9", "--json"]
    results = []
    for run in (["--run", "with"], ["--run", "without", "--pairs", str(root / "numbers.pairs.tsv")]):
        assert main([*arguments, *run]) == 0
        results.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    changing = "run", "seconds", "folder", "title"
    one, other = ({key: value for key, value in each.items() if key not in changing} for each in results)
    assert one == other


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], f"published without its pairs, which measuring it needs. They are from {ORIGIN}. On the "),
        (["other.tsv"], "other.tsv holds other pairs, with SHA-256"),
        (["nowhere.tsv"], "the file with these pairs is missing"),
    ],
)
def test_without_the_file_or_with_another_they_say_what_is_missing(root, capsys, pairs, message):
    given = [part for name in pairs for part in ("--pairs", str(root / name))]
    assert main(["--checkpoints", str(root), "evaluate", "--run", "without", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert Runs(root)["without"].preset.task.data[:12] in error


def test_runs_on_other_data_take_no_file(root, capsys):
    assert main(["evaluate", "--run", "digits-reversal-shipped", "--pairs", str(root / "numbers.pairs.tsv")]) == 2
    assert "run='digits-reversal-shipped' was not trained on pairs of a file" in capsys.readouterr().err


def test_its_package_names_where_the_pairs_are_from_and_imports(root, tmp_path):
    files = package_files(RunFolder(root, "without"))
    assert "pairs.tsv" not in files
    assert f"| data | {ORIGIN}, SHA-256 `" in files[CARD].decode()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert import_run(tmp_path / "runs", tmp_path, name="theirs").path.joinpath("subwords.json").is_file()
    assert Runs(tmp_path / "runs")["theirs"].trained().decode(EXAMPLES[0]).output


def test_pairs_of_unknown_origin_must_be_there(root, tmp_path):
    shutil.copytree(root / "without", tmp_path / "lost")
    preset = RunFolder(root, "without").read_preset().with_changes({"task.origin": ""})
    (tmp_path / "lost" / "preset.yaml").write_text(preset_to_yaml(preset))
    with pytest.raises(LabError, match="the file with these pairs is missing"):
        Runs(tmp_path)["lost"].trained()
