"""The head table: known values on handmade maps, and no bias in favor of a model."""

from math import isnan

import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from core.config import load_preset
from core.config.tasks import DigitsConfig
from core.generation import GenerationResult, generate
from core.interpret import map_rows
from core.interpret.head_scores import score_heads
from core.interpret.head_table import head_table, measure_heads
from core.models import build_model
from core.tasks import build_task, fixed_pairs
from core.tasks.sequences import Digits
from core.text.vocab import EOS_ID, PAD_ID
from tests.support.handmade_results import answer_tokens, framed_pairs, generation_result, one_hot_maps

TASK = Digits(DigitsConfig(transform="reverse", min_length=2, max_length=5))
PAIRS = framed_pairs("123", "45454")
TOKENS = answer_tokens("321", "45454", width=6)
PERFECT = [[3, 2, 1, 0, 0, 0], [5, 4, 3, 2, 1, 0]]
TRUTH = [f"{name}_{token}" for token in ("produced", "read") for name in ("mass", "uniform", "aer", "uniform_aer")]


def of_cross(columns: list[list[int]]) -> pd.Series:
    """The scores of one cross head that puts all its weight on these columns."""
    return head_table(TASK, PAIRS, generation_result(TOKENS, cross=one_hot_maps(columns, keys=7))).iloc[0]


def uniform(seen: torch.Tensor) -> torch.Tensor:
    """One layer of two heads (1, B, 2, Q, K) that spread evenly over the keys (B, Q, K) bool that they see."""
    weights = seen / seen.sum(dim=-1, keepdim=True).clamp(min=1)
    return weights[None, :, None].repeat(1, 1, 2, 1, 1)


def random_decode() -> GenerationResult:
    """A decode of ``PAIRS`` with random maps: 2 layers of 3 heads in each block, causal and without PAD."""
    real = (PAIRS.src != PAD_ID)[:, None, None].float()
    maps = {
        "encoder": torch.rand(2, 2, 3, 7, 7) ** 3 * real,
        "decoder": (torch.rand(2, 2, 3, 6, 6) ** 3).tril(),
        "cross": torch.rand(2, 2, 3, 6, 7) ** 3 * real,
    }
    return generation_result(
        TOKENS, **{block: weights / weights.sum(dim=-1, keepdim=True) for block, weights in maps.items()}
    )


def test_a_perfect_reversal_scores_one_for_the_produced_token():
    scores = of_cross(PERFECT)
    assert (scores.block, scores.layer, scores["head"], scores.rows) == ("cross", 1, 1, 10)
    assert (scores.mass_produced, scores.aer_produced) == (1, 0)
    assert (scores.mass_read, scores.aer_read) == (0, 1)
    assert scores.uniform_produced == scores.uniform_read == pytest.approx((3 / 5 + 5 / 7) / 8)
    assert scores.uniform_aer_produced == pytest.approx(1 - (3 / 5 + 5 / 7) / 8)
    assert scores.links == 8
    assert (scores.entropy, scores.confidence) == (0, 1)


def test_a_reversal_one_step_late_scores_for_the_read_token_only():
    scores = of_cross([[0, *row[:-1]] for row in PERFECT])
    assert (scores.mass_produced, scores.aer_produced) == (0, 1)
    assert (scores.mass_read, scores.aer_read) == (1, 0)


def test_a_reversal_shifted_the_other_way_scores_zero():
    scores = of_cross([[max(0, column - 1) for column in row] for row in PERFECT])
    assert (scores.mass_produced, scores.aer_produced, scores.mass_read, scores.aer_read) == (0, 1, 0, 1)


