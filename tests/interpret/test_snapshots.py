"""Attention snapshots: their inputs, maps and scores, within bounds, without an effect on training."""

from itertools import pairwise
from operator import mul

import pytest
import torch
from torch.testing import assert_close

from core.config import Preset, load_preset
from core.generation import generate
from core.interpret import snapshots as snapshots_module
from core.interpret.head_scores import score_heads
from core.interpret.snapshots import (
    MAX_SNAPSHOTS,
    SnapshotTaker,
    count_snapshots,
    is_snapshot_step,
    snapshot_interval,
)
from core.tasks import Batch, Task, build_task, fixed_pairs
from core.tasks.data import split_mask
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID
from core.training.loop import train

FAMILIES = {
    "transformer": {"model.dropout": 0.2},
    "gru": {"model.family": "gru", "model.d_embedding": 8, "model.d_hidden": 12, "model.num_layers": 2},
    "gru that reads PAD": {"model.family": "gru", "model.d_hidden": 12, "model.mask_padding": False},
    "decoder-only": {"model.family": "decoder-only"},
    "encoder-only": {"model.family": "encoder-only"},
}


@pytest.fixture(params=FAMILIES)
def preset(request, tiny) -> Preset:
    """Every kind of model, on sequences long enough to be padded."""
    longer = {"task.max_length": 8, "model.max_seq_len": 24}
    return tiny.with_changes(longer | FAMILIES[request.param])


def source_of(task: Task, symbols: tuple[str, ...]) -> torch.Tensor:
    return torch.tensor([[BOS_ID, *task.src_vocab.encode(symbols), EOS_ID]])


def trained_a_little(preset: Preset):
    state = new_state(preset)
    for event in train(state):
        if event.step == 3:
            break
    return state


def test_outputs_and_maps_equal_those_of_each_input_decoded_alone(preset):
    state = trained_a_little(preset)
    snapshot = SnapshotTaker(state.task, state.model).snapshot(state.model, 3)
    assert len(snapshot.outputs) == len(snapshot.inputs) >= 3
    state.model.eval()
    for asked, answer in zip(snapshot.inputs, snapshot.outputs, strict=True):
        src = source_of(state.task, asked.symbols)
        alone = generate(state.model, src, max_steps=len(asked.expected) + 1, need_weights=True)
        assert answer.tokens == tuple(state.task.tgt_vocab.decode(alone.tokens[0].tolist()))
        for block in ("encoder", "decoder", "cross"):
            weights = getattr(alone.maps, block)
            assert (weights is None) == (block not in answer.maps)
            if weights is not None:
                kept = torch.from_numpy(answer.maps[block].array().copy()) / 255
                assert_close(kept, weights[:, 0], atol=0.5 / 255 + 1e-6, rtol=0)


def test_an_output_ends_at_its_own_eos(scripted):
    task = build_task(load_preset("tiny").task)
    first = source_of(task, ("4", "8", "2", "9"))

    def stops_at_once(src: torch.Tensor) -> torch.Tensor:
        others = torch.full((len(src), 8), 5)
        others[(src == torch.nn.functional.pad(first, (0, src.shape[1] - 6))).all(dim=1), 0] = EOS_ID
        return others

    model = scripted(stops_at_once)
    answers = SnapshotTaker(task, model).snapshot(model, 0).outputs
    assert answers[0].tokens == ("<EOS>",)
    assert all(len(answer.tokens) > 1 for answer in answers[1:])


