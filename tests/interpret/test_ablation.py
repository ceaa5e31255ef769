"""What heads are worth: measured as evaluation measures, by hand-made means, and kept with the run."""

import json
import logging

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from core.config.tasks import DigitsConfig
from core.evaluation.accuracy import evaluate
from core.evaluation.outputs import decode_padded
from core.generation import generate
from core.interpret import ablation as ablate
from core.interpret.ablation import (
    AblatedHead,
    AblationGrid,
    ablation_grid,
    ablation_rows,
    cached_grid,
    grid_cells,
    latest_grid,
    load_grid,
    mean_head_outputs,
    parse_ablation,
    parse_interventions,
)
from core.interpret.interventions import Interventions
from core.interpret.trained import Trained
from core.models import forward_with_attention
from core.models.seq2seq import Head, Seq2Seq
from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from core.storage.errors import InputError
from core.tasks import Batch, Task, build_task, fixed_pairs
from core.text.vocab import BOS_ID, PAD_ID
from tests.support.scripted_models import decoder_only, encoder_only, gru, transformer

TASK = build_task(DigitsConfig())
WRITERS = {"transformer": transformer, "gru": gru, "decoder-only": decoder_only, "encoder-only": encoder_only}


@pytest.fixture(scope="module")
def shipped() -> Trained:
    """A model that has learned to reverse."""
    return Runs(DEFAULT_ROOT)["digits-reversal-shipped"].trained()


def answered_by(model: Seq2Seq, task: Task) -> Batch:
    """Sources with what a random model answers to them, so that it has something to lose."""
    src = fixed_pairs(task, 24, split="test").src
    return Batch(src, torch.nn.functional.pad(generate(model, src, max_steps=8).tokens, (1, 0), value=BOS_ID))


@pytest.fixture
def pairs(tiny) -> Batch:
    return answered_by(transformer(), build_task(tiny.task))


@pytest.fixture
def gru_pairs(tiny) -> Batch:
    return answered_by(gru(), build_task(tiny.task))


# --- the grid ---------------------------------------------------------------------------------------------------


def test_each_head_is_ablated_alone_and_then_its_layer(shipped):
    cells = grid_cells(shipped.model.heads)
    assert cells[:6] == [("encoder", 1, head) for head in (1, 2, 3, 4, 0)] + [("encoder", 2, 1)]
    assert len(cells) == 24 + 6
    assert grid_cells(gru().heads) == [("cross", 1, 1), ("cross", 1, 0)]
    assert grid_cells(decoder_only().heads)[2] == ("decoder", 1, 0)


@pytest.fixture(scope="module")
def shipped_pairs(shipped) -> Batch:
    return fixed_pairs(shipped.task, 40, split="test")


@pytest.fixture(scope="module")
def shipped_grid(shipped, shipped_pairs) -> list[AblatedHead]:
    """What the heads of the shipped model are worth, by zero ablation."""
    return list(ablation_grid(shipped.model, shipped.task, shipped_pairs))


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_a_cell_is_exact_match_without_these_heads(shipped, shipped_pairs, shipped_grid, ablation):
    model, pairs = shipped.model, shipped_pairs
    cells = shipped_grid if ablation == "zero" else list(ablation_grid(model, shipped.task, pairs, ablation=ablation))
    assert [(cell.block, cell.layer, cell.head) for cell in cells] == grid_cells(model.heads)
    assert {cell.intact for cell in cells} == {evaluate(model, pairs).exact_match}
    means = mean_head_outputs(model, pairs) if ablation == "mean" else None
    for cell in cells[4::5]:  # the layers
        interventions = Interventions.parse(model.heads, ablate=[f"{cell.block}.{cell.layer}"], means=means)
        with interventions.applied_to(model):
            exact_match = decode_padded(model, pairs, max_steps=pairs.tgt_out.shape[1] + 1).exact_match()
        assert cell.exact_match == exact_match
        assert cell.change == cell.exact_match - cell.intact
    rows = ablation_rows(cells)
    assert len(rows) == 30
    assert rows[20] == {
        "block": "cross",
        "layer": 1,
        "head": 1,
        "exact_match": cells[20].exact_match,
        "change": cells[20].change,
    }