def test_uniform_maps_score_as_uniform_in_every_block():
    real = PAIRS.src != PAD_ID
    causal = torch.ones(6, 6).tril().bool().expand(2, -1, -1)
    decoded = generation_result(
        TOKENS,
        encoder=uniform(real[:, None].expand(-1, 7, -1)),
        decoder=uniform(causal),
        cross=uniform(real[:, None].expand(-1, 6, -1)),
    )
    table = head_table(TASK, PAIRS, decoded)
    assert table[["block", "layer", "head"]].to_numpy().tolist() == [
        [block, 1, head] for block in ("encoder", "decoder", "cross") for head in (1, 2)
    ]
    assert table.rows.tolist() == [12, 12, 8, 8, 10, 10]
    assert table.entropy.tolist() == pytest.approx([1] * 6)
    assert table.distance.tolist() == pytest.approx([0] * 6, abs=1e-3)
    cross = table[table.block == "cross"]
    for token in ("produced", "read"):
        assert cross[f"mass_{token}"].tolist() == pytest.approx(cross[f"uniform_{token}"].tolist())
        assert (1 - cross[f"aer_{token}"]).tolist() == pytest.approx(cross[f"uniform_{token}"].tolist())
    # the means of one over the keys: 5 and 7 of the source; 2, 3, 4 and 2, 3, 4, 5, 6 of what was written
    assert table.confidence.tolist() == pytest.approx(
        [2 / 12] * 2
        + [(1 / 2 + 1 / 3 + 1 / 4 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) / 8] * 2
        + [(4 / 5 + 6 / 7) / 10] * 2
    )
    assert table.mass_bos.tolist() == pytest.approx(table.confidence.tolist())
    assert table.mass_eos.tolist() == pytest.approx([2 / 12] * 2 + [0] * 2 + [(4 / 5 + 6 / 7) / 10] * 2)
    assert (table.mass_pad == 0).all()


def test_only_heads_that_attend_to_the_source_while_decoding_are_aligned():
    table = head_table(TASK, PAIRS, random_decode()).set_index("block")
    assert table.loc[["encoder", "decoder"], TRUTH].isna().all(axis=None)
    assert table.loc["cross", TRUTH].notna().all(axis=None)


def test_the_decoder_of_a_decoder_only_model_is_aligned():
    weights = torch.cat([one_hot_maps(PERFECT, keys=7), torch.zeros(1, 2, 1, 6, 6)], dim=-1)
    (scores,) = head_table(TASK, PAIRS, generation_result(TOKENS, decoder=weights)).itertuples()
    assert (scores.block, scores.mass_produced, scores.aer_produced, scores.mass_read) == ("decoder", 1, 0, 0)
    written = [1 / (5 + step) for step in (1, 2, 3)] + [1 / (7 + step) for step in (1, 2, 3, 4, 5)]
    assert scores.uniform_produced == pytest.approx(sum(written) / 8)


def test_the_encoder_of_an_encoder_only_model_is_aligned_from_the_row_after_bos():
    weights = one_hot_maps([[0, *row] for row in PERFECT], keys=7)  # row t + 1 belongs to step t
    (scores,) = head_table(TASK, PAIRS, generation_result(TOKENS, encoder=weights)).itertuples()
    assert (scores.block, scores.rows, scores.mass_produced, scores.aer_produced) == ("encoder", 12, 1, 0)
    assert scores.uniform_produced == pytest.approx((3 / 5 + 5 / 7) / 8)
    assert isnan(scores.mass_read)  # it reads no tokens
    stopped = generation_result(answer_tokens("3", "45454", width=6), encoder=weights)
    (fewer,) = score_heads(TASK, PAIRS, stopped)
    assert fewer.uniform_mass == pytest.approx((2 / 5 + 5 / 7) / 7)  # a 3, then EOS instead of a 2


def test_several_gold_columns_count_together():
    sort = Digits(DigitsConfig(transform="sort", min_length=2, max_length=5))
    cross = one_hot_maps([[1, 2, 3, 0, 0, 0], [5, 3, 1, 4, 2, 0]], keys=7)
    (scores,) = head_table(sort, PAIRS, generation_result(TOKENS, cross=cross)).itertuples()
    assert (scores.mass_produced, scores.aer_produced) == (1, 0)
    assert scores.uniform_produced == pytest.approx((3 / 5 + 9 / 7 + 4 / 7) / 8)


