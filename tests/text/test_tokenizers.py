"""Tokenizers: splitting by characters, words and spaces."""

import pytest

from core.storage.errors import InputError
from core.text.tokenizers import PLAIN_KINDS, detokenize, tokenize
from core.text.validation import quote, validate_text


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        ("character", ["I", "t", "'", "s", " ", "1", ",", "5", "."]),
        ("word", ["It", "'", "s", "1", ",", "5", "."]),
        ("symbol", ["It's", "1,5."]),
    ],
)
def test_a_text_is_split_by_its_kind_of_token(kind, tokens):
    assert tokenize(" It's 1,5. ", kind) == tokens


def test_tokens_are_joined_with_spaces_except_for_characters():
    assert [detokenize(["a", "b"], kind) for kind in PLAIN_KINDS] == ["ab", "a b", "a b", "ab"]


def test_text_is_validated_by_type_length_and_characters():
    assert validate_text("name", "a\tb", max_length=3) == "a\tb"
    for value, message in (
        (5, "name must be text, not int"),
        ("abcd", "name has 4 characters; the maximum is 3"),
        ("a\0", r"name has the character U\+0000 at position 2, which is not allowed"),
        ("\ud800", r"U\+D800 at position 1"),
    ):
        with pytest.raises(InputError, match=message):
            validate_text("name", value, max_length=3)


def test_long_text_is_shortened_when_quoted():
    assert quote("a") == "'a'"
    assert quote("a" * 100) == repr("a" * 37 + "...")
