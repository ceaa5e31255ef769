"""A translation on the page: sentences are text, and maps have the words that the pieces make."""

import json
from collections.abc import Iterator
from itertools import accumulate

import pytest

from core.server import Runs
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for
from tests.support.translation_run import SENTENCE, small_translation
from tests.ui.server_functions import call
from ui.components.answer import answer_value
from ui.components.answer_comparison import strategies_value
from ui.components.attention_viewer import attention_value, attention_viewer
from ui.components.beam_tree import tree_value
from ui.components.run_bar import run_bar
from ui.components.why_answer import why_answer, why_value
from ui.tabs import decode


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A lab with one finished run, ``a``."""
    runs = Runs(tmp_path_factory.mktemp("checkpoints"))
    runs.start(small_translation(), name="a")
    wait_for(lambda: runs["a"].info.status in ("finished", "failed"), seconds=180)
    yield runs
    runs.close()


@pytest.fixture(scope="module")
def decoded(trained: Runs):
    return decode.decode(trained, "a", SENTENCE)[0]


def test_the_answer_is_a_sentence_and_its_steps_are_pieces(trained, decoded):
    value = answer_value(decoded)
    task = trained["a"].trained().task
    assert value["texts"] == {"source": SENTENCE, "output": task.answer_text(value["output"]), "expected": None}
    assert value["input"] == task.tokenize(SENTENCE)
    assert [step["token"] for step in value["steps"]][: len(value["output"])] == value["output"]
    json.dumps(value)


def test_other_tokens_have_no_sentences(runs: Runs):
    shipped = decode.decode(runs, SHIPPED, "4 8 2 9")[0]
    assert answer_value(shipped)["texts"] is None
    assert "words" not in attention_value(shipped)["decode"]


def test_the_words_of_a_map_are_those_of_its_tokens(decoded):
    record = attention_value(decoded)["decode"]
    assert record["texts"]["source"] == SENTENCE
    names = [word["name"] for word in record["words"]["source"]]
    assert names == ["<BOS>", "Press", "Ctrl", "+", "F5", "in", "LibreOffice", ".", "<EOS>"]
    read = [record["source"][0], *record["tokens"][:-1]]
    for side, tokens in (("source", record["source"]), ("produced", record["tokens"]), ("read", read)):
        words = record["words"][side]
        ends = list(accumulate(word["pieces"] for word in words))
        assert ends[-1] == len(tokens)
        for word, end in zip(words, ends, strict=True):
            pieces = tokens[end - word["pieces"] : end]
            assert word["name"] == ("".join(pieces).replace("▁", " ").strip() or "␣") or pieces[0].startswith("<0x")


def test_a_beam_search_has_sentences_too(trained):
    beam = decode.decode(trained, "a", SENTENCE, "beam")[0]
    value = answer_value(beam)
    task = trained["a"].trained().task
    assert [each["text"] for each in value["n_best"]] == [task.answer_text(each["output"]) for each in value["n_best"]]
    assert tree_value(beam)["subwords"]
    compared = strategies_value([beam.inspection])
    assert compared["heading"] == f"All strategies: {SENTENCE}"
    assert len(compared["rows"][0]["words"]) <= len(beam.inspection.output)


def test_the_bench_and_the_replay_have_the_sentences_of_each_step(trained):
    task = trained["a"].trained().task
    latest, earlier = (call(run_bar(trained), "snapshot", {"run": "a", "step": step}) for step in (2, 1))
    for answer in (*latest["answers"], *earlier["answers"]):
        assert answer["texts"]["source"] == task.source_text(answer["source"])
        assert answer["texts"]["output"] == task.answer_text([each for each in answer["tokens"] if each != "<EOS>"])
    assert latest["answers"][0]["texts"]["expected"] is None  # the example is not in the corpus
    assert len(latest["answers"][0]["tokens"]) > 1
    assert latest["answers"][1]["texts"]["expected"]

    replay = call(attention_viewer(trained), "replay", {"run": "a"})
    assert replay["inputs"][0]["text"] == task.examples[0]
    assert replay["scored_block"] is None  # the output of each step shares other words with the input
    for snapshot in replay["snapshots"]:
        for given, output in zip(replay["inputs"], snapshot["outputs"], strict=True):
            assert sum(word["pieces"] for word in output["words"]["produced"]) == len(output["tokens"])
            assert sum(word["pieces"] for word in output["words"]["source"]) == len(given["source"])
    json.dumps(replay)


def test_questions_about_an_answer_name_the_pieces(trained, decoded):
    value = why_value(decoded)
    assert value["subwords"]
    request = {"run": "a", "method": "parts", "step": 0, "source": value["source"], "tokens": value["tokens"]}
    answer = call(why_answer(trained), "why", request)
    assert answer["question"] == f"why {trained['a'].trained().task.token_name(value['tokens'][0])}?"
    assert "▁" not in answer["question"]


def test_an_output_can_begin_with_a_typed_text(trained):
    prefixed = decode.decode(trained, "a", SENTENCE, "greedy", "Drücken Sie")[0]
    assert answer_value(prefixed)["texts"]["output"].startswith("Drücken Sie")