@pytest.mark.parametrize(("strays", "positional"), [(0, True), (1, True), (2, False)])
def test_a_head_at_one_offset_nine_times_in_ten_is_positional(strays, positional):
    previous = [[max(0, place - 1) for place in range(7)] for _ in range(2)]
    pairs, tokens = framed_pairs("12345", "12345"), answer_tokens("54321", "54321", width=6)
    previous[0][0] = previous[1][0] = 3  # BOS has nothing before it
    for place in range(2, 2 + strays):
        previous[0][place] = place
    weights = one_hot_maps([row[:6] for row in previous], keys=6)  # the decoder's first row does not count
    decoded = generation_result(tokens, decoder=weights, cross=torch.full((1, 2, 1, 6, 7), 1 / 7))
    scores = next(head_table(TASK, pairs, decoded).itertuples())
    assert (scores.rows, scores.offset) == (10, -1)
    assert scores.offset_fraction == pytest.approx(1 - strays / 10)
    assert scores.positional is positional


def test_the_nearest_head_is_found_within_the_layer():
    columns = [[[1, 1, 1]], [[2, 2, 2]], [[2, 2, 1]]]
    weights = torch.cat([one_hot_maps(each, keys=5) for each in columns], dim=2)
    table = head_table(TASK, framed_pairs("123"), generation_result(answer_tokens("321", width=3), cross=weights))
    assert table.nearest_head.tolist() == [3, 3, 2]
    assert table.distance.tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])


def test_a_single_head_has_no_nearest_and_an_empty_block_no_measures():
    decoded = generation_result(
        answer_tokens("", width=1), decoder=torch.ones(1, 1, 1, 1, 1), cross=torch.full((1, 1, 1, 1, 5), 0.2)
    )
    table = head_table(TASK, framed_pairs("123"), decoded).set_index("block")
    assert table.distance.isna().all()
    assert table.nearest_head.isna().all()
    assert table.rows.to_dict() == {"decoder": 0, "cross": 1}
    assert table.loc["decoder"].drop(["layer", "head", "links", "rows", "positional"]).isna().all()
    assert not table.positional.any()
    assert table.loc["cross", "mass_produced"] == pytest.approx(0.2)
    assert pd.isna(table.loc["cross", "mass_read"])


def test_permuted_heads_have_permuted_measures():
    decoded, order = random_decode(), [2, 0, 1]
    maps = {block: getattr(decoded.maps, block)[:, :, order] for block in ("encoder", "decoder", "cross")}
    before, after = head_table(TASK, PAIRS, decoded), head_table(TASK, PAIRS, generation_result(TOKENS, **maps))
    expected = pd.concat([rows.iloc[order] for _, rows in before.groupby(["block", "layer"], sort=False)])
    expected["nearest_head"] = expected["nearest_head"].map(lambda head: order.index(head - 1) + 1).astype("Int64")
    columns = [name for name in before.columns if name != "head"]
    assert_frame_equal(after[columns], expected[columns].reset_index(drop=True))


def test_measures_are_between_0_and_1():
    table = head_table(TASK, PAIRS, random_decode())
    names = [*TRUTH, "entropy", "offset_fraction", "confidence", "distance", "mass_bos", "mass_eos", "mass_pad"]
    assert (table[names].isna() | table[names].ge(0) & table[names].le(1)).all(axis=None)


# --- models that decode -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "preset", ["digits-reversal", "digits-reversal-gru", "digits-reversal-decoder-only", "masked-digits"]
)
def test_padding_and_chunks_change_nothing(preset, monkeypatch):
    preset = load_preset(preset).with_changes({"model.max_seq_len": 18})
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator().manual_seed(1)).eval()
    pairs = fixed_pairs(task, 12, split="test")
    alone = measure_heads(model, task, pairs)
    padded = head_table(task, pairs, generate(model, pairs.src, max_steps=18, need_weights=True))
    assert_frame_equal(alone[padded.columns], padded, atol=1e-4)
    monkeypatch.setattr(map_rows, "MAX_WEIGHTS", 1)  # one sequence at a time
    assert_frame_equal(alone, measure_heads(model, task, pairs), atol=1e-4)


