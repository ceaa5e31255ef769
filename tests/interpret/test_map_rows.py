"""Rows of attention maps: which are valid, which keys they see, and at which offsets."""

import torch

from core.config.tasks import DigitsConfig
from core.interpret.map_rows import map_rows
from core.tasks.sequences import Digits
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.handmade_results import answer_tokens, framed_pairs, generation_result

TASK = Digits(DigitsConfig(transform="reverse", min_length=1, max_length=5))
PAIRS = framed_pairs("12", "3456")  # 4 and 6 tokens, BOS and EOS in
TOKENS = answer_tokens("21", "6543", width=5)


def rows(block: str, tokens: torch.Tensor = TOKENS, *, heads: int = 2, decoder_only: bool = False):
    """The rows of a block in a decode with distinct weights, and their maps."""
    steps, source = tokens.shape[1], PAIRS.src.shape[1]
    sizes = {"encoder": (source, source), "decoder": (steps, steps), "cross": (steps, source)}
    if decoder_only:
        sizes = {"decoder": (steps, source + steps)}
    maps = {name: torch.rand(3, 2, heads, *size) for name, size in sizes.items()}
    return map_rows(block, TASK, PAIRS, generation_result(tokens, **maps)), maps.get(block)


def places(found) -> list[tuple[int, int]]:
    return list(zip(found.sequence.tolist(), found.index.tolist(), strict=True))


def test_a_missing_block_has_no_rows():
    assert rows("encoder", decoder_only=True)[0] is None
    assert rows("cross", decoder_only=True)[0] is None


def test_every_row_equals_the_row_of_its_map():
    for block in ("encoder", "decoder", "cross"):
        found, weights = rows(block)
        assert found.weights.shape[:2] == (3, 2)
        for number, (sequence, index) in enumerate(places(found)):
            assert torch.equal(found.weights[:, :, number], weights[:, sequence, :, index])


def test_encoder_rows_and_keys_are_the_source_without_pad():
    found, _ = rows("encoder")
    assert places(found) == [(0, place) for place in range(4)] + [(1, place) for place in range(6)]
    assert found.visible.sum(dim=1).tolist() == [4] * 4 + [6] * 6
    assert not found.visible[:4, 4:].any()
    assert torch.equal(found.keys, PAIRS.src[found.sequence])
    assert found.offsets[1].tolist() == [-1, 0, 1, 2, 3, 4]
    assert found.produced is found.read is None


def test_cross_rows_are_the_generated_steps():
    found, _ = rows("cross")
    assert places(found) == [(0, step) for step in range(3)] + [(1, step) for step in range(5)]
    assert found.visible.sum(dim=1).tolist() == [4] * 3 + [6] * 5
    assert found.offsets[2].tolist() == [-2, -1, 0, 1, 2, 3]


def test_gold_alignment_is_of_the_produced_or_the_read_token():
    found, _ = rows("cross")
    columns = [[cells.nonzero().flatten().tolist() for cells in each] for each in (found.produced, found.read)]
    assert columns[0] == [[2], [1], [], [4], [3], [2], [1], []]
    assert columns[1] == [[], [2], [1], [], [4], [3], [2], [1]]


def test_decoder_rows_see_the_tokens_read_so_far_and_the_first_does_not_count():
    found, _ = rows("decoder")
    assert places(found) == [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (1, 4)]
    assert found.visible.sum(dim=1).tolist() == [2, 3, 2, 3, 4, 5]
    assert found.visible[1].tolist() == [True, True, True, False, False]
    assert found.keys[2].tolist() == [BOS_ID, 9, 8, 7, 6]
    assert found.offsets[1].tolist() == [-2, -1, 0, 1, 2]
    assert found.produced is found.read is None


def test_positions_of_a_decoder_only_model_skip_the_pad_in_between():
    found, _ = rows("decoder", decoder_only=True)
    assert places(found) == [(0, step) for step in range(3)] + [(1, step) for step in range(5)]
    assert found.visible.sum(dim=1).tolist() == [5, 6, 7, 7, 8, 9, 10, 11]
    assert found.visible[1].tolist() == [True] * 4 + [False] * 2 + [True] * 2 + [False] * 3
    assert found.keys[1].tolist() == [BOS_ID, 4, 5, EOS_ID, PAD_ID, PAD_ID, BOS_ID, 5, 4, EOS_ID, PAD_ID]
    assert found.offsets[1, [0, 3, 6, 7]].tolist() == [-5, -2, -1, 0]  # BOS, EOS, BOS of the target, itself
    assert found.produced.shape[1] == found.read.shape[1] == 6
    assert found.produced[0].nonzero().flatten().tolist() == [2]


def test_answers_without_eos_count_to_their_last_step():
    tokens = torch.tensor([[5, PAD_ID, 4, PAD_ID, 4], [9, 8, 7, 6, EOS_ID]])  # a model may write PAD
    found, _ = rows("cross", tokens)
    assert places(found) == [(row, step) for row in range(2) for step in range(5)]
    assert not found.produced[2:5].any()
