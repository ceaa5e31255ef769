"""Handlers of the page: opening, decoding, and the preset form."""

import json
import math
import shutil
import threading
from functools import partial
from pathlib import Path

import gradio as gr
import pytest

from core.config import ConfigError, load_preset
from core.interpret.inspection import inspect
from core.runs import DEFAULT_ROOT
from core.runs.estimate import TrainingTime
from core.server import Runs
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for
from tests.ui.server_functions import call
from ui import page
from ui.attention_blocks import BLOCK_NAMES
from ui.components.answer import FAILED
from ui.components.attention_viewer import attention_viewer
from ui.components.head_thumbnails import layer_value
from ui.forms import preset_form
from ui.forms.preset_form import Draft
from ui.forms.preset_list import first_preset
from ui.forms.setting_controls import settings_of, value_in
from ui.run_info import list_runs
from ui.serving.errors import show_errors
from ui.tabs import decode, train
from ui.updates import by_name, each_by_name


@pytest.fixture(scope="module")
def decoded(runs: Runs):
    """What the shipped run made of 4 8 2 9."""
    return decode.decode(runs, SHIPPED, "4 8 2 9")[0]


def form_of(name: str, **changes) -> tuple[Draft, dict]:
    """What a form holds that opened with a preset: the draft, and the fields, some of them changed."""
    preset = load_preset(name)
    values = {each.key: changes.get(each.field, value_in(preset, each)) for each in settings_of(preset)}
    return Draft(preset, preset, edition=3), {"edition": 3, "values": values}


def checked(filled) -> tuple[dict, dict[str, dict]]:
    """The summary of a form, and its fields by key."""
    updates = preset_form.check(VisitorRuns(Runs(Path("nowhere"))), *filled)
    fields = (each for section in updates["fields"]["sections"] for each in section["fields"])
    return updates["summary"], {each["key"]: each for each in fields}


def test_the_page_opens_with_the_shipped_run_and_an_example(runs: Runs):
    opened = page._open(VisitorRuns(runs), {})
    assert opened["run"] == SHIPPED
    assert opened["text"] == "4 8 2 9"
    assert (
        train.first_draft(runs, opened["run"]).start == first_preset()
    )  # the settings of one's own run, but not of this one


def test_of_all_shipped_runs_the_page_opens_with_that_of_the_first_lesson(tmp_path: Path):
    for run in DEFAULT_ROOT.iterdir():
        if (run / "run.json").is_file():
            shutil.copytree(run, tmp_path / run.name)
    runs = VisitorRuns(Runs(tmp_path))
    assert len(list(runs)) >= 3
    assert page._open(runs, {})["run"] == SHIPPED


def test_an_invalid_strategy_in_the_address_opens_the_default_view(runs: Runs):
    opened = page._open(VisitorRuns(runs), {"strategy": "<script>"})
    assert (opened["run"], opened["text"], opened["kind"]) == (SHIPPED, "4 8 2 9", "greedy")
    unread = {"strategy": "strategy='<script>' is not one of greedy, beam, sample"}
    assert opened["bar"] == {
        "current": SHIPPED,
        "missing": None,
        "unread": unread,
        "used": ["preset"],
        "translator": None,
    }


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"layer": "9", "head": "77", "block": "cross"}, {"layer": "which has 2 layers of 4 heads in block cross"}),
        ({"layer": "2", "head": "x"}, {"layer": "layer=2, head=x is not in this model, which has 2 layers of 4 heads"}),
        ({"block": "foo", "layer": "1"}, {"block": "block='foo' is not one of"}),
        ({"ablate": "cross.9.9"}, {"ablate": "ablate=cross.9.9 is not in this model"}),
        ({"pattern": "foo"}, {"ablate": "pattern='foo' must be HEAD=PATTERN"}),
        ({"strategy": "beam", "beam_size": "999"}, {"strategy": "beam_size=999 should be"}),
        ({"strategy": "beam", "beam_size": "[1"}, {"strategy": "strategy=beam: "}),
        ({"preset": "nope", "tab": "zzz", "lesson": "x"}, {"preset": "nope", "tab": "zzz", "lesson": "the lessons"}),
        ({"view": "replay", "step": "99999"}, {"step": "step='99999' is not a training step of this run"}),
        ({"view": "replay", "step": "-1"}, {"step": "step='-1' is not a training step"}),
        ({"view": "replay", "fixed_input": "99"}, {"fixed_input": "which has 4 fixed inputs"}),
        ({"row": "0", "column": "x"}, {"row": "row='0' is not a whole number from 1", "column": "column='x' is not a"}),
        ({"row": "3", "column": "1", "fixed_input": "2"}, {}),
        ({"compare": f"gone,{SHIPPED},lost"}, {"compare": "compare='gone' and 1 more: there is no such run here"}),
        ({"compare": SHIPPED, "symptom": "x"}, {"symptom": "symptom='x' is not one of the symptoms"}),
        ({"layer": "2", "head": "4", "block": "cross", "ablate": "cross.1", "step": "400", "tab": "attention"}, {}),
    ],
)
def test_the_page_says_which_values_of_a_link_it_cannot_use(runs: Runs, link: dict[str, str], said: dict[str, str]):
    unread = page._open(VisitorRuns(runs), link)["bar"]["unread"]
    assert unread.keys() == said.keys()
    for name, text in said.items():
        assert text in unread[name]


