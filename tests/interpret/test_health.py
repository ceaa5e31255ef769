"""The health of heads and layers: figures equal to those computed in float64 from raw maps; marks; no side effects."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.config import Preset, load_preset
from core.interpret import health
from core.interpret.health import HealthTaker, head_marks
from core.interpret.health_measures import fixed_key_mass
from core.interpret.induction import RepeatedTokens
from core.interpret.snapshots import SnapshotTaker
from core.models import forward_with_attention
from core.models.hooks import hooks
from core.runs.training_state import clone_weights
from core.tasks import Task
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, PAD_ID
from core.training.loop import train
from core.training.state import TrainingState

FAMILIES = {
    "transformer": {"model.dropout": 0.2},
    "gru": {"model.family": "gru", "model.d_embedding": 8, "model.d_hidden": 12, "model.num_layers": 2},
    "decoder-only": {"model.family": "decoder-only"},
    "encoder-only": {"model.family": "encoder-only"},
}
CLOSE = {"rel": 1e-5, "abs": 1e-5}


@pytest.fixture(params=FAMILIES)
def preset(request, tiny) -> Preset:
    longer = {"task.max_length": 8, "model.max_seq_len": 24}
    few = {"training.batch_size": 8, "training.validation_sequences": 16}
    base = load_preset("digits-reversal").with_changes(few) if request.param == "gru" else tiny
    return base.with_changes(longer | FAMILIES[request.param])


def trained(preset: Preset, steps: int) -> TrainingState:
    state = new_state(preset)
    for event in train(state):
        if event.step == steps:
            break
    return state


def taker_of(state: TrainingState) -> HealthTaker:
    return HealthTaker(state.task, state.model, SnapshotTaker(state.task, state.model).pairs)


def raw_rows(state: TrainingState, taker: HealthTaker) -> dict[str, list[list[tuple[np.ndarray, np.ndarray]]]]:
    """The rows of every head, (visible weights, distances) sequence by sequence, from raw maps in float64.

    Written a second time, row by row, from what the documentation says.
    """
    state.model.eval()
    with torch.no_grad():
        _, maps = forward_with_attention(state.model, taker.pairs.src, taker.pairs.tgt_in)
    rows: dict[str, list] = {}
    for block in ("encoder", "decoder", "cross"):
        weights = getattr(maps, block)
        if weights is None:
            continue
        layers, pairs, heads = weights.shape[:3]
        array, width = weights.numpy().astype(np.float64), taker.pairs.src.shape[1]
        rows[block] = []
        for layer in range(layers):
            for head in range(heads):
                of_head = []
                for pair in range(pairs):
                    source = int((taker.pairs.src[pair] != PAD_ID).sum())
                    answer = int((taker.pairs.tgt_out[pair] != PAD_ID).sum())
                    of_pair = []
                    for query in range(source if block == "encoder" else answer):
                        own = list(range(query + 1))
                        if block == "encoder" or block == "cross":
                            columns, positions, at = list(range(source)), list(range(source)), query
                        elif maps.cross is not None:
                            columns, positions, at = own, own, query
                        else:
                            columns = list(range(source)) + [width + key for key in own]
                            positions, at = list(range(source)) + [source + key for key in own], source + query
                        if len(columns) > 1:
                            row = array[layer, pair, head, query, columns]
                            of_pair.append((row, np.abs(np.array(positions) - at), columns))
                    of_head.append(of_pair)
                rows[block].append(of_head)
    return rows


def test_figures_of_heads_equal_those_computed_row_by_row_in_float64(preset):
    state = trained(preset, 4)
    taker = taker_of(state)
    health, _ = taker.measure(state.model, {})
    raw = raw_rows(state, taker)
    assert raw.keys() == health.entropy.keys()
    for block, of_heads in raw.items():
        heads = len(health.entropy[block][0])
        for number, of_head in enumerate(of_heads):
            layer, head = divmod(number, heads)
            rows = [row for of_pair in of_head for row in of_pair]
            entropies = [-(row[row > 0] * np.log(row[row > 0])).sum() for row, _, _ in rows]
            shares = [each / np.log(len(row)) for each, (row, _, _) in zip(entropies, rows, strict=True)]
            fixed = []
            for of_pair in of_head:
                mass: dict[int, float] = {}
                for row, _, columns in of_pair:
                    for column, weight in zip(columns, row, strict=True):
                        mass[column] = mass.get(column, 0.0) + weight / len(of_pair)
                if mass:
                    fixed.append(max(mass.values()))
            expected = {
                "entropy": np.mean(entropies),
                "entropy_share": np.mean(shares),
                "distance": np.mean([(row * distances).sum() for row, distances, _ in rows]),
                "reach": max((distances[row >= 0.1].max(initial=0) for row, distances, _ in rows)),
                "fixed_key_mass": np.mean(fixed),
            }
            for name, value in expected.items():
                assert getattr(health, name)[block][layer][head] == pytest.approx(value, **CLOSE), (block, number, name)


def test_only_heads_of_a_decoder_only_model_have_induction_scores(preset):
    state = trained(preset, 4)
    taker = taker_of(state)
    health, _ = taker.measure(state.model, {})
    if preset.model.family != "decoder-only":
        assert health.induction == health.previous_token == {}
        return
    scores = RepeatedTokens.like(taker.pairs, state.task, state.model).scores(state.model)
    for name in ("induction", "previous_token"):
        of_heads = np.array(getattr(health, name)["decoder"])
        assert of_heads == pytest.approx(getattr(scores, name).numpy(), **CLOSE)
    assert health.induction != health.previous_token


def test_diversity_and_change_equal_those_computed_row_by_row_in_float64(preset):
    state = trained(preset, 4)
    taker = taker_of(state)
    _, kept = taker.measure(state.model, {})
    before = raw_rows(state, taker)
    state.model.train()
    for event in train(state):
        if event.step == 7:
            break
    health, _ = taker.measure(state.model, kept)
    after = raw_rows(state, taker)

    def distance(one, other) -> float:
        pairs = [
            (a[0], b[0]) for mine, theirs in zip(one, other, strict=True) for a, b in zip(mine, theirs, strict=True)
        ]
        return float(np.mean([np.abs(a - b).sum() / 2 for a, b in pairs]))

    for block, of_heads in after.items():
        heads = len(health.entropy[block][0])
        for number, of_head in enumerate(of_heads):
            layer, head = divmod(number, heads)
            assert health.change[block][layer][head] == pytest.approx(distance(of_head, before[block][number]), **CLOSE)
        assert max(max(of_layer) for of_layer in health.change[block]) > 1e-6
        for layer, diversity in enumerate(health.diversity[block]):
            mine = of_heads[layer * heads : (layer + 1) * heads]
            pairs = [distance(mine[a], mine[b]) for a in range(heads) for b in range(a)]
            if pairs:
                assert diversity == pytest.approx(float(np.mean(pairs)), **CLOSE)
            else:
                assert diversity is None


def test_layer_magnitudes_and_output_shares_equal_those_computed_in_float64(tiny):
    state = trained(tiny.with_changes({"model.num_encoder_layers": 2}), 4)
    taker, model = taker_of(state), state.model.eval()
    health, _ = taker.measure(model, {})
    recorded: dict[str, torch.Tensor] = {}
    points = [
        "encoder_layers.0.hook_resid_post",
        "encoder_layers.1.hook_resid_post",
        "decoder_layers.0.hook_resid_post",
    ]
    points += ["encoder_layers.1.self_attention.hook_z", "decoder_layers.0.cross_attention.hook_z"]
    with torch.no_grad(), hooks({name: lambda x, name=name: recorded.__setitem__(name, x) for name in points}):
        logits = model(taker.pairs.src, taker.pairs.tgt_in)
    real = {"encoder": (taker.pairs.src != PAD_ID).numpy(), "decoder": (taker.pairs.tgt_out != PAD_ID).numpy()}
    expected = np.sqrt(np.mean(logits.numpy().astype(np.float64)[real["decoder"]] ** 2))
    assert health.logit_rms == pytest.approx(expected, **CLOSE)
    for name, part in zip(points[:3], ("encoder.1", "encoder.2", "decoder.1"), strict=True):
        states = recorded[name].numpy().astype(np.float64)[real[part.split(".")[0]]]
        assert health.layer_rms[part] == pytest.approx(np.sqrt(np.mean(states**2)), **CLOSE)
    for name, block, layer, side in ((points[3], "encoder", 1, "encoder"), (points[4], "cross", 0, "decoder")):
        z = recorded[name].numpy().astype(np.float64).transpose(0, 2, 1, 3)[real[side]]  # (N, H, W)
        w_o = model.attention[(block, layer + 1)].w_o.weight.detach().numpy().astype(np.float64)
        width = z.shape[-1]
        parts = [z[:, h] @ w_o[:, h * width : (h + 1) * width].T for h in range(z.shape[1])]
        whole = np.sqrt(np.mean(sum(parts) ** 2))
        for head, output in enumerate(parts):
            assert health.output_share[block][layer][head] == pytest.approx(
                np.sqrt(np.mean(output**2)) / whole, **CLOSE
            )


def test_pad_and_other_pairs_of_the_batch_change_nothing(preset):
    state = trained(preset, 4)
    taker = taker_of(state)
    assert (taker.pairs.src == PAD_ID).any()
    whole, _ = taker.measure(state.model, {})
    alone = [HealthTaker(state.task, state.model, taker.pairs[row : row + 1]) for row in range(len(taker.pairs))]
    each = [one.measure(state.model, {})[0] for one in alone]
    for block in whole.fixed_key_mass:  # a mean over sequences
        mean = np.mean([one.fixed_key_mass[block][0][0] for one in each])
        assert whole.fixed_key_mass[block][0][0] == pytest.approx(mean, **CLOSE)


def test_measuring_changes_neither_weights_nor_mode_nor_generators(preset):
    state = trained(preset, 2)
    taker, before = taker_of(state), clone_weights(state.model)
    generator, global_state = state.generator.get_state(), torch.get_rng_state()
    state.model.train()
    one, kept = taker.measure(state.model, {})
    two, _ = taker.measure(state.model, kept)
    assert state.model.training
    assert torch.equal(state.generator.get_state(), generator)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert all(torch.equal(before[name], each) for name, each in clone_weights(state.model).items())
    assert one.change == {}
    assert two.model_copy(update={"change": {}}) == one
    assert {value for of in two.change.values() for layer in of for value in layer} == {0.0}


def test_the_pairs_are_the_scored_inputs_with_their_answers(tiny):
    state = new_state(tiny)
    taker = taker_of(state)
    task: Task = state.task
    for src, tgt in zip(taker.pairs.src.tolist(), taker.pairs.tgt.tolist(), strict=True):
        symbols = [each for each in task.src_vocab.decode(src) if not each.startswith("<")]
        answer = [each for each in task.tgt_vocab.decode(tgt) if not each.startswith("<")]
        assert answer == list(task.answer(symbols))
    assert len(taker.pairs) == 32


def test_a_task_without_reference_answers_is_measured_on_validation_pairs():
    state = new_state(load_preset("psalms").with_changes({"model.d_model": 32, "model.d_ff": 32}))
    pairs = SnapshotTaker(state.task, state.model).pairs
    assert pairs is None
    taker = HealthTaker(state.task, state.model, pairs)
    health, kept = taker.measure(state.model, {})
    assert health.entropy
    assert sum(each.numel() for each in kept.values()) <= 250_000


# ---- marks


def marks_with(tiny: Preset, change) -> dict:
    """The marks of a new model after ``change(model)``."""
    state = new_state(tiny)
    with torch.no_grad():
        change(state.model)
    health, _ = taker_of(state).measure(state.model, {})
    return head_marks(health)


def test_a_head_without_output_is_dead(tiny):
    def silence(model):
        model.attention[("cross", 1)].w_o.weight[:, : model.attention[("cross", 1)].w_o.weight.shape[1] // 2] = 0

    marks = marks_with(tiny, silence)
    heads = len(marks["cross"][0])
    assert marks["cross"][0][: heads // 2] == ("dead",) * (heads // 2)
    assert "dead" not in marks["cross"][0][heads // 2 :]


def test_a_head_that_ignores_its_input_is_uniform(tiny):
    def flatten(model):
        model.attention[("encoder", 1)].w_q.weight.zero_()
        model.attention[("encoder", 1)].w_q.bias.zero_()

    assert set(marks_with(tiny, flatten)["encoder"][0]) == {"uniform"}


def test_a_head_that_attends_to_one_key_whatever_the_query_is_collapsed(tiny):
    def collapse(model):
        """Query without input, key proportional to one dimension of the states: one key wins for every query."""
        attention = model.attention[("cross", 1)]
        attention.w_q.weight.zero_()
        attention.w_q.bias.fill_(1e3)

    assert set(marks_with(tiny, collapse)["cross"][0]) <= {"collapsed", "dead"}
    assert "collapsed" in marks_with(tiny, collapse)["cross"][0]


def test_a_sharp_head_that_follows_its_query_has_no_mark(tiny):
    """A diagonal has entropy 0 as a collapsed head has, but each query its own key."""
    state = new_state(tiny)
    taker = taker_of(state)
    point = state.model.attention[("encoder", 1)].hook_pattern.name
    with hooks({point: lambda x: torch.eye(x.shape[-1]).expand_as(x)}):
        health, _ = taker.measure(state.model, {})
    assert health.entropy_share["encoder"][0][0] < 0.01
    assert set(head_marks(health)["encoder"][0]) == {""}


def test_pairs_without_a_reference_are_left_out_and_the_shortest_are_measured_where_all_are_too_many(tiny, monkeypatch):
    state = new_state(tiny)
    taker = taker_of(state)
    widths = taker.pairs.lengths().sum(dim=1)
    no_answer = replace(taker.pairs, tgt=taker.pairs.tgt.clone())
    no_answer.tgt[0, 1:] = PAD_ID
    no_answer.tgt[0, 1] = EOS_ID
    measured = HealthTaker(state.task, state.model, no_answer).pairs
    assert torch.equal(measured.src, taker.pairs.src[1:, : measured.src.shape[1]])
    monkeypatch.setattr(health, "MAX_WEIGHTS", 400)
    few = HealthTaker(state.task, state.model, taker.pairs).pairs
    assert 0 < len(few) < len(taker.pairs)
    assert few.lengths().sum(dim=1).tolist() == widths.sort().values[: len(few)].tolist()


def test_one_row_says_nothing_of_a_fixed_key():
    weights = torch.tensor([[[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]]])  # (L, H, N, K)
    assert fixed_key_mass(weights[:, :, :1], torch.tensor([0])).isnan().all()
    assert fixed_key_mass(weights, torch.tensor([0, 1, 1])).item() == 0.5  # of the second sequence
