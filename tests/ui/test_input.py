"""The input: replaced where the new run's task cannot read it, and kept while something else is being typed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.config import load_preset
from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from core.server.access import VisitorRuns
from tests.serving import SHIPPED
from ui import page
from ui.forms import strategy_form
from ui.interventions import NO_INTERVENTIONS
from ui.page import DecodeRequest
from ui.tabs import decode

EXAMPLE = "4 8 2 9"
TRANSLATOR = "translate-en-de-shipped"
STRATEGY = ("greedy", "", *strategy_form.default_values())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The shipped run, which has 64 positions, and runs of a task with words and of one with short inputs."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    for name, preset in (("words", "words-reversal-gru"), ("short", "tiny")):
        RunFolder.create(root, load_preset(preset), name=name, status="stopped")
    return Runs(root)


# ---- a new current run


@pytest.mark.parametrize("text", ["4 8 2 9", "4829", "1", "1" * 62])
def test_an_input_that_the_task_can_read_is_kept(lab: Runs, text: str):
    assert decode.readable_input(lab[SHIPPED], text) == (text, "")


@pytest.mark.parametrize("text", ["4 x", "1" * 63, "1 " * 5_000, "\ud800", "a\x00b"])
def test_another_input_becomes_an_example_and_is_named(lab: Runs, text: str):
    shown, note = decode.readable_input(lab[SHIPPED], text)
    assert shown == EXAMPLE
    assert text.strip()[:20] in note
    assert "is not an input of digits-reversal" in note
    assert len(note) < 300


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_input_becomes_an_example_without_a_word(lab: Runs, text: str):
    assert decode.readable_input(lab[SHIPPED], text) == (EXAMPLE, "")


def test_words_that_a_task_does_not_know_become_an_example(lab: Runs):
    mine = VisitorRuns(lab)
    example = decode.examples_of(mine["words"])[0][0]
    for unknown in ("qwerty zzz", "zzz"):
        shown, note = decode.readable_input(mine["words"], unknown)
        assert (shown, unknown in note) == (example, True)
    known = example.split()[0] + " zzz"
    assert decode.readable_input(mine["words"], known) == (known, "")  # one known word is enough to decode


def test_the_note_stands_before_the_message_of_the_decode(lab: Runs):
    updates = page._decode_again(VisitorRuns(lab), None, SHIPPED, "three hundred", NO_INTERVENTIONS, *STRATEGY)
    text = updates["text"]
    assert text == EXAMPLE
    message = updates["message"]["text"]
    assert message.startswith("“three hundred” is not an input of ")
    assert f"training steps). Its task: {lab[SHIPPED].preset.task.summary}" in message
    assert updates["current_decode"].inspection.output == list("9284")


def test_a_note_does_not_hide_why_the_decode_failed(lab: Runs):
    updates = page._decode_again(VisitorRuns(lab), None, "short", "three hundred", NO_INTERVENTIONS, *STRATEGY)
    assert updates["current_decode"] is None
    assert "no weights yet" in updates["message"]["text"]


def test_without_a_run_the_input_is_kept(lab: Runs):
    assert "text" not in page._decode_again(VisitorRuns(lab), None, None, "anything", NO_INTERVENTIONS, *STRATEGY)


def test_a_readable_input_is_not_written_again_because_another_may_be_typed_by_then(lab: Runs):
    updates = page._decode_again(VisitorRuns(lab), None, SHIPPED, "1 2 3", NO_INTERVENTIONS, *STRATEGY)
    assert "text" not in updates
    assert updates["current_decode"].inspection.output == list("321")


# ---- new weights


def test_new_weights_decode_what_was_asked_for_and_not_what_is_being_typed(lab: Runs):
    mine = VisitorRuns(lab)
    asked = page._decode(mine, SHIPPED, EXAMPLE, NO_INTERVENTIONS, *STRATEGY)
    requested = asked["requested"]
    assert requested == DecodeRequest(SHIPPED, EXAMPLE, STRATEGY)
    typing = ("beam", "7", *strategy_form.default_values())
    again = page._decode_again(mine, requested, SHIPPED, "1 2 3 4 5", NO_INTERVENTIONS, *typing)
    assert again["current_decode"].inspection.sources == asked["current_decode"].inspection.sources
    assert "requested" not in again  # a request made during the decode is kept
    assert again["address"] == asked["address"]  # the address too


def test_a_request_of_another_run_is_not_repeated(lab: Runs):
    requested = DecodeRequest("words", "one", STRATEGY)
    again = page._decode_again(VisitorRuns(lab), requested, SHIPPED, "1 2 3", NO_INTERVENTIONS, *STRATEGY)
    assert again["refreshed"] == DecodeRequest(SHIPPED, "1 2 3", STRATEGY)
    assert "requested" not in again
    first = page._decode_again(VisitorRuns(lab), None, SHIPPED, "1 2 3", NO_INTERVENTIONS, *STRATEGY)
    assert first["current_decode"].inspection.output == list("321")


def test_what_is_requested_while_a_run_opens_is_decoded_after_it(lab: Runs):
    mine = VisitorRuns(lab)
    opened = page._decode_again(mine, None, SHIPPED, "1 2 3", NO_INTERVENTIONS, *STRATEGY)
    assert "requested" not in opened
    refreshed, meanwhile = opened["refreshed"], DecodeRequest(SHIPPED, EXAMPLE, STRATEGY)

    def caught_up(requested: DecodeRequest | None, run: str = SHIPPED) -> dict:
        return page._decode_requested_meanwhile(mine, refreshed, requested, run, "4 5", NO_INTERVENTIONS, *STRATEGY)

    assert caught_up(meanwhile)["current_decode"].inspection.output == list("9284")
    assert caught_up(None) == caught_up(DecodeRequest("words", "one", STRATEGY)) == {"requested": refreshed}
    assert caught_up(refreshed) == caught_up(meanwhile, run="words") == {}


# ---- what Look inside says


@pytest.mark.parametrize(("text", "part"), [("1" * 70, "at most 64"), ("4 x", "'x' at position 2"), ("", "empty")])
def test_look_inside_says_why_there_are_no_maps(lab: Runs, text: str, part: str):
    viewer = page._decode(VisitorRuns(lab), SHIPPED, text, NO_INTERVENTIONS, *STRATEGY)["viewer"]
    assert viewer["decode"] is None
    assert part in viewer["problem"]
    shown = page._decode(VisitorRuns(lab), SHIPPED, EXAMPLE, NO_INTERVENTIONS, *STRATEGY)["viewer"]
    assert not shown.get("problem")


@pytest.fixture(scope="module")
def translating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisitorRuns]:
    """A lab with the shipped run that translates."""
    root = tmp_path_factory.mktemp("translating")
    shutil.copytree(DEFAULT_ROOT / TRANSLATOR, root / TRANSLATOR)
    runs = Runs(root)
    yield VisitorRuns(runs)
    runs.close()


def test_digits_of_another_task_become_a_sentence_though_subwords_could_read_them(translating: VisitorRuns):
    shown, note = decode.readable_input(translating[TRANSLATOR], "4 8 2 9")
    assert any(each.isalpha() for each in shown)
    assert "“4 8 2 9” is not an input of" in note
    assert decode.readable_input(translating[TRANSLATOR], "Press F1.") == ("Press F1.", "")


def test_a_blank_input_is_refused_where_subwords_could_read_it(translating: VisitorRuns):
    values = page._decode_as_asked(translating, TRANSLATOR, "   ", NO_INTERVENTIONS, *STRATEGY)
    assert any(isinstance(each, dict) and "type a sentence" in each.get("text", "") for each in values.values())


def test_what_was_requested_while_an_earlier_request_was_decoded_again_is_decoded_last(lab: Runs):
    mine, later = VisitorRuns(lab), DecodeRequest(SHIPPED, "4 5 6", STRATEGY)
    former = DecodeRequest(SHIPPED, "1 2 3", STRATEGY)
    again = page._decode_again(mine, former, SHIPPED, "4 5 6", NO_INTERVENTIONS, *STRATEGY)
    assert again["refreshed"] == former
    assert again["address"]["parameters"]["input"] == "1 2 3"

    def meanwhile(requested: DecodeRequest | None, run: str = SHIPPED) -> dict[str, Any]:
        given = (former, requested, run, "7 8", NO_INTERVENTIONS, *STRATEGY)
        return page._decode_requested_meanwhile(mine, *given)

    assert meanwhile(later)["address"]["parameters"]["input"] == "4 5 6"
    assert meanwhile(former) == meanwhile(later, run="another") == {}
    assert meanwhile(None) == {"requested": former}
