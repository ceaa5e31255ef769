"""Vocab: tokens to ids and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.storage.errors import InputError
from core.text.vocab import BOS, BOS_ID, EOS, EOS_ID, PAD, PAD_ID, UNK, UNK_ID, Vocab


def test_special_tokens_come_first_at_their_ids():
    vocab = Vocab("0123456789")
    assert len(vocab) == 13
    assert vocab.tokens[:3] == (PAD, BOS, EOS)
    assert (PAD_ID, BOS_ID, EOS_ID) == (0, 1, 2)
    assert vocab.first_symbol_id == 3
    assert vocab.encode(["0", "9"]) == [3, 12]


def test_a_vocabulary_with_unk_has_one_more_token():
    vocab = Vocab("ab", has_unk=True)
    assert vocab.tokens == (PAD, BOS, EOS, UNK, "a", "b")
    assert vocab.encode(["a", "z", UNK, BOS, "b"]) == [4, UNK_ID, UNK_ID, UNK_ID, 5]


@given(symbols=st.lists(st.sampled_from("0123456789"), max_size=30))
def test_decoding_undoes_encoding(symbols):
    vocab = Vocab("0123456789")
    assert vocab.decode(vocab.encode(symbols)) == symbols


@pytest.mark.parametrize("token", ["x", "", PAD, BOS, EOS, UNK, "10"])
def test_an_unknown_or_special_token_is_refused_with_its_position(token):
    with pytest.raises(InputError, match=f"{token!r} at position 2 is not one of 0 1 2 3"):
        Vocab("0123456789").encode(["1", token])


def test_messages_shorten_long_tokens_and_vocabularies():
    with pytest.raises(InputError) as caught:
        Vocab([f"w{number}" for number in range(10_000)]).encode(["x" * 10_000])
    assert len(str(caught.value)) < 200
    assert "10000 in all" in str(caught.value)


@pytest.mark.parametrize("symbols", [["a", "a"], ["a", PAD]])
def test_duplicate_symbols_are_refused(symbols):
    with pytest.raises(ValueError, match="must differ"):
        Vocab(symbols)
