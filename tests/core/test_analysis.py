"""The expected-pattern score: full marks for the true pattern, the uniform share for no pattern at all."""

import pytest
import torch

from core.analysis import (
    HeadScore,
    best_of_layer,
    frame_labels,
    score_decoded,
    score_heads,
    step_labels,
    true_columns,
)
from core.decoding import Decoded, decode
from core.models import AttentionMaps, build_model
from core.tasks import Batch
from core.tasks.digits import Digits
from core.vocab import BOS_ID, EOS_ID, PAD_ID

LAYERS, H, WIDTH = 2, 3, 7


@pytest.fixture
def task() -> Digits:
    return Digits(transform="reverse", min_length=2, max_length=5)


@pytest.fixture
def pairs() -> Batch:
    """1 2 3 and 4 5 4 5 4, reversed."""
    src = [[BOS_ID, 4, 5, 6, EOS_ID, PAD_ID, PAD_ID], [BOS_ID, 7, 8, 7, 8, 7, EOS_ID]]
    tgt = [[BOS_ID, 6, 5, 4, EOS_ID, PAD_ID, PAD_ID], [BOS_ID, 7, 8, 7, 8, 7, EOS_ID]]
    return Batch(torch.tensor(src), torch.tensor(tgt))


def pointing(columns: list[list[int]]) -> torch.Tensor:
    """Maps (L, B, H, T, S), in which every head puts all its weight on the given columns."""
    weights = torch.nn.functional.one_hot(torch.tensor(columns), WIDTH).float()
    return weights[None, :, None].expand(LAYERS, 2, H, -1, WIDTH).clone()


PERFECT = [[3, 2, 1, 0, 0, 0], [5, 4, 3, 2, 1, 0]]  # at EOS and behind it: somewhere else


def test_true_columns_run_backwards_and_end_before_the_end(task, pairs):
    assert true_columns(task, pairs, steps=6).tolist() == [[3, 2, 1, -1, -1, -1], [5, 4, 3, 2, 1, -1]]
    assert true_columns(task, pairs, steps=2).tolist() == [[3, 2], [5, 4]]


def test_true_columns_of_copying_run_forwards(pairs):
    task = Digits(transform="copy", min_length=2, max_length=5)
    assert true_columns(task, pairs, steps=4).tolist() == [[1, 2, 3, -1], [1, 2, 3, 4]]


def test_a_perfect_map_scores_one_in_every_head(task, pairs):
    scores = score_heads(pointing(PERFECT), true_columns(task, pairs, steps=6), pairs.src)
    assert [(score.layer, score.head) for score in scores] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    for score in scores:
        assert (score.share, score.hits) == (1.0, 1.0)
        # three steps among 5 tokens, five among 7
        assert score.uniform == pytest.approx((3 / 5 + 5 / 7) / 8)


def test_a_map_shifted_by_one_scores_zero(task, pairs):
    shifted = [[(column + 1) % WIDTH for column in row] for row in PERFECT]
    for score in score_heads(pointing(shifted), true_columns(task, pairs, steps=6), pairs.src):
        assert (score.share, score.hits) == (0.0, 0.0)


def test_a_uniform_map_scores_the_uniform_share(task, pairs):
    real = (pairs.src != PAD_ID).float()
    weights = (real / real.sum(1, keepdim=True))[None, :, None, None].expand(LAYERS, 2, H, 6, WIDTH)
    for score in score_heads(weights, true_columns(task, pairs, steps=6), pairs.src):
        assert score.share == pytest.approx(score.uniform, abs=1e-6)


def test_each_head_gets_its_own_score(task, pairs):
    weights = pointing(PERFECT)
    weights[1, :, 2] = weights[1, :, 2].roll(1, dims=-1)
    weights[0, 1, 0] = weights[0, 1, 0].roll(1, dims=-1)  # one head, in the longer sequence only
    scores = score_heads(weights, true_columns(task, pairs, steps=6), pairs.src)
    shares = {(score.layer, score.head): score.share for score in scores}
    assert shares == {(1, 1): 3 / 8, (1, 2): 1.0, (1, 3): 1.0, (2, 1): 1.0, (2, 2): 1.0, (2, 3): 0.0}


def test_rows_of_the_end_and_of_padding_do_not_count(task, pairs):
    columns = true_columns(task, pairs, steps=6)
    garbage = pointing(PERFECT)
    garbage[:, 0, :, 3:] = 0.77
    garbage[:, 1, :, 5:] = torch.nan
    scores = score_heads(garbage.nan_to_num(9.0), columns, pairs.src)
    assert all((score.share, score.hits) == (1.0, 1.0) for score in scores)


def test_steps_never_made_do_not_count(task, pairs):
    """The second sequence stopped after three tokens: two steps with a source were never made."""
    tokens = torch.tensor([[6, 5, 4, EOS_ID, PAD_ID, PAD_ID], [7, 8, EOS_ID, PAD_ID, PAD_ID, PAD_ID]])
    weights = pointing(PERFECT)
    weights[:, 1, :, 3:] = 0
    decoded = Decoded(tokens, tokens[..., None], torch.ones(2, 6, 1), AttentionMaps(None, None, weights))
    for score in score_decoded(task, pairs, decoded):
        assert (score.share, score.hits) == (1.0, 1.0)
        assert score.uniform == pytest.approx((3 / 5 + 3 / 7) / 6)


def test_a_decode_without_maps_has_no_scores(task, pairs):
    tokens = pairs.tgt_out
    for maps in (None, AttentionMaps(None, None, None)):
        assert score_decoded(task, pairs, Decoded(tokens, tokens[..., None], torch.ones(2, 6, 1), maps)) == []


def test_nothing_to_score_is_an_error(pairs):
    with pytest.raises(ValueError, match="no decoding step has a true source token"):
        score_heads(pointing(PERFECT), torch.full((2, 6), -1), pairs.src)


def test_an_untrained_model_scores_about_the_uniform_share(tiny, task):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0)).eval()
    pairs = task.sample(200, split="test", generator=torch.Generator().manual_seed(0))
    scores = score_decoded(task, pairs, decode(model, pairs.src, max_steps=6, need_weights=True))
    assert len(scores) == tiny.model.num_decoder_layers * tiny.model.num_heads
    for score in scores:
        assert score.share == pytest.approx(score.uniform, abs=0.1)


def test_the_best_head_of_a_layer_is_the_one_with_the_largest_share():
    scores = [HeadScore(layer, head, share, 0.0, 0.1) for layer, head, share in ((1, 1, 0.9), (2, 1, 0.2), (2, 2, 0.4))]
    assert best_of_layer(scores, 2) == scores[2]
    assert best_of_layer(scores, 1) == scores[0]


def test_rows_are_named_by_what_was_produced_and_what_was_read():
    assert step_labels(["9", "2", "<EOS>"]) == (["9", "2", "<EOS>"], ["<BOS>", "9", "2"])
    assert frame_labels(["4", "8"]) == ["<BOS>", "4", "8", "<EOS>"]
