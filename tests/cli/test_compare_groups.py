"""``compare --groups`` and ``--sweep``: groups of runs, the tests between them, and refusals in one line."""

import csv
import io
import math

import pytest
import torch

from core.__main__ import main
from core.evaluation.accuracy import Evaluation
from core.evaluation.group_tests import compare_groups
from core.reports.comparison import groups
from core.runs import RunFolder
from core.runs.sweeps.folder import SweepFile, SweepFolder, TrialRecord
from core.runs.sweeps.trials import grid_trials
from tests.runs.sweeps.conftest import make_sweep
from tests.support.command_output import last_json
from tests.support.trainings import train_run


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, tiny, tiny_gru):
    """A sweep of two learning rates and two widths with two seeds, a GRU with two, and a run of another task."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("groups")
    brief = {"training.steps": 2, "training.warmup_steps": 1, "training.evaluate_every": 2}
    tiny, tiny_gru = tiny.with_changes(brief), tiny_gru.with_changes(brief)
    sweep = make_sweep()
    folder = SweepFolder(root, "s")
    folder.prepare(SweepFile(sweep=sweep, base=tiny), extend=False)
    presets = {}
    for trial in grid_trials(sweep, tiny):
        folder.write_record(trial.name, TrialRecord(settings=trial.settings))
        presets |= {trial.run(seed): trial.run_preset(seed) for seed in (0, 1)}
    presets |= {f"gru-seed-{seed}": tiny_gru.with_changes({"training.seed": seed}) for seed in (0, 1)}
    presets |= {"copy-seed-0": tiny.with_changes({"task.transform": "copy"}), "again": presets[trial.run(0)]}
    for name, preset in presets.items():
        run = RunFolder.create(root, preset, name=name)
        train_run(run)
    return root


@pytest.fixture
def compared(shelf, capsys):
    """Compare groups: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(shelf), "compare", "--sequences", "20", *arguments])
        return code, *capsys.readouterr()

    return run


def result_of(output: str) -> dict:
    return last_json(output)


def test_groups_by_pattern_are_tested_two_by_two(compared):
    code, output, errors = compared("--groups", "narrow=s-dm16-*", "wide=s-dm32-*", "gru", "--json")
    assert (code, errors) == (0, "")
    result = result_of(output)
    assert [(group["label"], len(group["runs"])) for group in result["groups"]] == [
        ("narrow", 4),
        ("wide", 4),
        ("gru", 2),
    ]
    values = {group["label"]: group["values"] for group in result["groups"]}
    for pair in result["pairs"]:
        expected = compare_groups(values[pair["first"]], values[pair["second"]], test="welch")
        assert (pair["result"]["p_value"], pair["result"]["difference"]) == (expected.p_value, expected.difference)
        assert expected.p_value <= pair["p_holm"] <= min(1, 3 * expected.p_value)
    assert "corrected for the 3 pairs" in output
    assert "also differ in training.learning_rate" in output


def test_groups_without_a_setting_that_differs_are_named(compared):
    same = "No setting differs between one and other: any difference is one between seeds, or none."
    output = compared("--groups", "one=s-dm16-*-seed-0", "other=s-dm16-*-seed-1", "gru")[1]
    assert same in output
    assert output.count("No setting differs") == 1


def test_values_are_those_of_evaluate(compared, shelf, capsys):
    _, output, _ = compared("--groups", "gru", "s-dm16-*", "--json")
    main(["--checkpoints", str(shelf), "evaluate", "--run", "gru-seed-1", "--sequences", "20", "--json"])
    assert result_of(output)["groups"][0]["values"][1] == pytest.approx(result_of(capsys.readouterr().out)["loss"])


def test_trials_of_a_sweep_are_groups(compared):
    code, output, _ = compared("--sweep", "s", "--json")
    result = result_of(output)
    assert (code, len(result["groups"]), len(result["pairs"]), result["measure"]) == (0, 4, 6, "loss")
    assert {len(group["runs"]) for group in result["groups"]} == {2}
    assert not any(group["mixed"] for group in result["groups"])
    assert "Only seeds vary" in output
    assert "with 2 runs a group" in output
    _, output, _ = compared("--sweep", "s", "--by", "model.d_model", "--json")
    assert "Only seeds vary" not in output
    groups = result_of(output)["groups"]
    assert {group["label"]: len(group["runs"]) for group in groups} == {"d_model=16": 4, "d_model=32": 4}
    assert groups[0]["mixed"] == ["training.learning_rate"]