def test_scores_equal_those_of_the_inputs_one_by_one(preset):
    state = trained_a_little(preset)
    taker = SnapshotTaker(state.task, state.model)
    snapshot = taker.snapshot(state.model, 3)
    state.model.eval()
    rows = [group.src for group in taker.groups]
    assert snapshot.num_scored == sum(map(len, rows)) == 32
    of_lengths = []
    for src in rows:  # of one length
        shares, steps = [], []
        for row in src.split(1):
            decoded = generate(state.model, row, max_steps=src.shape[1] - 1, need_weights=True)
            shares.append(score_heads(state.task, Batch(row, row), decoded)[0].attention_mass)
            steps.append(min(decoded.tokens.shape[1], src.shape[1] - 2))  # to end a whole answer has no source
        of_lengths.append(sum(map(mul, shares, steps)) / sum(steps))
    assert snapshot.attention_mass[0][0] == pytest.approx(sum(of_lengths) / len(of_lengths), abs=1e-5)
    assert 0.05 < snapshot.uniform_mass < 0.25


def test_inputs_are_held_out_and_depend_on_the_task_only(tiny):
    task = build_task(tiny.task)
    seeds = [tiny.with_changes({"training.seed": seed, "training.validation_sequences": 16 + seed}) for seed in (0, 1)]
    first, second = (SnapshotTaker(state.task, state.model).inputs for state in map(new_state, seeds))
    assert first == second
    assert [first[0].symbols, first[0].expected] == [tuple("4829"), tuple("9284")]
    assert first[0].gold_cells == ((0, 4), (1, 3), (2, 2), (3, 1))
    assert [len(each.symbols) for each in first] == [4, 4, 5, 5]
    held_out = fixed_pairs(task, 128, split="validation").src.tolist()
    for each in first[1:]:
        ids = [BOS_ID, *task.src_vocab.encode(each.symbols), EOS_ID]
        assert split_mask(torch.tensor([ids[1:-1]]), "validation").item()
        assert ids in [[index for index in row if index] for row in held_out]


def test_an_open_ended_task_uses_its_examples_and_is_not_scored():
    preset = load_preset("psalms").with_changes({"model.d_model": 16, "model.num_heads": 4, "model.d_ff": 16})
    state = new_state(preset)
    snapshot = SnapshotTaker(state.task, state.model).snapshot(state.model, 0)
    assert ["".join(each.symbols) for each in snapshot.inputs] == ["The LORD is ", "Blessed ", "A wise "]
    assert snapshot.attention_mass is None
    assert all(len(answer.tokens) == snapshots_module.OPEN_ENDED_STEPS for answer in snapshot.outputs)


@pytest.mark.parametrize(("cells", "count"), [(0, 0), (400, 2), (50_000, 4)])
def test_a_large_model_records_fewer_inputs_and_all_scores(tiny, monkeypatch, cells, count):
    monkeypatch.setattr(snapshots_module, "MAX_CELLS", cells)
    state = new_state(tiny)
    snapshot = SnapshotTaker(state.task, state.model).snapshot(state.model, 0)
    assert len(snapshot.inputs) == len(snapshot.outputs) == count
    assert sum(len(maps.data) for answer in snapshot.outputs for maps in answer.maps.values()) <= cells
    assert len(snapshot.attention_mass[0]) == 2


@pytest.mark.parametrize("every", [1, 25])
def test_snapshots_of_a_long_run_stay_evenly_spaced(every):
    kept: list[int] = []
    for step in range(0, 1000 * every + 1, every):
        if is_snapshot_step(step, every=every):
            between = snapshot_interval(step, every=every)
            kept = [each for each in kept if each % between == 0] + [step]
        assert len(kept) < MAX_SNAPSHOTS  # one place is left for a last step off the beat
        assert kept[0] == 0
        assert len({after - before for before, after in pairwise(kept)}) <= 1
        assert step // every < 4 or len(kept) >= min(step // every, MAX_SNAPSHOTS // 2 - 1)


@pytest.mark.parametrize("every", [1, 3, 25])
def test_the_snapshots_of_a_whole_run_are_counted(every):
    for steps in (1, 2, 3, 61 * every, 62 * every, 63 * every, 63 * every + 1, 126 * every, 1_000, 5_000):
        evaluated = {*range(0, steps, every), steps}
        taken = [step for step in evaluated if step == steps or is_snapshot_step(step, every=every)]
        assert count_snapshots(steps, every=every) == len(taken), steps
