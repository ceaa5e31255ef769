"""Alignment scores: 1 for the gold alignment, the uniform mass for uniform attention."""

import pytest
import torch

from core.config.tasks import DigitsConfig
from core.generation import GenerationResult
from core.interpret.head_scores import HeadScore, best_head_of_layer, score_heads
from core.interpret.inspection import label_source, label_steps
from core.tasks.alignment import gold_alignment, gold_cells
from core.tasks.sequences import Digits
from core.text.vocab import PAD_ID
from tests.support.handmade_results import answer_tokens, framed_pairs, generation_result, one_hot_maps

LAYERS, H, WIDTH = 2, 3, 7
TASK = Digits(DigitsConfig(transform="reverse", min_length=2, max_length=5))
PAIRS = framed_pairs("123", "45454")
TOKENS = answer_tokens("321", "45454", width=6)
PERFECT = [[3, 2, 1, 0, 0, 0], [5, 4, 3, 2, 1, 0]]  # anywhere at EOS and after it


def perfect() -> torch.Tensor:
    return one_hot_maps(PERFECT, keys=WIDTH, layers=LAYERS, heads=H)


def scored(weights: torch.Tensor, *, tokens: torch.Tensor = TOKENS, task: Digits = TASK) -> list[HeadScore]:
    return score_heads(task, PAIRS, generation_result(tokens, cross=weights))


def columns(task: Digits, steps: int) -> list[list[list[int]]]:
    """The gold columns of each step of each pair."""
    return [
        [cells.nonzero().flatten().tolist() for cells in row]
        for row in gold_alignment(task, PAIRS, TOKENS, steps=steps)
    ]


def test_the_gold_alignment_of_reversal_is_anti_diagonal():
    assert columns(TASK, 6) == [[[3], [2], [1], [], [], []], [[5], [4], [3], [2], [1], []]]
    assert columns(TASK, 2) == [[[3], [2]], [[5], [4]]]


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ("copy", [[1], [2], [3], [4], [5]]),
        ("sort", [[1, 3, 5], [1, 3, 5], [1, 3, 5], [2, 4], [2, 4]]),  # any four for each four
        ("deduplicate", [[1, 3, 5], [2, 4], [], [], []]),
    ],
)
def test_the_gold_alignment_marks_every_possible_source(transform, expected):
    task = Digits(DigitsConfig(transform=transform, min_length=2, max_length=5))
    assert columns(task, 5)[1] == expected
    sources = task.gold_alignment(list("45454"))
    assert gold_cells(sources, steps=5) == [(step, column) for step, row in enumerate(expected) for column in row]


def test_a_perfect_map_scores_one_in_every_head():
    scores = scored(perfect())
    assert [(score.layer, score.head) for score in scores] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    for score in scores:
        assert (score.attention_mass, score.argmax_accuracy) == (1.0, 1.0)
        # three steps among 5 tokens, five among 7
        assert score.uniform_mass == pytest.approx((3 / 5 + 5 / 7) / 8)


def test_a_map_shifted_by_one_column_scores_zero():
    for score in scored(perfect().roll(1, dims=-1)):
        assert (score.attention_mass, score.argmax_accuracy) == (0.0, 0.0)


def test_a_uniform_map_scores_the_uniform_mass():
    real = (PAIRS.src != PAD_ID).float()
    weights = (real / real.sum(1, keepdim=True))[None, :, None, None].expand(LAYERS, 2, H, 6, WIDTH)
    for score in scored(weights):
        assert score.attention_mass == pytest.approx(score.uniform_mass, abs=1e-6)
        assert score.argmax_accuracy == pytest.approx(score.uniform_mass, abs=1e-6)
        assert score.aer == pytest.approx(score.uniform_aer, abs=1e-6)
        assert score.uniform_aer == pytest.approx(1 - score.uniform_mass, abs=1e-6)


