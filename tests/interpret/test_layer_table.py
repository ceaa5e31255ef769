"""The agreement of layers: against the definition row by row, between equal layers, and in chunks."""

import numpy as np
import pytest
import torch

from core.config import load_preset
from core.generation import generate
from core.interpret import layer_table
from core.interpret.layer_table import measure_layers
from core.tasks import fixed_pairs
from core.teaching.bugs import new_state

PRESET = load_preset("tiny").with_changes({"model.num_encoder_layers": 3, "model.num_decoder_layers": 2})


def distance(p: np.ndarray, q: np.ndarray) -> float:
    """The square root of the divergence, from its definition with logarithms to the base 2."""
    mean = (p + q) / 2
    divergence = sum(float((each[each > 0] * np.log2(each[each > 0] / mean[each > 0])).sum()) / 2 for each in (p, q))
    return max(divergence, 0) ** 0.5


def test_distances_equal_those_of_the_definition_row_by_row():
    state = new_state(PRESET)
    model, pairs = state.model.eval(), fixed_pairs(state.task, 6, split="test")
    rows: dict[tuple[str, int, int], list[float]] = {}
    for source in pairs.src:
        source = source[source != 0][None]
        decoded = generate(model, source, max_steps=model.max_seq_len, need_weights=True)
        steps = decoded.tokens.shape[1]
        for block, count in (("encoder", source.shape[1]), ("decoder", steps), ("cross", steps)):
            means = getattr(decoded.maps, block)[:, 0].mean(dim=1).double().numpy()  # (L, queries, keys)
            for first in range(len(means)):
                for second in range(first + 1, len(means)):
                    of = rows.setdefault((block, first + 1, second + 1), [])
                    start = 1 if block == "decoder" else 0  # the first row of the decoder has a single key
                    of += [distance(means[first, row], means[second, row]) for row in range(start, count)]
    table = measure_layers(model, state.task, pairs)
    assert [tuple(row) for row in table[["block", "first", "second"]].itertuples(index=False)] == list(rows)
    assert table["distance"].tolist() == pytest.approx([np.mean(values) for values in rows.values()], abs=1e-5)
    assert (table["distance"] > 0).all()


def test_a_layer_is_as_its_copy_whatever_the_order_of_its_heads():
    weights = torch.rand(1, 4, 20, 6).softmax(dim=-1)
    both = torch.cat([weights, weights[:, [2, 0, 3, 1]]])
    assert layer_table.layer_distances(both).abs().max().item() == pytest.approx(0, abs=1e-2)
    disjoint = torch.stack([torch.tensor([[[1.0, 0, 0]]]), torch.tensor([[[0, 0.5, 0.5]]])])
    assert layer_table.layer_distances(disjoint)[0, 1].item() == pytest.approx(1)


def test_chunks_give_what_one_pass_gives(monkeypatch):
    state = new_state(PRESET)
    pairs = fixed_pairs(state.task, 6, split="test")
    whole = measure_layers(state.model, state.task, pairs)
    monkeypatch.setattr("core.interpret.map_rows.MAX_WEIGHTS", 1)
    assert measure_layers(state.model, state.task, pairs)["distance"].tolist() == pytest.approx(
        whole["distance"].tolist(), abs=1e-6
    )


def test_a_model_of_one_layer_has_no_pairs():
    state = new_state(load_preset("tiny"))
    assert measure_layers(state.model, state.task, fixed_pairs(state.task, 2, split="test")).empty
