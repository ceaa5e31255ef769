"""``runs`` and ``rename``: the list of runs, and titles that people tell them apart by."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from core.__main__ import main
from core.runs import RunFolder, RunInfo
from tests.support.command_output import last_json


@pytest.fixture
def lab(lab, root, tiny):
    """Run a command on three runs, one of them damaged."""
    now = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    for age, name in enumerate(("tiny-2", "tiny-1")):
        folder = RunFolder.create(root, tiny, name=name)
        created = now - timedelta(days=age)
        folder.write_info(RunInfo(status="stopped", created=created, step=4, exact_match=0.25 if age else None))
    RunFolder.create(root, tiny, name="torn")
    (root / "torn" / "run.json").write_text("{")
    return lab


def test_runs_are_listed_with_their_titles_the_latest_first(lab):
    lab("rename", "tiny-1", "Without dropout")
    code, output, errors = lab("runs", "--json")
    assert code == 0
    heading, *rows, last = output.splitlines()
    assert heading.split("  ")[0] == "title"
    assert [row.split("  ")[0] for row in rows] == ["tiny 2", "Without dropout"]
    assert "exact match 25.0" in rows[1]
    listed = json.loads(last)["runs"]
    assert listed[1] == {
        "run": "tiny-1",
        "title": "Without dropout",
        "preset": "tiny",
        "task": "reverse 2–5 digits",
        "status": "stopped",
        "shipped": False,
        "step": 4,
        "steps": 8,
        "exact_match": 0.25,
        "train_exact_match": None,
        "train_token_accuracy": None,
        "headline": [{"measure": "exact_match", "name": "exact match", "value": 0.25}],
        "without_bleu": "",
        "quality": None,
        "created": "2026-02-28T12:30:00+00:00",
    }
    assert errors == "not listed: run='torn': run.json is damaged\n"


def test_a_folder_without_runs_has_an_empty_list(root, capsys):
    assert main(["--checkpoints", str(root), "runs", "--json"]) == 0
    assert capsys.readouterr().out == '{"runs": []}\n'


def test_rename_stores_a_title_and_restores_the_default(lab, root):
    code, output, _ = lab("rename", "tiny-1", " Mine ", "--json")
    assert (code, last_json(output)) == (0, {"run": "tiny-1", "title": "Mine"})
    assert RunFolder(root, "tiny-1").read_title() == "Mine"
    assert lab("rename", "tiny-1", "")[1] == "run tiny-1: tiny 1\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nobody", "Mine"), "run='nobody': there is no such run"),
        (("../x", "Mine"), "run='../x' is not a valid name"),
        (("tiny-1", "x" * 61), "title has 61 characters; it must have 1 to 60"),
        (("tiny-1", "a\nb"), "title has the character U+000A at position 2"),
        (("tiny-1", "TINY 2"), "another run has the title 'TINY 2'"),
    ],
)
def test_a_title_that_cannot_be_given_is_refused_in_one_line(lab, root, arguments, message):
    code, output, errors = lab("rename", *arguments)
    assert (code, output) == (2, "")
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert RunFolder(root, "tiny-1").read_title() == "tiny 1"


def test_an_imported_run_is_numbered_and_keeps_its_title_if_no_other_run_has_it(trained, root, tmp_path, capsys):
    file = tmp_path / "run.safetensors"
    folder = RunFolder(trained, "done")
    folder.rename("Best of all", others=[])
    assert main(["--checkpoints", str(trained), "export", "--run", "done", "--out", str(file)]) == 0
    folder.rename("", others=[])
    for _ in range(2):
        assert main(["--checkpoints", str(root), "import", str(file)]) == 0
    assert "run tiny-2:" in capsys.readouterr().out
    assert [RunFolder(root, name).read_title() for name in ("tiny-1", "tiny-2")] == ["Best of all", "tiny 2"]
