"""``analyze``: scores and ablation of every head."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from core.__main__ import main
from core.config.counting import percent
from core.interpret.ablation import ablation_grid
from core.interpret.head_table import measure_heads
from core.runs import DEFAULT_ROOT
from core.runs.load import load_run
from core.tasks import fixed_pairs
from tests.support.command_output import analyze, last_json

RUN = "digits-reversal-shipped"  # trained, so that heads differ
TRUTH = [f"{name}_{token}" for token in ("produced", "read") for name in ("mass", "uniform", "aer")]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with a copy of the shipped run."""
    root = tmp_path_factory.mktemp("analyzed")
    shutil.copytree(DEFAULT_ROOT / RUN, root / RUN, ignore=shutil.ignore_patterns("ablate.json"))
    return root


@pytest.fixture(scope="module")
def analyzed(root) -> tuple[int, str, str]:
    """The command's first run on 30 sequences, with JSON."""
    return analyze(root, RUN, "--sequences", "30", "--json")


@pytest.fixture(scope="module")
def measured() -> tuple[pd.DataFrame, dict[tuple[str, int, int], float]]:
    """The scores of 30 sequences, and exact match without each head, or (head 0) each layer."""
    loaded = load_run(DEFAULT_ROOT / RUN)
    pairs = fixed_pairs(loaded.task, 30, split="test")
    cells = ablation_grid(loaded.model, loaded.task, pairs)
    exact_match = {(cell.block, cell.layer, cell.head): cell.exact_match for cell in cells}
    return measure_heads(loaded.model, loaded.task, pairs), exact_match


def test_json_has_every_head_with_every_score(analyzed, measured):
    table, exact_match = measured
    code, output, _ = analyzed
    assert code == 0
    result = last_json(output)
    assert (result["run"], result["preset"], result["sequences"]) == (RUN, "digits-reversal", 30)
    assert [(head["block"], head["layer"], head["head"]) for head in result["heads"]] == [
        (block, layer, head) for block in ("encoder", "decoder", "cross") for layer in (1, 2) for head in (1, 2, 3, 4)
    ]
    for head, expected in zip(result["heads"], table.to_dict("records"), strict=True):
        assert list(head) == [*table.columns, "exact_match_without"]
        assert head.pop("exact_match_without") == pytest.approx(
            exact_match[head["block"], head["layer"], head["head"]], abs=1e-6
        )
        for name, value in head.items():
            if head["block"] != "cross" and name.removeprefix("uniform_") in {*TRUTH, "produced", "read"}:
                assert value is None
            else:
                assert value == pytest.approx(expected[name], abs=1e-5), name
        assert isinstance(head["nearest_head"], int)
    assert result["exact_match"] == 1.0
    between = [(each["block"], each["first"], each["second"]) for each in result["layer_distances"]]
    assert between == [("encoder", 1, 2), ("decoder", 1, 2), ("cross", 1, 2)]
    assert f"cross.1 to 2 {result['layer_distances'][-1]['distance']:.2f}" in output
    assert [tuple(layer.values()) for layer in result["layers"]] == [
        (block, layer, pytest.approx(exact_match[block, layer, 0], abs=1e-6))
        for block in ("encoder", "decoder", "cross")
        for layer in (1, 2)
    ]
    assert min(exact_match.values()) < 0.2 < max(exact_match.values())


def test_the_ablation_is_cached_in_the_runs_folder(root, analyzed, monkeypatch):
    output = analyzed[1]
    monkeypatch.setattr("core.interpret.ablation.ablation_grid", None)
    assert analyze(root, RUN, "--sequences", "30", "--json")[1] == output


def test_the_table_has_one_line_per_head_and_marks_the_best(analyzed, measured):
    table, exact_match = measured
    output = analyzed[1].rpartition("\n{")[0]  # the JSON object is the last line
    assert output.splitlines()[1] == "attention while decoding 30 held-out sequences, free-running"
    assert "not why the model produced its output" in output
    assert "{" not in output
    lines = [line.replace(" %", "%").split() for line in output.splitlines()]
    heads = {line[0]: line[1:] for line in lines if line and line[0].count(".") == 2}
    assert list(heads) == [f"{head.block}.{head.layer}.{head.head}" for head in table.itertuples()]
    assert heads["encoder.1.1"][:6] == ["–"] * 6
    assert {name: cells[-1].replace("%", " %") for name, cells in heads.items()} == {
        f"{block}.{layer}.{head}": percent(share) for (block, layer, head), share in exact_match.items() if head
    }
    best = table.loc[table["aer_produced"].idxmin()]
    assert f"cross.{best.layer}.{best['head']}, AER {percent(best.aer_produced)}; uniform attention " in output
    assert f"{percent(best.uniform_aer_produced)}; {best.links:,} links" in output
    assert f"without all heads of a layer: encoder.1 {percent(exact_match['encoder', 1, 0])}, encoder.2" in output
    for column, name in enumerate(TRUTH):
        best = {"mass": table[name].max(), "aer": table[name].min()}.get(name.split("_")[0])
        for cells, value in zip(heads.values(), table[name], strict=True):
            written = "–" if pd.isna(value) else percent(value) + ("*" if value == best else "")
            assert cells[column] == written.replace(" ", "")


def test_an_invalid_number_of_sequences_is_refused(root):
    for count in ("0", "1000001", "-5"):
        code, output, errors = analyze(root, RUN, "--sequences", count)
        assert (code, output) == (2, "")
        assert errors == f"error: --sequences={count} must be from 1 to 1000000\n"


def test_scores_without_any_row_are_dashes_and_null(trained, capsys):
    assert main(["--checkpoints", str(trained), "analyze", "--run", "done", "--sequences", "30", "--json"]) == 0
    output = capsys.readouterr().out
    heads = last_json(output)["heads"]
    decoder = [head for head in heads if head["block"] == "decoder"]
    assert [(head["rows"], head["entropy"], head["nearest_head"]) for head in decoder] == [(0, None, None)] * 2
    assert "nan" not in output.lower()
