"""Head ablation and pattern interventions: toggling, decoding, the address, and measuring."""

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.interpret.ablation import grid_cells, parse_interventions
from core.interpret.inspection import inspect
from core.models.seq2seq import Head
from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from tests.serving import SHIPPED
from tests.ui.addresses import address_of
from ui import interventions, page
from ui.components import head_importance
from ui.current_decode import CurrentDecode
from ui.forms import strategy_form
from ui.interventions import NO_INTERVENTIONS, InterventionSpec
from ui.tabs import attention, decode

HEADS = tuple(Head(block, layer, head) for block in ("encoder", "cross") for layer in (1, 2) for head in (1, 2))
GRU = (Head("cross", 1, 1),)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """A lab of its own with the shipped run, not measured, and quickly measured."""
    monkeypatch.setattr(head_importance, "SEQUENCES", 8)
    folder = shutil.copytree(DEFAULT_ROOT / SHIPPED, tmp_path / "runs" / SHIPPED)
    (folder / "ablate.json").unlink(missing_ok=True)
    runs = Runs(tmp_path / "runs")
    yield runs
    runs.close()


def toggled_names(*names: str, heads: tuple[Head, ...] = HEADS) -> tuple[str, ...]:
    spec = InterventionSpec("some")
    for name in names:
        spec = spec.toggled(name, heads)
    return spec.ablate


def exact_matches(value: dict) -> list[float | None]:
    return [cell["exact_match"] for row in value["rows"] for cell in row["cells"]]


# --- pressing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "out"),
    [
        (["cross.2.1"], ("cross.2.1",)),
        (["cross.2.1", "cross.2.1"], ()),
        (["cross.2.2", "encoder.1.1"], ("encoder.1.1", "cross.2.2")),
        (["cross.2.1", "cross.2.2"], ("cross.2",)),
        (["cross.2"], ("cross.2",)),
        (["cross.2.1", "cross.2"], ("cross.2",)),
        (["cross.2", "cross.2.1"], ("cross.2.2",)),
        (["cross.2", "cross.2"], ()),
    ],
    ids=str,
)
def test_toggling_ablates_and_restores_heads_and_layers(names: list[str], out: tuple[str, ...]):
    assert toggled_names(*names) == out


def test_the_only_head_of_a_layer_keeps_its_own_name():
    assert toggled_names("cross.1", heads=GRU) == ("cross.1.1",)


def test_a_pattern_is_replaced_and_removed():
    spec = InterventionSpec("some", ablate=("cross.1.1",)).with_pattern("cross.2.1", "diagonal", HEADS)
    assert str(spec) == "without cross.1.1 (zero); with cross.2.1 set to diagonal"
    assert spec.with_pattern("cross.2.1", "position 3", HEADS).patterns == ("cross.2.1=position 3",)
    assert spec.with_pattern("cross.2.1", None, HEADS).patterns == ()
    assert spec.cleared() == InterventionSpec("some")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda spec: spec.toggled("cross.9", HEADS), "ablate=cross.9 is not in this model"),
        (lambda spec: spec.toggled("<b>", HEADS), "is not a head"),
        (
            lambda spec: spec.toggled("cross.2.2", HEADS),
            "head=cross.2.2 cannot both be ablated and have",
        ),
        (
            lambda spec: spec.toggled("cross", HEADS),
            "head=cross.2.2 cannot both be ablated and have",
        ),
        (
            lambda spec: spec.with_pattern("cross.1.1", "diagonal", HEADS),
            "head=cross.1.1 cannot both be ablated and have",
        ),
        (lambda spec: spec.with_pattern("encoder.1.1", "diagonal", HEADS), "only heads of cross-attention"),
        (lambda spec: spec.with_pattern("cross.1.2", "spiral", HEADS), "pattern='spiral'"),
        (lambda spec: spec.with_pattern("", "diagonal", HEADS), "is not a head"),
    ],
)
def test_impossible_interventions_are_refused(change, part: str):
    with pytest.raises(InputError, match=part):
        change(InterventionSpec("some", ablate=("cross.1.1",), patterns=("cross.2.2=diagonal",)))


def test_a_refused_intervention_shows_an_error_and_changes_nothing(runs: Runs):
    updates = attention.toggle(runs, SHIPPED, NO_INTERVENTIONS, "cross.1.2")
    spec = updates["interventions"]
    assert (spec.run, spec.ablate, updates["message"]) == (SHIPPED, ("cross.1.2",), {"text": ""})
    refused = attention.set_pattern(runs, SHIPPED, spec, "cross.1.2", "diagonal", 1)
    assert list(refused) == ["message"]
    assert refused["message"]["problem"]
    assert "head=cross.1.2 cannot both be ablated and have" in refused["message"]["text"]
    moved = attention.set_pattern(runs, SHIPPED, spec, "cross.2.1", "position", 3.0)
    assert moved["interventions"].patterns == ("cross.2.1=position 3",)
    for position, given in {None: "is empty; it", -1: "-1", 1.5: "1.5", 1e6: "1e+06", math.nan: "nan"}.items():
        refused = attention.set_pattern(runs, SHIPPED, spec, "cross.2.1", "position", position)
        assert refused["message"]["text"] == f"Position {given} must be a whole number from 0 to 999,999"
    assert attention.toggle(runs, None, NO_INTERVENTIONS, "cross.1.2") == {"message": attention.NO_RUN}