def test_some_cross_head_of_a_trained_model_costs_far_more_than_the_median_head(shipped_grid):
    table = pd.DataFrame(ablation_rows(shipped_grid))
    heads = table[table["head"] > 0]
    assert heads.change.median() > -0.05
    assert heads[heads.block == "cross"].change.min() < -0.3
    assert table[(table.block == "cross") & (table["head"] == 0)].change.min() < -0.9


def test_a_stopped_grid_leaves_the_model_unchanged(shipped):
    model, pairs = shipped.model, fixed_pairs(shipped.task, 4, split="test")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    grid = ablation_grid(model.train(), shipped.task, pairs)
    try:
        next(grid)
        assert torch.is_grad_enabled()
        assert model.training
        grid.close()
    finally:
        model.eval()
    assert_close(dict(model.state_dict()), before, atol=0, rtol=0)


@pytest.mark.parametrize("measure", [lambda model, pairs: next(ablation_grid(model, TASK, pairs)), mean_head_outputs])
def test_no_pairs_are_refused(pairs, measure):
    with pytest.raises(ValueError, match="no sequences"):
        measure(transformer(), pairs[:0])


# --- means ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_mean_of_a_first_encoder_head_is_that_of_weights_times_values(pairs):
    model = transformer()
    _, maps = forward_with_attention(model, pairs.src, pairs.tgt_in)
    _, value = model.encoder_layers[0].self_attention.keys_values(model.src_embedding(pairs.src))
    outputs = (maps.encoder[0] @ value)[:, 1][pairs.src != PAD_ID]
    assert_close(mean_head_outputs(model, pairs)[Head("encoder", 1, 2)], outputs.mean(dim=0), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_mean_of_the_gru_head_is_its_mean_context_over_target_tokens(pairs):
    model = gru()
    _, maps = forward_with_attention(model, pairs.src, pairs.tgt_in)
    contexts = (maps.cross[0, :, 0] @ model.encode(pairs.src).states)[pairs.tgt_out != PAD_ID]
    assert_close(mean_head_outputs(model, pairs)[Head("cross", 1, 1)], contexts.mean(dim=0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", WRITERS)
def test_means_do_not_depend_on_padding_or_chunk_size(monkeypatch, pairs, name):
    model = WRITERS[name]()
    expected = mean_head_outputs(model, pairs)
    assert set(expected) == set(model.heads)
    wide = Batch(*(torch.nn.functional.pad(rows, (0, 2), value=PAD_ID) for rows in (pairs.src, pairs.tgt)))
    monkeypatch.setattr(ablate, "MEAN_CHUNK", 7)
    for head, mean in mean_head_outputs(model, wide).items():
        assert_close(mean, expected[head], atol=1e-5, rtol=1e-5)


def test_means_of_interventions_are_of_held_out_inputs_and_computed_once(monkeypatch, tiny):
    model, task, head = transformer(), build_task(tiny.task), Head("cross", 1, 2)
    expected = mean_head_outputs(model, fixed_pairs(task, ablate.MEAN_SEQUENCES, split="test"))
    interventions = parse_interventions(
        model, task, ablate=["cross.1.2"], patterns=["cross.1.1=diagonal"], ablation="mean"
    )
    assert (interventions.ablated, interventions.ablation) == ((head,), "mean")
    assert_close(interventions.means[head], expected[head], atol=0, rtol=0)
    monkeypatch.setattr(ablate, "mean_head_outputs", lambda *given: pytest.fail("taken again"))
    assert parse_interventions(model, task, ablate=["cross"], ablation="mean").means is interventions.means
    assert parse_interventions(transformer(), task, ablate=["cross"]).means is None
    assert parse_interventions(transformer(), task, ablation="mean").means is None  # nothing is knocked out


def test_an_ablation_is_zero_or_mean():
    assert [parse_ablation(text) for text in ("zero", "mean")] == ["zero", "mean"]
    with pytest.raises(InputError, match="ablation='median' is not one of zero, mean"):
        parse_ablation("median")


# --- kept with the run ------------------------------------------------------------------------------------------


@pytest.fixture
def path(root):
    folder = RunFolder(root, "some")
    folder.path.mkdir(parents=True)
    return folder.ablation


def read(path, pairs, *, make=gru, **settings) -> list:
    """A grid, measured or from the file; that of a GRU is quick to measure, since it has one head."""
    return list(cached_grid(path, make(), TASK, pairs, **{"step": 5} | settings))


def forbid_measuring(monkeypatch) -> None:
    monkeypatch.setattr(ablate, "ablation_grid", lambda *given, **settings: pytest.fail("measured again"))


def test_a_saved_grid_is_not_measured_again(monkeypatch, path, pairs):
    zero, mean = (read(path, pairs, make=transformer, ablation=ablation) for ablation in ("zero", "mean"))
    fewer = read(path, pairs[:10], make=transformer)
    assert len({str(each) for each in (zero, mean, fewer)}) == 3
    assert zero[0].intact > 0
    forbid_measuring(monkeypatch)
    assert read(path, pairs, make=transformer) == zero
    assert read(path, pairs, make=transformer, ablation="mean") == mean
    assert read(path, pairs[:10], make=transformer) == fewer


def test_an_incomplete_grid_is_not_saved(path, pairs):
    grid = cached_grid(path, transformer(), TASK, pairs, step=5)
    next(grid)
    grid.close()
    assert not path.exists()


def test_grids_of_other_weights_are_deleted(path, gru_pairs):
    read(path, gru_pairs)
    read(path, gru_pairs, step=6, ablation="mean")
    assert load_grid(path, gru().heads, step=5, sequences=24, ablation="zero") is None
    assert load_grid(path, gru().heads, step=6, sequences=24, ablation="mean").step == 6
    assert load_grid(path, transformer().heads, step=6, sequences=24, ablation="mean") is None
    assert [AblationGrid(**grid).step for grid in json.loads(path.read_bytes())["grids"]] == [6]


def test_the_latest_grid_has_the_latest_step_and_the_most_sequences(path, gru_pairs):
    heads = gru().heads
    assert latest_grid(path, heads, ablation="zero") is None
    for sequences in (5, 24, 10):
        read(path, gru_pairs[:sequences], step=7)
    assert (latest_grid(path, heads, ablation="zero").sequences, latest_grid(path, heads, ablation="zero").step) == (
        24,
        7,
    )
    assert latest_grid(path, heads, ablation="mean") is None
    assert latest_grid(path, transformer().heads, ablation="zero") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[1, 2]",
        lambda text: text.replace("ablation-1", "ablation-2"),
        lambda text: text.replace('"intact": 0', '"intact": 7'),
        lambda text: text.replace('"exact_match": ', '"exact_match": NaN, "was": '),
        lambda text: text.replace('"block": "cross"', '"block": "crossed"'),
    ],
    ids=range(7),
)
def test_a_damaged_file_is_logged_and_replaced(caplog, path, gru_pairs, damage):
    expected = read(path, gru_pairs)
    text = path.read_text()
    assert damage(text) != text
    path.write_text(damage(text))
    with caplog.at_level(logging.WARNING):
        assert read(path, gru_pairs) == expected
    assert "ablate.json is ignored" in caplog.text
    assert path.read_text() == text


def test_cells_of_another_model_are_measured_again(path, gru_pairs):
    expected = read(path, gru_pairs)
    known = json.loads(path.read_bytes())
    known["grids"][0]["cells"].pop()
    path.write_text(json.dumps(known))
    assert read(path, gru_pairs) == expected


def test_a_full_disk_is_logged_and_the_grid_is_still_returned(monkeypatch, caplog, path, gru_pairs):
    def full(path, data):
        raise OSError("No space left on device")

    monkeypatch.setattr(ablate, "write_atomically", full)
    with caplog.at_level(logging.WARNING):
        assert len(read(path, gru_pairs)) == len(grid_cells(gru().heads))
    assert "No space left on device" in caplog.text
    assert not path.exists()