def test_a_run_that_was_stopped_is_named(compared, shelf):
    folder = RunFolder(shelf, "gru-seed-1")
    info = folder.read_info()
    assert "Not trained" not in compared("--groups", "gru", "s-dm16-*")[1]
    folder.write_info(info.model_copy(update={"status": "stopped", "step": 1}))
    assert "Not trained to the end: gru-seed-1 (stopped at step 1)." in compared("--groups", "gru", "s-dm16-*")[1]
    folder.write_info(info)


def test_each_group_with_the_baseline_only(compared):
    _, output, _ = compared("--groups", "a=s-dm16-*", "b=s-dm32-*", "c=gru", "--baseline", "c", "--json")
    assert [(pair["first"], pair["second"]) for pair in result_of(output)["pairs"]] == [("a", "c"), ("b", "c")]


def test_formats_have_the_same_figures(compared):
    words = ("--groups", "a=s-dm16-*", "b=s-dm32-*", "--measure", "token_accuracy", "--test", "permutation")
    _, output, _ = compared(*words, "--json")
    pair = result_of(output)["pairs"][0]
    (row,) = csv.DictReader(io.StringIO(compared(*words, "--format", "csv")[1]))
    assert float(row["difference"]) == pair["result"]["difference"]
    assert (float(row["p"]), int(row["first_runs"])) == (pair["result"]["p_value"], 4)
    latex = compared(*words, "--format", "latex")[1]
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert "a & b & " in latex


def test_few_seeds_are_said_to_be_too_few_for_a_permutation_test(compared):
    permutation = ("--test", "permutation")
    _, output, _ = compared("--groups", "gru", "a=s-dm16-lr0-01-*", *permutation)
    assert "Groups of 2 and 2 runs cannot have a p-value below 0.33" in output
    words = ("gru", "a=s-dm16-lr0-01-*", "b=s-dm32-*", "--baseline", "b")  # the first two are not compared
    assert "Groups of 2 and 4 runs cannot have a p-value below 0.067" in compared("--groups", *words, *permutation)[1]


def test_values_that_are_no_finite_numbers_are_not_tested(compared, monkeypatch):
    monkeypatch.setattr(groups, "_measured", lambda runs, name, *_: (math.nan if name == "gru-seed-0" else 1.0, 10))
    for test in ("welch", "permutation"):
        output = compared("--groups", "gru", "a=s-dm16-*", "--test", test)[1]
        assert "Runs of gru have values that are no finite numbers: there is no test." in output
        assert "0.0001" not in output


REFUSED = [
    (("--groups", "gru"), "1 group with two runs or more: 2 are needed"),
    (("--groups", "gru", "none-*"), "--groups 'none-*': no run is called 'none-*'"),
    (("--groups", "gru", "a=copy-seed-0"), "group 'a' has 1 run"),
    (("--groups", "gru", "g=gru-seed-0,gru-seed-1"), "run 'gru-seed-0' is in two groups: 'gru' and 'g'"),
    (("--groups", "a=gru", "a=s-dm16-*"), "every group needs runs and a label of its own"),
    (("--groups", "gru", "a=again,s-*"), "one training done twice is not two samples"),
    (("--groups", "gru", "a=s-*,copy-seed-0"), "have different tasks"),
    (("--groups", "gru", "s-dm16-*", "--baseline", "x"), "--baseline=x is not a group"),
    (("--groups", "gru", "s-dm16-*", "--measure", "bleu"), "--measure=bleu is measured for translations only"),
    (("--groups", "gru", "s-dm16-*", "--by", "model.norm"), "--by is for --sweep"),
    (("--sweep", "s", "--by", "model.norm"), "--by=model.norm is not an axis of the sweep"),
    (("--sweep", "s", "--lengths"), "--lengths is for --runs"),
    (("--runs", "gru", "--test", "welch"), "--test is for --groups and --sweep"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_refusals(compared, words, message):
    code, output, errors = compared(*words)
    assert (code, output) == (2, "")
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_too_many_pairs_are_refused_before_anything_is_measured(compared, monkeypatch):
    monkeypatch.setattr("core.reports.comparison.groups.MAX_PAIRS", 5)
    code, _, errors = compared("--sweep", "s")
    assert (code, "4 groups make 6 pairs; at most 5 are compared: name a --baseline" in errors) == (2, True)


def test_groups_that_do_not_vary_have_no_p_value(compared, monkeypatch):
    def fixed(model, pairs, **settings):
        return Evaluation(20, float(model.config.d_model), 1.0, 1.0)

    monkeypatch.setattr("core.reports.comparison.groups.evaluate", fixed)
    _, output, _ = compared("--groups", "a=s-dm16-*", "b=s-dm32-*", "--json")
    assert result_of(output)["pairs"][0]["result"]["p_value"] is None
    assert "the test is not defined then" in output
