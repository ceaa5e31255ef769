"""An input of several sentences is translated sentence by sentence, and each sentence can be looked into."""

from pathlib import Path

import pytest

from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.access import VisitorRuns
from core.tasks.sequences import Digits
from tests.serving import SHIPPED
from ui import page
from ui.forms import strategy_form
from ui.interventions import NO_INTERVENTIONS, InterventionSpec
from ui.tabs import decode

STRATEGY = ("greedy", "", *strategy_form.default_values())
MESSAGE, TRANSLATIONS, ANSWER = "message", "translations", "answer"
TEXT = "4 8 2 9!\n\nx\n1 2 3"


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> VisitorRuns:
    """The shipped run, as if its digits were text to be translated."""
    split = Digits.tokenize
    monkeypatch.setattr(Digits, "bleu_tokenizer", "13a")
    monkeypatch.setattr(Digits, "tokenize", lambda task, text: split(task, text.replace("!", "")))
    return VisitorRuns(Runs(Path(DEFAULT_ROOT)))


def test_every_sentence_is_translated_and_the_first_readable_one_is_shown(mine):
    values = page._decode_as_asked(mine, SHIPPED, "x\n" + TEXT, NO_INTERVENTIONS, *STRATEGY)
    shown = values[TRANSLATIONS]
    assert shown["text"] == "9 2 8 4\n\n\n3 2 1"
    assert [each["source"] for each in shown["sentences"]] == ["x", "4 8 2 9!", "x", "1 2 3"]
    assert [each["output"] for each in shown["sentences"]] == ["", "9 2 8 4", "", "3 2 1"]
    assert "'x' at position 1" in shown["sentences"][0]["problem"]
    assert values[ANSWER]["input"] == ["4", "8", "2", "9"]
    assert "those of “4 8 2 9!”" in values[MESSAGE]["text"]


def test_one_sentence_is_decoded_as_before(mine):
    values = page._decode_as_asked(mine, SHIPPED, "4 8 2 9!", NO_INTERVENTIONS, *STRATEGY)
    assert values[TRANSLATIONS] is None
    assert values[ANSWER]["input"] == ["4", "8", "2", "9"]


def test_the_input_of_a_task_that_does_not_translate_is_not_split():
    mine = VisitorRuns(Runs(Path(DEFAULT_ROOT)))
    values = page._decode_as_asked(mine, SHIPPED, "4 8\n2 9", NO_INTERVENTIONS, *STRATEGY)
    assert values[TRANSLATIONS] is None
    assert values[ANSWER]["input"] == ["4", "8", "2", "9"]


def test_the_words_of_a_sentence_keep_the_translations(mine):
    for spec in (NO_INTERVENTIONS, InterventionSpec(SHIPPED, ("cross.1.1",))):
        values = page._decode_part(mine, SHIPPED, "1 2 3", spec, *STRATEGY)
        assert TRANSLATIONS not in values
        assert values[ANSWER]["input"] == ["1", "2", "3"]


def test_interventions_apply_to_all_sentences(mine):
    spec = InterventionSpec(SHIPPED, ("cross",))
    plain = page._decode_part(mine, SHIPPED, TEXT, NO_INTERVENTIONS, *STRATEGY)[TRANSLATIONS]
    ablated = page._decode_part(mine, SHIPPED, TEXT, spec, *STRATEGY)[TRANSLATIONS]
    alone = page._decode_part(mine, SHIPPED, "1 2 3", spec, *STRATEGY)[ANSWER]
    assert ablated["sentences"][-1]["output"] == " ".join(alone["output"]) != plain["sentences"][-1]["output"]


def test_too_many_sentences_and_only_refused_ones_are_problems(mine):
    for text, message in (("1\n" * (decode.MAX_SENTENCES + 1), "has 51 sentences; the maximum is 50"), ("x\ny", "'x'")):
        values = page._decode_as_asked(mine, SHIPPED, text, NO_INTERVENTIONS, *STRATEGY)
        assert message in values[MESSAGE]["text"]
        assert values[TRANSLATIONS] is None
        assert decode.readable_input(mine[SHIPPED], text)[0] == "4 8 2 9"
    assert decode.readable_input(mine[SHIPPED], TEXT) == (TEXT, "")
