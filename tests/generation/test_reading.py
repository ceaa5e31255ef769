"""A typed input as the model reads it: what the vocabulary does not have is named, and nothing is made of it."""

import pytest

from core.__main__ import main
from core.generation import GREEDY
from core.generation.reading import read_input
from core.generation.translation import translate
from core.runs import DEFAULT_ROOT, Runs
from core.storage.errors import InputError
from tests.serving import TRANSLATOR


@pytest.fixture(scope="module")
def translator():
    return Runs(DEFAULT_ROOT)[TRANSLATOR].trained()


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("I like snow.", ()),
        ("I like サクラ.", ("サ", "ク", "ラ")),
        ("snow 雪 snow 雪雨", ("雪", "雨")),
        ("a\tb", ()),  # white space is read as a byte and is no word
        ("👩‍🚀 is here", ("👩", "\u200d", "🚀")),
        ("I like\u200b snow\ufeff.", ("\u200b", "\ufeff")),
    ],
)
def test_characters_that_only_bytes_spell_are_named(translator, text, unknown):
    reading = read_input(translator.model, translator.task, text)
    assert reading.unknown == unknown
    shown = [f"U+{ord(each):04X}" if each in "\u200b\u200d\ufeff" else each for each in unknown]
    assert reading.note == (f"not in the vocabulary, read as bytes: {', '.join(shown)}" if unknown else "")
    assert translator.task.src_vocab.decode(reading.ids) == reading.symbols


def test_an_input_of_which_the_vocabulary_has_nothing_is_refused(translator):
    for text in ("サクラ", " サクラ 雪 "):
        with pytest.raises(InputError, match="vocabulary has nothing of this input: サ, ク, ラ"):
            translator.decode(text)
    results = list(translate(translator.model, translator.task, ["サクラ", "I like サクラ."], strategy=GREEDY))
    assert (results[0].output, results[0].note) == ("", "")
    assert "サ, ク, ラ" in results[0].problem
    assert results[1].output
    assert "サ, ク, ラ" in results[1].note


def test_a_long_list_is_cut(translator):
    with pytest.raises(InputError, match=r"い, う, え, お, か, き, く and 2 more$"):
        read_input(translator.model, translator.task, "あいうえおかきくけこ")


def test_spaces_at_the_ends_of_a_sentence_change_nothing(translator):
    assert read_input(translator.model, translator.task, "  I love you. ") == read_input(
        translator.model, translator.task, "I love you."
    )


def test_spaces_at_the_ends_change_no_explanation_and_no_forced_beginning(translator, capsys):
    printed = []
    for typed in ("I love you.", " I love you. "):
        assert main(["analyze", "--run", TRANSLATOR, "--why", typed, "--method", "parts"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    answers = [translator.decode("I love you.", prefix=prefix).output for prefix in ("Sie", " Sie ")]
    assert answers[0] == answers[1]
    assert answers[0][0] == "▁Sie"