@pytest.mark.parametrize("name", ["../../etc", "no-such-run", "x" * 500])
def test_a_link_to_a_missing_run_opens_no_other_run_and_names_it(runs: Runs, name: str):
    opened = page._open(VisitorRuns(runs), {"run": name, "input": "1 2"})
    bar = opened["bar"]
    assert (opened["run"], bar["current"], opened["text"]) == (None, None, "1 2")
    assert bar["missing"]
    assert name.startswith(bar["missing"].rstrip("…"))
    assert len(bar["missing"]) <= 60


def test_a_decode_shows_output_expected_output_and_probabilities(runs: Runs):
    decoded, updates = decode.decode(runs, SHIPPED, "4829")
    message, answer, thumbnails = (updates[name] for name in ("message", "answer", "thumbnails"))
    assert answer["output"] == answer["expected"] == list("9284")
    assert answer["correct"] is True
    assert "best weights" in message["text"]
    assert [step["token"] for step in answer["steps"]] == [*"9284", "<EOS>"]
    for step in answer["steps"]:
        shares = [candidate["probability"] for candidate in step["candidates"]]
        assert step["candidates"][0]["token"] == step["token"]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1 + 1e-6
    assert thumbnails["block"] == "cross"
    assert decoded.run == SHIPPED


def test_training_waits_while_an_input_is_decoded(runs: Runs, monkeypatch: pytest.MonkeyPatch):
    requests = []

    def counted_inspect(*args, **kwargs):
        requests.append(runs.inference_priority._num_requests)
        return inspect(*args, **kwargs)

    monkeypatch.setattr("core.interpret.trained.inspect", counted_inspect)
    decode.decode(runs, SHIPPED, "4829")
    assert requests == [1]


@pytest.mark.parametrize(
    ("typed", "part"),
    [("4 x 2", "'x' at position 2"), ("   ", "empty"), ("1" * 70, "at most 64"), ("1" * 5000, "5,000 characters")],
)
def test_an_invalid_input_is_explained_and_not_decoded(runs: Runs, typed: str, part: str):
    decoded, updates = decode.decode(runs, SHIPPED, typed)
    assert updates["message"]["problem"]
    assert part in updates["message"]["text"]
    assert (decoded, updates["answer"], updates["thumbnails"]) == (None, FAILED, None)


def test_every_layer_has_all_heads_with_labeled_rows_and_columns(decoded):
    for block in BLOCK_NAMES:
        for layer in (1, 2):
            value = layer_value(decoded, block, layer)
            assert len(value["heads"]) == 4
            for head in value["heads"]:
                assert len(head["weights"]) == len(value["rows"])
                for row in head["weights"]:
                    assert len(row) == len(value["columns"])
                    assert sum(row) == pytest.approx(1, abs=2e-3)
    assert value["rows"][0] == {"token": "<BOS>"}  # encoder: tokens look at tokens


def test_the_best_head_of_the_last_layer_attends_to_the_gold_cells(decoded):
    value = layer_value(decoded, "cross", 2)
    best = value["heads"][value["selected"] - 1]
    assert value["gold_cells"] == [[0, 4], [1, 3], [2, 2], [3, 1]]
    assert best["score"] == max(head["score"] for head in value["heads"])
    assert best["score"] == pytest.approx(
        sum(best["weights"][row][column] for row, column in value["gold_cells"]) / 4, abs=1e-3
    )
    assert best["score"] > 0.7 > 4 * value["uniform_mass"]


