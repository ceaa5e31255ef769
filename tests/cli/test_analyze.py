"""The command that tells where every head of a run looks."""

import json
import shutil

import pandas as pd
import pytest

from core.__main__ import main
from core.interpret.ablation import ablation_grid
from core.interpret.head_table import measure_heads
from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.tasks import fixed_pairs

RUN = "digits-reversal-shipped"  # a trained one, so that there is something to see
TRUTH = [f"{name}_{token}" for token in ("produced", "read") for name in ("mass", "uniform", "aer")]


@pytest.fixture
def analyze(capsys, tmp_path):
    """Run the command on a copy of the run: (exit code, standard output, standard error)."""
    shutil.copytree(DEFAULT_ROOT / RUN, tmp_path / RUN, ignore=shutil.ignore_patterns("ablate.json"))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(tmp_path), "analyze", "--run", RUN, *arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def measured() -> tuple[pd.DataFrame, dict[tuple[str, int, int], float]]:
    """The scores of 30 sequences, and exact match without each head, or (head 0) each layer."""
    loaded = Runs(DEFAULT_ROOT).loaded(RUN)
    pairs = fixed_pairs(loaded.task, 30, split="test")
    cells = ablation_grid(loaded.model, pairs)
    worths = {(cell.block, cell.layer, cell.head): cell.exact_match for cell in cells}
    return measure_heads(loaded.model, loaded.task, pairs), worths


def test_its_last_line_has_every_head_with_every_score(analyze, measured):
    table, worths = measured
    code, output, _ = analyze("--sequences", "30", "--json")
    assert code == 0
    said = json.loads(output.splitlines()[-1])
    assert (said["run"], said["preset"], said["sequences"]) == (RUN, "digits-reversal", 30)
    assert [(head["block"], head["layer"], head["head"]) for head in said["heads"]] == [
        (block, layer, head) for block in ("encoder", "decoder", "cross") for layer in (1, 2) for head in (1, 2, 3, 4)
    ]
    for head, expected in zip(said["heads"], table.to_dict("records"), strict=True):
        assert list(head) == [*table.columns, "exact_match_without"]
        assert head.pop("exact_match_without") == pytest.approx(
            worths[head["block"], head["layer"], head["head"]], abs=1e-6
        )
        for name, value in head.items():
            if head["block"] != "cross" and name in TRUTH:
                assert value is None
            else:
                assert value == pytest.approx(expected[name], abs=1e-5), name
        assert isinstance(head["nearest_head"], int)
    assert said["exact_match"] == 1.0
    assert [tuple(layer.values()) for layer in said["layers"]] == [
        (block, layer, pytest.approx(worths[block, layer, 0], abs=1e-6))
        for block in ("encoder", "decoder", "cross")
        for layer in (1, 2)
    ]
    assert min(worths.values()) < 0.2 < max(worths.values())


def test_exact_match_without_a_head_is_measured_once(analyze, monkeypatch):
    _, first, errors = analyze("--sequences", "30")
    assert "ablating" in errors
    monkeypatch.setattr("core.interpret.ablation.ablation_grid", None)
    assert analyze("--sequences", "30")[1] == first


def test_its_table_has_a_line_a_head_stars_the_best_and_says_how_to_read_it(analyze, measured):
    table, worths = measured
    code, output, _ = analyze("--sequences", "30")
    assert code == 0
    assert output.splitlines()[1] == "attention while decoding 30 held-out sequences, free-running"
    assert "not why the model produced its output" in output
    assert "{" not in output
    lines = [line.split() for line in output.splitlines()]
    heads = {line[0]: line[1:] for line in lines if line and line[0].count(".") == 2}
    assert list(heads) == [f"{head.block}.{head.layer}.{head.head}" for head in table.itertuples()]
    assert heads["encoder.1.1"][:6] == ["–"] * 6
    assert {name: cells[-1] for name, cells in heads.items()} == {
        f"{block}.{layer}.{head}": f"{worth:.1%}" for (block, layer, head), worth in worths.items() if head
    }
    assert f"without all heads of a layer: encoder.1 {worths['encoder', 1, 0]:.1%}, encoder.2" in output
    for column, name in enumerate(TRUTH):
        best = {"mass": table[name].max(), "aer": table[name].min()}.get(name.split("_")[0])
        for cells, value in zip(heads.values(), table[name], strict=True):
            written = "–" if pd.isna(value) else f"{value:.1%}" + ("*" if value == best else "")
            assert cells[column] == written


@pytest.mark.parametrize("count", ["0", "1000001", "-5"])
def test_a_number_of_sequences_that_is_none_is_refused(analyze, count):
    code, output, errors = analyze("--sequences", count)
    assert (code, output) == (2, "")
    assert errors == f"error: --sequences={count} must be from 1 to 1000000\n"


def test_a_run_that_writes_one_token_has_dashes_for_what_it_never_did(trained, capsys):
    assert main(["--checkpoints", str(trained), "analyze", "--run", "done", "--sequences", "30", "--json"]) == 0
    output = capsys.readouterr().out
    heads = json.loads(output.splitlines()[-1])["heads"]
    decoder = [head for head in heads if head["block"] == "decoder"]
    assert [(head["rows"], head["entropy"], head["nearest_head"]) for head in decoder] == [(0, None, None)] * 2
    assert "nan" not in output.lower()