MASKS = {
    "digits-reversal": [
        {"model.source_bos": False},
        {"model.source_eos": False},
        {"model.attention": "window", "model.attention_window": 2},
    ],
    "digits-reversal-decoder-only": [
        {"model.source_bos": False},
        {"model.source_eos": False, "model.target_bos": False},
    ],
}


@pytest.mark.parametrize(("preset", "changes"), [(name, each) for name, found in MASKS.items() for each in found])
@torch.no_grad()
def test_even_attention_scores_as_uniform_whatever_the_model_masks(preset: str, changes: dict):
    loaded = load_preset(preset).with_changes(changes)
    task = build_task(loaded.task)
    model = build_model(loaded.model, task, torch.Generator().manual_seed(0)).eval()
    for attention in model.attention.values():
        attention.w_q.weight.zero_()
        attention.w_q.bias.zero_()
    pairs = fixed_pairs(task, 20, split="test")
    table = measure_heads(model, task, pairs)
    assert table.entropy.tolist() == pytest.approx([1] * len(table))
    aligned = table.dropna(subset="mass_produced")
    assert len(aligned)
    for token in ("produced", "read"):
        assert aligned[f"mass_{token}"].tolist() == pytest.approx(aligned[f"uniform_{token}"].tolist(), abs=1e-6)
        assert aligned[f"aer_{token}"].tolist() == pytest.approx(aligned[f"uniform_aer_{token}"].tolist(), abs=1e-6)


@pytest.mark.parametrize("preset", ["digits-reversal", "sort-digits", "digits-reversal-gru"])
def test_an_untrained_model_scores_as_uniform_attention_would(preset):
    preset = load_preset(preset)
    task = build_task(preset.task)
    pairs, excess = fixed_pairs(task, 100, split="test"), []
    for seed in range(5):
        model = build_model(preset.model, task, torch.Generator().manual_seed(seed)).eval()
        table = head_table(task, pairs, generate(model, pairs.src, max_steps=11, need_weights=True))
        of_cross = table[table.block == "cross"]
        for token in ("produced", "read"):
            excess.append(of_cross[f"mass_{token}"] - of_cross[f"uniform_{token}"])
            assert of_cross[f"aer_{token}"].mean() > 0.6
    assert pd.concat(excess).abs().max() < 0.06
    assert abs(pd.concat(excess).mean()) < 0.015


def test_chunks_contain_every_pair_and_respect_the_memory_bound(tiny, monkeypatch):
    monkeypatch.setattr(map_rows, "MAX_WEIGHTS", 20_000)
    task = build_task(tiny.task)
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100  # it writes as much as it can
    pairs, seen = fixed_pairs(task, 60, split="test"), []
    for places, chunk in map_rows.recordable_chunks(model, pairs):
        maps = generate(model, chunk.src, max_steps=model.max_seq_len, need_weights=True).maps
        assert maps.decoder.shape[3] == model.max_seq_len
        assert maps.encoder.numel() + maps.decoder.numel() + maps.cross.numel() <= 20_000
        assert torch.equal(pairs.src[places, : chunk.src.shape[1]], chunk.src)
        assert (chunk.src != PAD_ID).all()
        seen += places.tolist()
    assert sorted(seen) == list(range(60))


def test_no_pairs_are_refused(tiny):
    task = build_task(tiny.task)
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="no sequences"):
        measure_heads(model, task, fixed_pairs(task, 5, split="test")[:0])


def test_measuring_does_not_change_the_model(tiny):
    task = build_task(tiny.task)
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure_heads(model, task, fixed_pairs(task, 5, split="test"))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