def test_a_picture_is_a_png_and_malformed_requests_return_an_error(runs: Runs):
    good = {
        "title": "a $ title",
        "rows": ["$x$", "b"],
        "columns": ["c"],
        "weights": [[0.5], [1]],
        "marked": [[0, 0]],
    }
    assert call(attention_viewer(runs), "picture", good)["png"].startswith("iVBOR")
    for change in (
        {"weights": [[0.5]]},
        {"weights": [[math.nan], [1]]},
        {"rows": ["x"] * 500},
        {"extra": 1},
        {"title": 3},
    ):
        assert "error" in call(attention_viewer(runs), "picture", good | change)
    assert "error" in call(attention_viewer(runs), "picture", None)


def test_the_form_describes_the_preset_it_was_opened_with():
    draft, fields = form_of("tiny")
    floats = {key: float(value) if type(value) is int else value for key, value in fields["values"].items()}
    assert preset_form.preset_in(draft, fields | {"values": floats}) == load_preset("tiny")
    assert preset_form.preset_in(draft, json.loads(json.dumps(fields))) == load_preset("tiny")


def test_a_form_that_is_still_loading_is_refused():
    draft, fields = form_of("tiny")
    with pytest.raises(ConfigError, match="still loading"):
        preset_form.preset_in(draft, fields | {"edition": 2})


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"model.family": "gru"}, "model.family is no setting of this preset"),
        ({"training.__class__": 3}, "training.__class__ is no setting of this preset"),
        ({"training.steps": [3]}, "is not a value of the form"),
        ({"training.steps": True}, "training.steps"),
    ],
)
def test_fields_that_no_page_sends_are_refused(change: dict, part: str):
    draft, fields = form_of("tiny")
    with pytest.raises(ConfigError) as refused:
        preset_form.preset_in(draft, fields | {"values": fields["values"] | change})
    assert part in str(refused.value)


@pytest.mark.parametrize("fields", [None, {}, {"edition": 3, "values": None}])
def test_a_form_without_values_is_refused(fields: object):
    with pytest.raises(ConfigError):
        preset_form.preset_in(form_of("tiny")[0], fields)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"d_model": 30}, "model.d_model=30 must be divisible by model.num_heads=4"),
        ({"d_model": None}, "model.d_model is empty"),
        ({"learning_rate": math.nan}, "training.learning_rate=nan"),
        ({"batch_size": 0}, "training.batch_size=0"),
        ({"max_length": 100}, "max_seq_len=64"),
    ],
)
def test_an_invalid_form_names_field_value_and_rule_and_starts_nothing(runs: Runs, changes: dict, part: str):
    filled = form_of("digits-reversal", **changes)
    before = list(runs)
    for ask in (True, False):
        updates = preset_form.started(VisitorRuns(runs), *filled, ask=ask)
        assert updates["summary"]["problem"]
        assert part in updates["summary"]["text"]
        assert updates["message"] == {"text": ""}  # said once
        assert updates["question"]["visible"] is False
    summary, fields = checked(filled)
    assert part in summary["text"]
    assert any(field["invalid"] for field in fields.values())
    assert list(runs) == before


def test_tying_embeddings_of_two_vocabularies_is_refused_at_its_control():
    filled = form_of("number-words-french", tie_embeddings="all")
    summary, fields = checked(filled)
    assert summary["problem"]
    assert [key for key, field in fields.items() if field["invalid"]] == ["model.tie_embeddings"]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (TrainingTime(9.6, 14.4), "22,637 parameters · 63 MB of memory · 10–14 s on this machine"),
        (None, "too large to estimate the time"),
    ],
)
def test_the_form_shows_the_measured_training_time(tmp_path, monkeypatch, time: TrainingTime | None, text: str):
    monkeypatch.setattr("core.server.estimates.estimate_training_time", lambda *_, **__: time)
    tiny, runs = load_preset("tiny"), Runs(tmp_path)
    shown = preset_form.timed(VisitorRuns(runs), tiny, tiny)["text"].replace("\N{NO-BREAK SPACE}", " ")
    runs.close()
    assert text in shown


def test_a_training_time_that_is_not_known_in_time_leaves_the_summary_pending(tmp_path, monkeypatch):
    monkeypatch.setattr(preset_form, "SUMMARY_WAIT", 0.01)
    measured = threading.Event()

    def estimate(*_, **__) -> TrainingTime:
        measured.wait(10)
        return TrainingTime(9.6, 14.4)

    monkeypatch.setattr("core.server.estimates.estimate_training_time", estimate)
    filled = form_of("tiny")
    runs = Runs(tmp_path)
    check_timed = partial(preset_form.check_timed, VisitorRuns(runs))
    assert preset_form.described(VisitorRuns(runs), load_preset("tiny"), load_preset("tiny"))["pending"]
    assert check_timed(*filled) == gr.skip()
    measured.set()
    wait_for(lambda: check_timed(*filled) != gr.skip(), seconds=10)
    summary = check_timed(*filled)
    assert (summary["pending"], summary["answer"]) == (False, True)
    runs.close()


