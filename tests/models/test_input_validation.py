"""Inputs that a model cannot read are refused with the tensor's name, what was given, and what was expected."""

import pytest
import torch

from core.generation import Beam, generate
from core.models.seq2seq import Seq2Seq
from core.storage.errors import InputError
from core.text.vocab import BOS_ID
from tests.support.scripted_models import decoder_only, encoder_only, gru, transformer

LONGEST = 16  # ids that each of these models reads
V = 13


@pytest.fixture(params=[transformer, decoder_only, encoder_only, gru], ids=lambda build: build.__name__)
def model(request) -> Seq2Seq:
    return request.param()


def ids(rows: int, length: int) -> torch.Tensor:
    return torch.full((rows, length), BOS_ID)


WRONG = [
    (ids(2, 5)[0], r"{} has shape \(5,\); token ids must be \(batch, length\)"),
    (ids(2, 5)[None], r"{} has shape \(1, 2, 5\); token ids must be \(batch, length\)"),
    (ids(2, 5).float(), r"{} has dtype torch.float32; token ids must be torch.int64"),
    (ids(2, 5).int(), r"{} has dtype torch.int32; token ids must be torch.int64"),
    (ids(2, LONGEST + 1), rf"{{}} has 17 tokens, special tokens included, more than max_seq_len={LONGEST}"),
    (ids(2, 5).index_fill(1, torch.tensor([3]), V), r"{} has token id 13; the 13 ids of its vocabulary start at 0"),
    (ids(2, 5).index_fill(1, torch.tensor([3]), -1), r"{} has token id -1; the 13 ids of its vocabulary start at 0"),
]
EVERY_MISTAKE = pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message[3:16] for _, message in WRONG])


@EVERY_MISTAKE
def test_a_wrong_source_is_named(model, wrong, message):
    for read in (
        model.encode,
        lambda src: model(src, ids(2, 4)),
        lambda src: generate(model, src, max_steps=3),
        lambda src: generate(model, src, max_steps=3, strategy=Beam(beam_size=2)),
    ):
        with pytest.raises(InputError, match=message.format("src")):
            read(wrong)


@EVERY_MISTAKE
def test_a_wrong_decoder_input_is_named(model, wrong, message):
    memory = model.encode(ids(2, 5))
    cache = model.decode(ids(2, 1), memory).cache
    with pytest.raises(InputError, match=message.format("tgt_in")):
        model(ids(2, 5), wrong)
    message = message.replace("17 tokens", "18 tokens")  # with the one in the cache
    with pytest.raises(InputError, match=message.format("tgt_in")):
        model.decode(wrong, memory, cache)


def test_decoder_input_needs_a_row_for_each_source(model):
    with pytest.raises(InputError, match="tgt_in has 3 rows; it must have 2, one for each row of src"):
        model(ids(2, 5), ids(3, 4))


def test_a_forced_token_outside_the_vocabulary_is_named(model):
    with pytest.raises(InputError, match="prefix has token id 99; the 13 ids"):
        generate(model, ids(2, 5), max_steps=3, prefix=[99, 5])


def test_each_side_has_its_own_vocabulary():
    model = transformer(vocab_size=5)
    model(ids(1, 3) + 11, ids(1, 3))
    with pytest.raises(InputError, match="tgt_in has token id 12; the 5 ids"):
        model(ids(1, 3), ids(1, 3) + 11)


def test_inputs_without_any_token_are_not_refused(model):
    assert model(ids(0, 5), ids(0, 4)).shape == (0, 4, V)


def test_ids_are_only_looked_at_on_the_cpu(model, monkeypatch):
    """To read a number from another device stops the program until that device is done."""
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: pytest.fail("item() waits for the device"))
    assert model.to("meta")(ids(2, 5).to("meta"), ids(2, 4).to("meta")).shape == (2, 4, V)
