"""Subwords: learned reproducibly, lossless on every text, stored as checked JSON, equal to SentencePiece's model."""

import io
import json
from functools import cache

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from core.storage.errors import InputError
from core.text.subwords import NUM_BYTES, SubwordError, SubwordTokenizer, SubwordTokenizers

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Öffnen Sie das Dokument 2024 und drücken Sie die Eingabetaste.",
    "Press Enter to open the document, then press Enter again.",
] * 5
# Neither unpaired surrogates nor the mark of spaces: both are refused.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581\0"), max_size=200)


@cache
def learned(algorithm: str) -> SubwordTokenizer:
    return SubwordTokenizer.learn(TEXTS, algorithm=algorithm, vocabulary_size=400)


@pytest.fixture(params=["bpe", "unigram"], scope="module")
def tokenizer(request: pytest.FixtureRequest) -> SubwordTokenizer:
    return learned(request.param)


@settings(max_examples=500, deadline=None)
@given(text=ANY_TEXT)
def test_every_text_is_restored(tokenizer: SubwordTokenizer, text: str):
    pieces = tokenizer.tokenize(text)
    assert set(pieces) <= set(tokenizer.pieces)
    assert tokenizer.detokenize(pieces) == text


@pytest.mark.parametrize(
    "text",
    [
        "  two  spaces\tand a tab\n",
        "👩‍👩‍👧 emoji",
        "עברית וערבית عربي",
        "e\u0301 combining",
        "nul \0 nul",
        "",
        "ß" * 1_000_000,
    ],
    ids=["spaces", "emoji", "right to left", "combining", "NUL", "empty", "long"],
)
def test_hostile_text_is_restored(tokenizer: SubwordTokenizer, text: str):
    assert tokenizer.detokenize(tokenizer.tokenize(text)) == text


@pytest.mark.parametrize("text", ["a ▁ mark", "\ud800 is the first half of a pair", "\udfff the last"])
def test_text_that_could_not_be_restored_is_refused(tokenizer: SubwordTokenizer, text: str):
    with pytest.raises(InputError, match="input has"):
        tokenizer.tokenize(text)


def test_frequent_words_are_one_piece_and_digits_stand_alone(tokenizer: SubwordTokenizer):
    assert "▁the" in tokenizer.tokenize("over the dog")
    assert tokenizer.tokenize("in 2024")[-4:] == ["2", "0", "2", "4"]


def test_learning_is_reproducible(tokenizer: SubwordTokenizer):
    again = SubwordTokenizer.learn(iter(TEXTS), algorithm=tokenizer.algorithm, vocabulary_size=400)
    assert (again.pieces, again.scores) == (tokenizer.pieces, tokenizer.scores)


def test_a_small_text_has_a_small_vocabulary():
    assert len(SubwordTokenizer.learn(TEXTS, algorithm="bpe", vocabulary_size=16_000).pieces) < 1_000


@pytest.mark.parametrize(("texts", "size"), [([], 400), ([chr(0x4E00 + index) for index in range(3_000)], 400)])
def test_what_cannot_be_learned_is_refused(texts: list[str], size: int):
    with pytest.raises(SubwordError, match="vocabulary_size=400 cannot be learned"):
        SubwordTokenizer.learn(texts, algorithm="bpe", vocabulary_size=size)


def test_the_model_file_is_sentencepieces_own():
    """Encoding with the rewritten model equals encoding with the model that SentencePiece wrote."""
    model = io.BytesIO()
    options = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=401, model_type="bpe", minloglevel=2,
        split_digits=True, character_coverage=0.9999, bos_id=-1, eos_id=-1, **options,
    )  # fmt: skip
    own = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    rewritten = sentencepiece.SentencePieceProcessor(
        model_proto=SubwordTokenizer.learn(TEXTS, algorithm="bpe", vocabulary_size=400).model_proto()
    )
    for text in [*TEXTS, "Unseen Wörter: 123 😀", "  spaces "]:
        assert rewritten.encode(text, out_type=str) == own.encode(text, out_type=str)
        assert rewritten.encode(text) == own.encode(text)


def test_json_restores_the_tokenizers(tokenizer: SubwordTokenizer):
    for stored in (
        SubwordTokenizers(joint=True, source=tokenizer, target=None),
        SubwordTokenizers(joint=False, source=tokenizer, target=tokenizer),
    ):
        restored = SubwordTokenizers.from_json(stored.model_dump_json(), "the file")
        assert restored == stored
        assert restored.sides[1].tokenize(TEXTS[0]) == tokenizer.tokenize(TEXTS[0])


def _changed(change) -> str:
    tokenizers = SubwordTokenizers(joint=True, source=learned("bpe"), target=None)
    document = json.loads(tokenizers.model_dump_json())
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(format="attention-lab-subwords-9"),
        lambda document: document.update(joint=False),
        lambda document: document.update(code="x"),
        lambda document: document["source"]["pieces"].pop(),
        lambda document: document["source"]["pieces"].__setitem__(0, "a"),
        lambda document: document["source"]["pieces"].__setitem__(-1, document["source"]["pieces"][NUM_BYTES]),
        lambda document: document["source"]["pieces"].__setitem__(-1, ""),
        lambda document: document["source"]["pieces"].__setitem__(-1, "x" * 1_000),
        lambda document: document["source"]["pieces"].__setitem__(-1, "\ud800"),
        lambda document: document["source"]["scores"].__setitem__(-1, float("nan")),
        lambda document: document["source"].update(algorithm="word"),
        lambda document: document["source"].update(pieces=["a"] * 100_000, scores=[0.0] * 100_000),
    ],
)
def test_damaged_json_is_refused(change):
    with pytest.raises(SubwordError, match=r"^the file is not valid"):
        SubwordTokenizers.from_json(_changed(change), "the file")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_what_is_no_json_is_refused(content: bytes):
    with pytest.raises(SubwordError, match=r"^the file is not valid"):
        SubwordTokenizers.from_json(content, "the file")