# --- the decode -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_a_decode_with_interventions_is_shown_beside_the_baseline(runs: Runs, ablation: str):
    spec = InterventionSpec(SHIPPED, ablate=("cross.1.2",), patterns=("cross.2.1=diagonal",), ablate_with=ablation)
    shown = page._decode(runs, SHIPPED, "4829", spec)
    decoded: CurrentDecode = shown["current_decode"]
    loaded = runs[SHIPPED].trained()
    interventions = parse_interventions(
        loaded.model, loaded.task, ablate=spec.ablate, patterns=spec.patterns, ablation=ablation
    )
    expected = inspect(loaded.model, loaded.task, "4829", interventions=interventions)
    assert decoded.inspection.output == expected.output
    assert decoded.inspection.steps == expected.steps
    updates = attention.decode_updates(decoded, spec)
    edited, line = updates["grid"], updates["interventions"]
    assert updates["why"]["interventions"]["ablate"] == edited["interventions"]["ablated"]
    assert shown["interventions"] == shown["own_interventions"] == line  # in both tabs
    assert edited["interventions"] == {"ablated": ["cross.1.2"], "patterns": {"cross.2.1": "diagonal"}}
    intact, without = line["rows"]
    assert (intact["label"], intact["output"], intact["correct"]) == ("all heads as trained", list("9284"), True)
    assert without["label"] == f"without cross.1.2 ({ablation}); with cross.2.1 set to diagonal"
    assert without["output"] == expected.output != intact["output"]
    assert line["button"] == "Restore all heads"


@pytest.mark.parametrize(("position", "note"), [(5, ""), (99, "{}position 99{}; cross.2.1{}position 5, <EOS>.")])
def test_a_position_that_the_input_lacks_is_said_with_what_the_head_attends_to(runs: Runs, position: int, note: str):
    spec = InterventionSpec(SHIPPED, patterns=("cross.1.2=diagonal", f"cross.2.1=position {position}"))
    decoded: CurrentDecode = page._decode(runs, SHIPPED, "4829", spec)["current_decode"]
    said = attention.decode_updates(decoded, spec)["interventions"]["note"]
    assert said == note.format("This input has no ", " to attend to", " attends to ")


def test_a_decode_without_interventions_has_no_baseline(runs: Runs):
    decoded: CurrentDecode = page._decode(runs, SHIPPED, "4829")["current_decode"]
    updates = attention.decode_updates(decoded, decoded.interventions)
    assert updates["grid"]["interventions"] == {"ablated": [], "patterns": {}}
    assert (updates["interventions"], updates["own_interventions"]) == (None, None)


def test_interventions_do_not_apply_to_another_run(runs: Runs):
    spec = InterventionSpec("another", ablate=("cross.1.2",), ablate_with="mean")
    kept, problem = attention.applicable(runs, SHIPPED, spec)
    assert (kept, problem) == (InterventionSpec(SHIPPED, ablate_with="mean"), "")
    assert attention.applicable(runs, None, spec) == (InterventionSpec(None, ablate_with="mean"), "")


def test_all_strategies_decode_with_the_interventions(runs: Runs):
    spec = InterventionSpec(SHIPPED, ablate=("cross.1.2",))
    shown = decode.compare(runs, SHIPPED, spec, "4829", "", *strategy_form.default_values())["strategies"]
    assert shown["heading"] == "All strategies: 4 8 2 9, without cross.1.2 (zero)"
    assert not shown["rows"][0]["correct"]