def test_attention_to_any_of_several_sources_is_correct():
    sort = Digits(DigitsConfig(transform="sort", min_length=2, max_length=5))
    weights = one_hot_maps([[1, 2, 3, 0, 0, 0], [5, 1, 3, 4, 2, 0]], keys=WIDTH)  # not in the order of the input
    weights[0, 1, 0, 0] = torch.tensor([0, 0.4, 0, 0.3, 0, 0.3, 0])
    (score,) = scored(weights, task=sort)
    assert (score.attention_mass, score.argmax_accuracy) == (1.0, 1.0)
    assert score.uniform_mass == pytest.approx((3 / 5 + 3 * 3 / 7 + 2 * 2 / 7) / 8)


def test_each_head_gets_its_own_score():
    weights = perfect()
    weights[1, :, 2] = weights[1, :, 2].roll(1, dims=-1)
    weights[0, 1, 0] = weights[0, 1, 0].roll(1, dims=-1)  # one head, in the longer sequence only
    shares = {(score.layer, score.head): score.attention_mass for score in scored(weights)}
    assert shares == {(1, 1): 3 / 8, (1, 2): 1.0, (1, 3): 1.0, (2, 1): 1.0, (2, 2): 1.0, (2, 3): 0.0}


def test_rows_at_eos_and_after_it_do_not_count():
    garbage = perfect()
    garbage[:, 0, :, 3:] = 0.77
    garbage[:, 1, :, 5:] = 9.0
    assert all((score.attention_mass, score.argmax_accuracy) == (1.0, 1.0) for score in scored(garbage))


def test_steps_after_eos_do_not_count():
    """The second sequence stopped after two tokens, before three steps that have a source."""
    weights = perfect()
    weights[:, 1, :, 3:] = 0
    for score in scored(weights, tokens=answer_tokens("321", "45", width=6)):
        assert (score.attention_mass, score.argmax_accuracy) == (1.0, 1.0)
        assert score.uniform_mass == pytest.approx((3 / 5 + 3 / 7) / 6)


def test_the_uniform_mass_of_a_decoder_only_model_includes_generated_tokens():
    weights = torch.cat([perfect(), torch.zeros(LAYERS, 2, H, 6, 6)], dim=-1)
    for score in score_heads(TASK, PAIRS, generation_result(TOKENS, decoder=weights)):
        assert (score.attention_mass, score.argmax_accuracy) == (1.0, 1.0)
        shares = [1 / (5 + written) for written in (1, 2, 3)] + [1 / (7 + written) for written in (1, 2, 3, 4, 5)]
        assert score.uniform_mass == pytest.approx(sum(shares) / 8)


def test_a_generation_without_maps_has_no_scores():
    assert score_heads(TASK, PAIRS, generation_result(TOKENS)) == []
    assert (
        score_heads(
            TASK, PAIRS, GenerationResult(TOKENS, TOKENS[..., None], torch.ones(2, 6, 1), None, torch.zeros(2, 6))
        )
        == []
    )


def test_a_task_without_gold_alignment_has_no_scores():
    ended = answer_tokens("", "", width=6)
    decoded = generation_result(ended, cross=perfect())
    assert score_heads(TASK, PAIRS, decoded) != []  # the one step has a source, though it wrote EOS
    nothing = Digits(DigitsConfig(transform="reverse", min_length=2, max_length=5))
    nothing.gold_alignment = lambda symbols: [[] for _ in symbols]
    assert score_heads(nothing, PAIRS, decoded) == []


def test_the_best_head_of_a_layer_has_the_largest_attention_mass():
    scores = [
        HeadScore(layer, head, share, 0.0, 0.1, 1.0, 0.9)
        for layer, head, share in ((1, 1, 0.9), (2, 1, 0.2), (2, 2, 0.4))
    ]
    assert best_head_of_layer(scores, 2) == scores[2]
    assert best_head_of_layer(scores, 1) == scores[0]


def test_rows_are_labeled_by_produced_and_read_token():
    assert label_steps(["9", "2", "<EOS>"]) == (["9", "2", "<EOS>"], ["<BOS>", "9", "2"])
    assert label_source(["4", "8"]) == ["<BOS>", "4", "8", "<EOS>"]
