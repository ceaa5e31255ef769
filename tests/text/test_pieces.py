"""Subword pieces: names, words and shared words, compared with plain loops and with SentencePiece."""

import pytest

from core.tasks.translation import corpus
from core.text.pieces import join_pieces, piece_name, shared_words, word_groups, word_names
from core.text.subwords import SubwordTokenizer

TEXTS = [
    "Press Ctrl+F5, or choose Insert - Break.",
    "In LibreOffice 7.4 (2022), HTML and ODF files.",
    "a_b c  d\tπ→ 🙂 …",
    "“Quoted”, isn't it?",
]


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    texts = [text for pair in corpus()[0][:400] for text in pair]
    return SubwordTokenizer.learn(texts, algorithm="bpe", vocabulary_size=500)


def test_a_piece_is_named_as_people_read_it():
    names = {"▁Haus": "Haus", "tür": "·tür", ".": "·.", "▁": "␣", "▁▁": "␣", "<0xF0>": "<0xF0>", "<EOS>": "<EOS>"}
    assert {piece: piece_name(piece) for piece in names} == names


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_joined_as_their_tokenizer_joins_them(tokenizer, text):
    pieces = tokenizer.tokenize(text)
    assert join_pieces(pieces) == tokenizer.detokenize(pieces) == text
    assert join_pieces(["<0xF0>"]) == tokenizer.detokenize(["<0xF0>"]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", TEXTS)
def test_every_piece_is_in_one_word(tokenizer, text):
    pieces = ["<BOS>", *tokenizer.tokenize(text), "<EOS>"]
    words = word_groups(pieces)
    assert [position for word in words for position in word] == list(range(len(pieces)))
    assert words[0] == range(1)
    assert words[-1] == range(len(pieces) - 1, len(pieces))


@pytest.mark.parametrize(
    ("pieces", "names"),
    [
        ("▁Press ▁C trl + F 5 , ▁or", "Press Ctrl + F5 , or"),
        ("▁L ibre Office ▁7 . 4 ▁( 2 0 2 2 ) ,", "LibreOffice 7 . 4 ( 2022 ) ,"),
        ("<BOS> ▁a <EOS>", "<BOS> a <EOS>"),
        ("▁x <0xC3> <0xA4> y .", "xäy ."),
        ("▁ ä h ▁ .", "äh ."),
        ("▁ ▁ x", "␣ x"),
        ("net ▁( s )", "net ( s )"),
        ("", ""),
    ],
)
def test_words_are_split_at_spaces_and_at_punctuation(pieces, names):
    assert word_names(pieces.split()) == names.split()


def test_identifiers_that_occur_once_on_each_side_are_aligned_piece_by_piece():
    source = ["▁In", "▁L", "ibre", "Office", "▁2", "0", ",", "▁press", "▁F", "5", "▁or", "▁OK", "▁OK", "▁was"]
    output = ["▁F", "5", "▁in", "▁Libre", "Office", "▁was", ",", "▁2", "0", "▁OK", "▁HTML"]
    assert shared_words(source, output) == [[8, 9]] * 2 + [[]] + [[1, 2, 3]] * 2 + [[], []] + [[4, 5]] * 2 + [[], []]


def test_words_of_everyday_language_are_not_aligned():
    """They may be other words that happen to be written alike, such as the German article and the English verb."""
    assert shared_words(["▁Die", "▁in", "▁Text", "<EOS>"], ["▁Die", "▁in", "▁Text", "<EOS>"]) == [[], [], [2], []]