# --- the address ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        InterventionSpec(SHIPPED),
        InterventionSpec(SHIPPED, ablate=("cross.1.2", "cross.2"), ablate_with="mean"),
        InterventionSpec(SHIPPED, patterns=("cross.2.1=anti-diagonal", "cross.2.2=position 3")),
    ],
    ids=str,
)
def test_the_address_restores_interventions(runs: Runs, spec: InterventionSpec):
    assert page._open(VisitorRuns(runs), address_of(page._decode(runs, SHIPPED, "4829", spec)))["spec"] == spec


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ({"ablate": "cross.9.1"}, "ablate=cross.9.1 is not in this model"),
        ({"ablate": "<img src=x>"}, "is not a head"),
        ({"ablate": "cross," * 5000 + "x"}, "is not a head"),  # it is cut off
        ({"pattern": "cross.1.1"}, "must be HEAD=PATTERN"),
        ({"pattern": "==,="}, "is not a head"),
        ({"ablate": "cross", "pattern": "cross.1.1=diagonal"}, "cannot both be ablated and have"),
        ({"ablate_with": "median"}, ""),
        ({"ablate": "cross.1.2", "run": "no-such-run"}, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_interventions_in_the_address_are_explained_and_ignored(runs: Runs, query: dict, part: str):
    spec = interventions.from_query(query, SHIPPED)
    _, problem = attention.applicable(runs, SHIPPED, spec)
    assert part in problem
    assert bool(problem) == bool(part)
    answer = page._decode(runs, SHIPPED, "4829", spec)["answer"]
    if part or "cross" not in spec.ablate:
        assert answer["correct"]


# --- measuring --------------------------------------------------------------------------------------------------


def test_head_importance_is_measured_cell_by_cell_and_saved(fresh: Runs):
    heads = interventions.heads_of_run(fresh[SHIPPED])
    before = head_importance.saved_value(fresh[SHIPPED], "zero")
    assert exact_matches(before) == [None] * 30
    values = [each["grid"] for each in attention.measure(fresh, SHIPPED, NO_INTERVENTIONS)]
    assert [value["measured"] for value in values] == list(range(31))
    for value in values:
        known = exact_matches(value)
        assert None not in known[: value["measured"]]
        assert set(known[value["measured"] :]) <= {None}
    grid = attention.run_updates(fresh, SHIPPED, NO_INTERVENTIONS)["grid"]
    assert exact_matches(grid["value"]) == exact_matches(values[-1])
    step = fresh[SHIPPED].trained().step
    assert (grid["value"]["intact"], grid["value"]["sequences"], grid["value"]["step"]) == (1.0, 8, step)
    assert grid["value"]["note"] == ""
    names = [cell["name"] for row in grid["value"]["rows"] for cell in row["cells"]]
    assert names == [f"{b}.{layer}.{head}" if head else f"{b}.{layer}" for b, layer, head in grid_cells(heads)]
    assert exact_matches(head_importance.saved_value(fresh[SHIPPED], "mean")) == [None] * 30


def test_a_cancelled_measurement_is_not_saved(fresh: Runs):
    measuring = attention.measure(fresh, SHIPPED, NO_INTERVENTIONS)
    assert [next(measuring)["grid"]["measured"] for _ in range(4)] == [0, 1, 2, 3]
    measuring.close()
    assert not RunFolder(fresh.root, SHIPPED).ablation.exists()
    assert exact_matches(head_importance.saved_value(fresh[SHIPPED], "zero")) == [None] * 30


def test_results_of_older_weights_say_so(fresh: Runs, trained: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(trained / "done", fresh.root / "done")  # it has few heads
    list(attention.measure(fresh, "done", NO_INTERVENTIONS))
    monkeypatch.setattr(head_importance, "_current_step", lambda run: 1200)
    value = head_importance.saved_value(fresh["done"], "zero")
    assert value["step"] == fresh["done"].trained().step
    assert "after step 1,200; measure again" in value["note"]


def test_a_missing_run_or_missing_weights_is_explained(fresh: Runs, tiny):
    assert list(attention.measure(fresh, None, NO_INTERVENTIONS)) == [{"message": attention.NO_RUN}]
    assert attention.run_updates(fresh, None, NO_INTERVENTIONS)["pattern_message"] == attention.NO_RUN
    RunFolder.create(fresh.root, tiny, name="empty", status="stopped")
    [updates] = attention.measure(fresh, "empty", NO_INTERVENTIONS)
    assert updates["message"]["problem"]
    assert "no weights yet" in updates["message"]["text"]
    grid = attention.run_updates(fresh, "empty", NO_INTERVENTIONS)["grid"]
    assert len(exact_matches(grid["value"])) == 9  # 3 blocks of 2 heads


@pytest.mark.parametrize(
    ("family", "cells", "forced"), [("gru", 1, ["cross.1.1"]), ("decoder-only", 6, []), ("encoder-only", 6, [])]
)
def test_other_models_show_the_heads_they_have(fresh: Runs, tiny, tiny_gru, family: str, cells: int, forced: list):
    preset = tiny_gru if family == "gru" else tiny.with_changes({"model.family": family})
    RunFolder.create(fresh.root, preset, name=family, status="stopped")
    updates = attention.run_updates(fresh, family, NO_INTERVENTIONS)
    assert len(exact_matches(updates["grid"]["value"])) == cells
    assert updates["pattern_head"]["choices"] == forced
    assert updates["pattern_controls"]["visible"] == bool(forced)
    assert (updates["pattern_message"] == attention.NO_CROSS) == (not forced)
