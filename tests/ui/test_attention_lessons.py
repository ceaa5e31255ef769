"""The lessons on attention on the page: what their figures show is what a decode through the core gives."""

from collections.abc import Iterator
from typing import Any

import pytest

from core.interpret.inspection import inspect
from core.interpret.interventions import Interventions
from core.interpret.trained import Trained
from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.access import VisitorRuns
from core.teaching.attention_lessons import attention_lessons
from tests.serving import SHIPPED
from tests.ui.server_functions import call
from ui.components.lesson import lesson_view
from ui.components.lesson.live_figures import MAX_TOKENS

EXAMPLE = "4 8 2 9"


@pytest.fixture(scope="module")
def view(runs: Runs) -> Any:
    return lesson_view(VisitorRuns(runs))


@pytest.fixture(scope="module")
def loaded(runs: Runs) -> Trained:
    return runs[SHIPPED].trained()


def figure(view: Any, name: str, text: str = EXAMPLE, **options: Any) -> dict[str, Any]:
    answer = call(view, name, {"lesson": "queries", "input": text} | options)
    assert "error" not in answer
    return answer


def test_the_list_has_every_lesson_with_its_questions(view):
    listed = view.value["attention"]
    assert [each["title"] for each in listed] == [lesson.title for lesson in attention_lessons()]
    assert all(each["questions"] for each in listed)


@pytest.mark.parametrize("name", [lesson.name for lesson in attention_lessons()])
def test_a_lesson_comes_with_paragraphs_answers_and_links(view, name):
    lesson = call(view, "attention_lesson", {"name": name})
    for section in lesson["sections"]:
        assert all(len(pieces) % 2 for pieces in section["text"])  # every second piece is code
        assert all(link["href"].startswith("?tab=") for link in section["links"])
        for choice in (section["question"] or {}).get("choices", []):
            assert choice["reason"]


@pytest.mark.parametrize("text", [EXAMPLE, "7 7 7 7"])
def test_maps_and_answer_are_those_of_the_decode(view, loaded, text):
    found, shown = inspect(loaded.model, loaded.task, text), figure(view, "decode", text)
    assert shown["produced"] == [step.produced for step in found.steps]
    assert shown["correct"] == found.correct
    assert shown["attention_mass"][1] == pytest.approx([score.attention_mass for score in found.scores[4:]], abs=1e-4)
    scores = figure(view, "scores", text)
    for block in ("encoder", "decoder", "cross"):
        recorded = getattr(found.maps, block)[:, 0].tolist()
        for weights in (shown["weights"][block], scores["weights"][block]):
            assert [row for layer in weights for head in layer for row in head] == [
                pytest.approx(row, abs=1e-4) for layer in recorded for head in layer for row in head
            ]


def test_an_ablated_head_is_taken_out_of_the_decode(view, loaded):
    shown = figure(view, "ablation", ablate="cross.1.2")
    without = Interventions.parse(loaded.model.heads, ablate=["cross.1.2"])
    assert shown["without"]["produced"] == [
        step.produced for step in inspect(loaded.model, loaded.task, EXAMPLE, interventions=without).steps
    ]
    assert shown["intact"]["correct"]
    assert shown["exact_match"] == 1
    assert figure(view, "ablation", ablate="cross.2")["exact_match_without"] == 0


def test_the_two_orders_hold_the_same_tokens(view):
    shown = figure(view, "orders")
    assert [each["input"] for each in shown["with"]] == [list("4829"), list("8294")]
    assert shown["without"][0]["produced"] == shown["without"][1]["produced"]
    assert all(each["correct"] for each in shown["with"])
    assert figure(view, "orders", other="9 2 8 4")["with"][1]["produced"] == [*"4829", "<EOS>"]


def test_masks_and_padding(view):
    assert figure(view, "causality", masked=True)["changes"][:-1] == [0] * 4
    padded = figure(view, "padding", masked=False, num_pad=3)
    assert padded["source"][-3:] == ["<PAD>"] * 3
    assert len(padded["weights"][0][0][0]) == len(padded["source"])
    assert padded["expected"] == list("9284")


def test_vectors_and_snapshots(view, runs):
    shown = figure(view, "vectors")
    assert shown["ids"] == [1, 7, 11, 5, 12, 2]
    assert set(shown["similarity"]) == {"embedding", "position", "sum", "encoder"}
    replay = call(view, "snapshots", {"name": "heads"})
    assert [each["step"] for each in replay["snapshots"]] == [each.step for each in runs[SHIPPED].replay.snapshots()]


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("decode", {"lesson": "nothing", "input": EXAMPLE}),
        ("decode", {"lesson": "queries", "input": "a b"}),
        ("decode", {"lesson": "queries", "input": " ".join("1" * (MAX_TOKENS + 1))}),
        ("decode", {"lesson": "queries", "input": EXAMPLE, "run": SHIPPED}),
        ("ablation", {"lesson": "queries", "input": EXAMPLE, "ablate": "cross.9.1"}),
        ("padding", {"lesson": "queries", "input": EXAMPLE, "masked": True, "num_pad": 99}),
        ("padding", {"lesson": "queries", "input": EXAMPLE, "masked": 1, "num_pad": 1}),
        ("orders", {"lesson": "queries", "input": EXAMPLE, "other": "x"}),
        ("text", {"lesson": "queries", "input": EXAMPLE}),  # its model has an encoder
        ("snapshots", {"name": "../x"}),
        ("attention_lesson", {"name": "no-residual"}),
    ],
)
def test_malformed_requests_return_an_error(view, name, argument):
    assert set(call(view, name, argument)) == {"error"}


@pytest.fixture(scope="module")
def of_all_runs() -> Iterator[Any]:
    runs = Runs(DEFAULT_ROOT)
    yield lesson_view(VisitorRuns(runs))
    runs.close()


def test_a_decoder_only_model_shows_all_tokens_and_its_heads_are_removed(of_all_runs):
    asked = {"lesson": "induction", "input": "c a d b . a"}
    shown, decoded = (call(of_all_runs, name, asked) for name in ("text", "decode"))
    assert shown["tokens"] == ["<BOS>", *asked["input"].split(), "<EOS>", "<BOS>", *"adb", "."]
    assert shown["produced"] == decoded["produced"] == [*"adb", ".", "<EOS>"]
    for layer, of_answer in zip(shown["weights"], decoded["weights"]["decoder"], strict=True):
        for head, rows in zip(layer, of_answer, strict=True):
            assert head[shown["source_length"] :] == [pytest.approx(row, abs=2e-4) for row in rows]
    assert (decoded["scored"], list(decoded["weights"])) == ("decoder", ["decoder"])
    without = call(of_all_runs, "ablation", asked | {"ablate": "decoder.2"})
    assert without["without"]["produced"] != without["intact"]["produced"] == shown["produced"]
    for name, more in (("vectors", {}), ("scores", {}), ("orders", {}), ("causality", {"masked": True})):
        assert "of another kind" in call(of_all_runs, name, asked | more)["error"]


def test_a_server_without_the_run_says_so(tmp_path):
    empty = Runs(tmp_path)
    answer = call(lesson_view(VisitorRuns(empty)), "decode", {"lesson": "queries", "input": EXAMPLE})
    assert SHIPPED in answer["error"]
    empty.close()
