"""``compare``: tables, JSON, and refusals in one line."""

import pytest
import torch

from core.__main__ import main
from core.cli.compare import named_runs
from core.runs import RunFolder
from tests.support.command_output import last_json
from tests.support.trainings import train_run


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, tiny, tiny_gru):
    """A folder with two seeds of the tiny Transformer, a GRU, a run of another task, and one without weights."""
    torch.set_num_threads(1)  # the fixture that does so for every test has not run yet
    root = tmp_path_factory.mktemp("compared")
    presets = {f"rev-seed-{seed}": tiny.with_changes({"training.seed": seed}) for seed in (0, 1)}
    presets |= {"gru": tiny_gru, "copy": tiny.with_changes({"task.transform": "copy"})}
    for name, preset in presets.items():
        folder = RunFolder.create(root, preset, name=name)
        train_run(folder)
    RunFolder.create(root, tiny, name="empty", status="stopped")
    return root


@pytest.fixture
def compared(shelf, capsys):
    """Compare runs of the folder: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(shelf), "compare", "--sequences", "40", *arguments])
        return code, *capsys.readouterr()

    return run


def test_two_runs_are_compared_in_a_sentence(compared):
    code, output, _ = compared("--runs", "rev-seed-1,gru")
    assert code == 0
    assert "reverse 2–5 digits: 40 held-out inputs, the same for all" in output
    for row in ("rev-seed-1  best, step ", "model.family", "d_hidden", "rev-seed-1 "):
        assert row in output
    assert "confidence interval" in output
    assert "these trained models, not their settings" in output
    assert "over seeds" not in output
    assert "{" not in output


def test_json_has_all_figures_and_lengths(compared):
    code, output, errors = compared("--runs", "rev,gru", "--lengths", "--json")
    assert code == 0
    assert errors == ""
    assert "over seeds, mean ± standard deviation" in output
    assert "is not evaluated on longer inputs" not in output  # 16 are enough for twice 5 digits
    result = last_json(output)
    assert [run["run"] for run in result["runs"]] == ["rev-seed-0", "rev-seed-1", "gru"]
    assert [(group["label"], group["n"], group["seeds"]) for group in result["groups"]] == [
        ("rev", 2, [0, 1]),
        ("gru", 1, [0]),
    ]
    assert len(result["pairs"]) == 3
    for pair in result["pairs"]:
        assert pair["wins"] + pair["losses"] + pair["ties"] == result["sequences"] == 40
        assert 0 <= pair["p_value"] <= 1
    assert result["groups"][0]["by_step"]["validation_loss"]["at"] == [0, 4, 8]
    assert result["lengths"]["at"] == list(range(1, 11))
    assert max(result["lengths"]["inputs"]) == 100
    assert "exact match by symbols in the input; trained on 2 to 5, means over seeds" in output


def test_a_range_of_lengths_gives_means_beyond_the_training_lengths(compared):
    code, output, _ = compared("--runs", "rev,gru", "--lengths", "4-12", "--per-length", "7", "--json")
    assert code == 0
    lengths = last_json(output)["lengths"]
    assert set(lengths["inputs"]) == {7}
    assert lengths["at"] == list(range(4, 13))
    assert lengths["longer"]["at"] == list(range(6, 13))  # trained on 2 to 5
    means = lengths["longer"]["runs"]
    gru = lengths["groups"][1]
    for name in ("token_accuracy", "exact_match"):
        assert means["gru"][name] == pytest.approx(sum(gru[name]["mean"][2:]) / 7)
    assert "means over lengths 6–12" in output
    assert output.count("median of ") == 1  # the GRU has one seed


@pytest.mark.parametrize("text", ["41", "9-3", "0-4", "a-b", "4-12-", "1-99999"])
def test_an_invalid_range_of_lengths_is_refused(compared, text):
    code, _, errors = compared("--runs", "rev,gru", "--lengths", text)
    assert code == 2
    assert f"--lengths={text} must be two lengths" in errors


def test_runs_that_differ_in_their_seed_differ_in_no_setting(compared, shelf, tiny):
    RunFolder.create(shelf, tiny, name="rev-seed-x", status="stopped")  # no seed, so not one of them
    code, output, _ = compared("--runs", "rev")
    assert code == 0
    assert "no setting differs except the seed" in output
    assert "first wins" not in output
    assert "rev-seed-0 " in output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--runs", "gru"], "runs='gru': 1 given; 2 to 20 runs can be compared"),
        (["--runs", ""], "runs='': 0 given"),
        (["--runs", "gru,gru"], "names a run twice"),
        (["--runs", "gru,rev-seed-0,copy"], "(task.transform: reverse and copy)"),
        (["--runs", "gru,nobody"], "run='nobody': there is no such run"),
        (["--runs", "gru,../gru"], "is not a valid name"),
        (["--runs", "gru,empty"], "run='empty' has no weights yet"),
        (["--runs", "gru,rev", "--sequences", "0"], "--sequences=0 must be from 1 to"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(compared, arguments, reason):
    code, output, errors = compared(*arguments)
    assert code == 2
    assert output == ""
    (line,) = errors.strip().splitlines()
    assert reason in line


def test_a_name_stands_for_its_seeds_unless_it_is_a_run():
    known = ["rev-seed-10", "rev-seed-2", "rev", "gru-seed-1", "my.run"]
    assert named_runs("gru, rev", known) == ["gru-seed-1", "rev"]
    assert named_runs("rev", known[:2]) == ["rev-seed-2", "rev-seed-10"]
    assert named_runs("rev-seed", known) == ["rev-seed"]
    assert named_runs("g.u,,", known) == ["g.u"]
