"""Numbers in words: translated as by num2words, joined to text, tokenized from digits and from words."""

import sys
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError, load_preset
from core.config.tasks import LONGEST_NUMBER_WORDS, NumberWordsConfig
from core.storage.errors import InputError, LabError
from core.tasks import build_task, fixed_pairs
from core.tasks.number_words import CODES, NumberWords, words_of
from core.text.vocab import EOS_ID

num2words = pytest.importorskip("num2words").num2words
SPLITS = ("train", "validation", "test")
LANGUAGES = ("french", "german", "spanish")


def task_of(language: str = "french", max_number: int = 9_999) -> NumberWords:
    return build_task(NumberWordsConfig(language=language, max_number=max_number))


FRENCH, GERMAN = task_of(), task_of("german")


def drawn(task: NumberWords, count: int, split: str, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    """Draw pairs of source and target tokens."""
    batch = task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    return [
        (task.src_vocab.decode(src[1 : src.index(EOS_ID)]), task.tgt_vocab.decode(tgt[1 : tgt.index(EOS_ID)]))
        for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True)
    ]


@cache
def numbers_by_words() -> dict[tuple[str, ...], int]:
    """The numbers up to 9,999 by their English words."""
    return {words_of(number, "english"): number for number in range(10_000)}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("split", SPLITS)
def test_samples_have_correct_translations(language, split):
    task = task_of(language)
    for source, target in drawn(task, 60, split):
        assert task.answer_text(target) == num2words(numbers_by_words()[tuple(source)], lang=CODES[language])
        assert task.answer(source) == target


@pytest.mark.parametrize("language", LANGUAGES)
@given(number=st.integers(0, 999_999))
def test_numbers_in_digits_and_words_give_the_same_tokens(language, number):
    task = task_of(language, 999_999)
    source = task.tokenize(str(number))
    assert source == task.tokenize(num2words(number)) == task.tokenize(" ".join(source))
    answer = task.answer(source)
    assert task.answer_text(answer) == num2words(number, lang=CODES[language])
    assert task.src_vocab.encode(source)
    assert task.tgt_vocab.encode(answer)
    assert task.gold_alignment(source) == [[] for _ in answer]


@pytest.mark.parametrize("language", ["english", *LANGUAGES])
def test_longest_numbers_have_the_configured_length(language):
    longest = LONGEST_NUMBER_WORDS[language]
    for digits, numbers in enumerate((range(10), range(10, 100), range(100, 1_000)), start=1):
        assert max(len(words_of(number, language)) for number in numbers) == longest[digits - 1]
    for digits, step in ((4, 7), (5, 97), (6, 997)):
        longest_found = max(len(words_of(number, language)) for number in range(10 ** (digits - 1), 10**digits, step))
        assert longest_found <= longest[digits - 4] + 1 + longest[2]


@pytest.mark.parametrize("max_number", [999, 1_000, 9_999, 20_500, 999_999])
def test_pairs_fit_and_number_of_digits_is_uniform(max_number):
    task = task_of("german", max_number)
    batch = task.sample(600, split="train", generator=torch.Generator().manual_seed(0))
    section = NumberWordsConfig(language="german", max_number=max_number)
    assert batch.src.shape == (600, section.longest_source + 2)
    assert batch.tgt.shape == (600, section.longest_answer + 2)
    with_thousand = (batch.src == task.src_vocab.encode(["thousand"])[0]).any(dim=1) if max_number >= 1_000 else None
    if with_thousand is not None:
        digits = len(str(max_number))
        assert with_thousand.float().mean().item() == pytest.approx((digits - 3) / digits, abs=0.15)


def test_no_number_is_in_two_splits():
    seen = {split: {tuple(source) for source, _ in drawn(FRENCH, 1_500, split)} for split in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not seen[one] & seen[other]


def test_presets_train_on_1000_pairs():
    for language in ("french", "german"):
        preset = load_preset(f"number-words-{language}")
        assert preset.training.training_sequences == 1_000
        assert len(fixed_pairs(build_task(preset.task), 1_000, split="train")) == 1_000


def test_source_and_target_have_separate_vocabularies():
    assert FRENCH.src_vocab.symbols != FRENCH.tgt_vocab.symbols
    assert "hundred" in FRENCH.src_vocab.symbols
    assert {"cent", "-vingt", "vingt"} <= set(FRENCH.tgt_vocab.symbols)
    assert {"ein", "##hundert", "##und", "zwanzig"} <= set(GERMAN.tgt_vocab.symbols)


@pytest.mark.parametrize(
    ("task", "tokens", "text"),
    [
        (FRENCH, ["quatre", "-vingt", "-dix", "-neuf"], "quatre-vingt-dix-neuf"),
        (FRENCH, ["vingt", "et", "un"], "vingt et un"),
        (FRENCH, ["-vingt"], "-vingt"),
        (GERMAN, ["vier", "##tausend", "##acht"], "viertausendacht"),
        (GERMAN, ["vier", "acht"], "vier acht"),
        (GERMAN, [], ""),
    ],
)
def test_answer_text_joins_tokens(task, tokens, text):
    assert task.answer_text(tokens) == text


@pytest.mark.parametrize(
    "text",
    [
        "4829",
        "4,829",
        " 04829 ",
        "four thousand, eight hundred and twenty-nine",
        "Four thousand eight hundred twenty nine",
        "four thousand and eight hundred twenty-nine",
    ],
)
def test_numbers_may_be_typed_in_digits_or_words(text):
    words = ["four", "thousand", "eight", "hundred", "and", "twenty", "nine"]
    assert FRENCH.tokenize(text) == words
    assert FRENCH.answer_text(FRENCH.answer(words)) == "quatre mille huit cent vingt-neuf"


RULE = "must be a whole number from 0 to 9,999, in digits or in English words"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "input is empty; an example is: 71"),
        ("10000", f"input='10000' {RULE}"),
        ("ten thousand", f"input='ten thousand' {RULE}"),
        ("9" * 2_000, RULE),
        ("9" * 2_001, "input has 2001 characters; the maximum is 2000"),
        ("-5", f"input='-5' {RULE}"),
        ("1.5", RULE),
        ("²", RULE),
        ("seven eleven", RULE),
        ("hundred", RULE),
        ("and", RULE),
        ("thousand hundred", RULE),
        ("deux cents", RULE),
        ("four <EOS>", RULE),
    ],
    ids=lambda value: value[:12],
)
def test_invalid_numbers_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        FRENCH.tokenize(text)


def test_invalid_settings_are_refused():
    preset = load_preset("number-words-french")
    with pytest.raises(ConfigError, match=r"task\.max_number=999999 with BOS and EOS needs 15 positions, more than"):
        preset.with_changes({"task.max_number": 999_999, "model.max_seq_len": 14})
    with pytest.raises(ConfigError, match=r"task\.language='latin' should be 'french', 'german' or 'spanish'"):
        preset.with_changes({"task.language": "latin"})


def test_missing_num2words_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "num2words", None)
    words_of.cache_clear()
    with pytest.raises(LabError, match="translating numbers needs the package num2words: pip install num2words"):
        words_of(7, "french")