def test_a_handler_without_updates_leaves_all_components_as_they_are():
    assert by_name(lambda: {}, {})() == next(each_by_name(lambda: iter([{}]), {})()) == gr.skip()


def test_the_form_lists_changed_settings():
    filled = form_of("tiny", steps=500)
    summary, fields = checked(filled)
    assert "training.steps 400 → 500" in summary["text"]
    assert "22,637 parameters" in summary["text"]
    assert fields["training.steps"]["hint"].startswith("changed, preset value 400")
    assert not fields["training.seed"]["hint"].startswith("changed")


@pytest.mark.parametrize("changes", [{"steps": 500, "d_model": 16}, {"max_length": 7}])
def test_each_section_says_what_is_set_in_it(changes: dict):
    filled = form_of("tiny", **changes)
    fields = preset_form.check(VisitorRuns(Runs(Path("nowhere"))), *filled)["fields"]
    labels = [each["label"] for each in fields["sections"]]
    preset = preset_form.preset_in(*filled)
    assert labels == [
        f"Task: {preset.task.summary}",
        f"Model: {preset.model.summary}",
        f"Training: {preset.training.summary}",
    ]
    assert labels != [each["label"] for each in preset_form.opened_fields(filled[0])["sections"]]


@pytest.fixture
def started(make_runs, monkeypatch: pytest.MonkeyPatch):
    """Press Train on the tiny preset with a known training time; return the updates, and the runs."""

    def press(seconds: float | None, *, ask: bool = True):
        mine = VisitorRuns(make_runs())
        time = "pending" if seconds is None else TrainingTime(seconds - 60, seconds)
        monkeypatch.setattr(VisitorRuns, "wait_for_training_time", lambda *_, start_from, seconds: time)
        filled = form_of("tiny", steps=2, warmup_steps=0)
        return preset_form.started(mine, *filled, ask=ask), mine

    return press


@pytest.mark.parametrize(("seconds", "ask"), [(None, True), (600.0, True), (601.0, False), (None, False)])
def test_a_run_starts_and_the_bar_shows_it(started, seconds: float | None, ask: bool):
    updates, mine = started(seconds, ask=ask)
    assert updates["run"] == "tiny-1"
    assert list(mine) == ["tiny-1"]
    assert "summary" not in updates
    assert updates["bar"] == {"current": "tiny-1", "started": True}
    assert updates["message"] == updates["asked"] == {"text": ""}
    assert updates["question"]["visible"] is False


def test_training_of_more_than_ten_minutes_is_asked_for_first(started):
    updates, mine = started(601.0)
    assert updates["question"]["visible"] is True
    assert "Training takes 9–10 min on this machine" in updates["asked"]["text"].replace("\N{NO-BREAK SPACE}", " ")
    assert updates["message"] == {"text": ""}
    assert list(mine) == []


def test_a_saved_preset_loads_again_under_a_new_name():
    filled = form_of("tiny", steps=500)
    text = preset_form.as_yaml(*filled)
    draft = preset_form.loaded_draft(text.encode(), filled[0])
    assert draft.start.name == "tiny-changed"
    assert draft.start.training.steps == 500
    assert draft.start.model == load_preset("tiny").model
    assert draft.edition == 4


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a: &x [*x]", b"[" * 100_000, b"task: {colour: red}", b"", None])
def test_a_hostile_preset_file_is_refused_with_a_reason(data: bytes | None):
    with pytest.raises(ConfigError):
        preset_form.loaded_draft(data, form_of("tiny")[0])


def test_the_list_of_runs_skips_damaged_runs(runs: Runs):
    damaged = runs.root / "damaged-run"
    damaged.mkdir()
    (damaged / "preset.yaml").write_text("[")
    (damaged / "run.json").write_text("{")
    listed = [each["id"] for each in list_runs(VisitorRuns(runs))["runs"]]
    assert SHIPPED in listed
    assert damaged.name not in listed


def test_lab_errors_reach_the_page_as_text_not_markup(runs: Runs):
    def fail() -> None:
        raise LabError("<img src=x onerror=alert(1)>")

    with pytest.raises(gr.Error) as raised:
        show_errors(fail)()
    assert "<img" not in raised.value.message
