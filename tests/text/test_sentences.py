"""Splitting text into sentences: nothing is lost, and abbreviations and numbers do not end a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.text.sentences import split_sentences


@given(st.text() | st.text(alphabet="aB1.!?…:\"') \n\t"))
def test_the_sentences_joined_are_the_text(text):
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentence.strip() for sentence in sentences[:-1])


SPLIT = (
    ["Hello there. ", "How are you? ", "Fine… ", "Yes! ", "As follows: ", "Done."],
    ['He said "Stop!" and ran. ', "“Go.” ", "(She went.) ", "Then he did."],
    ["Wait... ", "What?! ", "It ... works."],
    ["Use e.g. Calc for it. ", "See z. B. Das hier. ", "Ask Dr. Smith or J. Doe."],
    ["Version 3.5 is out. ", "See No. 4 and Abb. 12, too. ", "No. ", "I will not."],
    ["Am 3. Mai 2020. ", "Es gibt ca. Zehn Regeln bzw. Hinweise."],
    ["A heading\n\n", "a line. \n", "another line\n"],
    ["  Leading space. ", "Then this.  "],
    ["Is this one sentence? ", "„Ja“, sagte er."],
    ["Öffnen Sie die Datei. ", "Über alles andere: ", "Übersicht."],
)


@pytest.mark.parametrize("sentences", SPLIT)
def test_a_text_is_split_at_these_places(sentences):
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences("") == []
