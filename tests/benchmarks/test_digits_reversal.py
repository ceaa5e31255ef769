"""The figures README claims for the digits: trained in full, three seeds, minutes long."""

import statistics

import pytest

from core.analysis import best_of_layer, score_decoded
from core.config import load_preset
from core.decoding import decode
from core.evaluation import evaluate
from core.models import count_parameters
from core.tasks import fixed_pairs
from core.training import new_state, train

SEEDS = (0, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "parameters", "least_hits"), [("digits-reversal", 169_933, 0.95), ("digits-reversal-gru", 59_853, 0)]
)
def test_digits_reversal_is_solved_within_1000_steps(preset: str, parameters: int, least_hits: float) -> None:
    exact, shares, hits = [], [], []
    for seed in SEEDS:
        state = new_state(load_preset(preset).with_changes({"training.seed": seed}))
        for _ in train(state):
            pass
        assert count_parameters(state.model) == parameters
        assert state.step <= 1000
        pairs = fixed_pairs(state.task, 10_000, split="test")
        assert len(pairs) == 10_000
        exact.append(evaluate(state.model, pairs).exact_match)
        state.model.eval()
        sample = pairs[:1000]
        decoded = decode(state.model, sample.src, max_steps=sample.tgt_out.shape[1], need_weights=True)
        best = best_of_layer(score_decoded(state.task, sample, decoded), layer=decoded.maps.cross.shape[0])
        shares.append(best.share)
        hits.append(best.hits)
    print(f"{preset}: exact match {exact}; best last-layer head: share {shares}, largest weight there {hits}")
    assert statistics.median(exact) >= 0.999
    assert min(hits) >= least_hits
