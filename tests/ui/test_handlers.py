"""Handlers of the page: opening, decoding, and the preset form."""

import math
from pathlib import Path

import gradio as gr
import pytest

from core.config import ConfigError, load_preset, preset_names
from core.interpret.inspection import inspect
from core.server import Runs
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from tests.serving import SHIPPED
from tests.ui.server_functions import call
from ui import api, page
from ui.attention_blocks import BLOCK_NAMES
from ui.components.attention_viewer import attention_viewer
from ui.components.head_thumbnails import layer_value
from ui.components.training_charts import training_charts
from ui.forms import preset_form
from ui.forms.preset_form import Draft
from ui.forms.setting_controls import all_settings, value_in
from ui.run_info import list_runs
from ui.serving.errors import show_errors
from ui.tabs import decode, train


@pytest.fixture(scope="module")
def decoded(runs: Runs):
    """What the shipped run made of 4 8 2 9."""
    return decode.decode(runs, SHIPPED, "4 8 2 9")[0]


def form_of(name: str, **changes):
    """The settings, and what a form that opened with a preset holds: draft, edition, values, some of them changed."""
    preset = load_preset(name)
    settings = all_settings()
    values = [changes.get(each.field, value_in(preset, each)) if each.applies_to(preset) else None for each in settings]
    return settings, [Draft(preset, preset, edition=3), 3, *values]


def test_the_page_opens_with_the_shipped_run_and_an_example(runs: Runs):
    run, _, text, *_ = page._open(runs, {})
    assert run == SHIPPED
    assert text == "4 8 2 9"
    assert train.first_draft(runs, run).start == load_preset("digits-reversal")


@pytest.mark.parametrize("query", [{"run": "../../etc"}, {"run": "no-such-run"}, {"strategy": "<script>"}])
def test_an_invalid_address_opens_the_default_view(runs: Runs, query: dict):
    run, _, text, _, strategy, *_ = page._open(runs, query)
    assert (run, text, strategy) == (SHIPPED, "4 8 2 9", "greedy")


def test_a_decode_shows_output_expected_output_and_probabilities(runs: Runs):
    decoded, (message, answer, _, thumbnails, *_) = decode.decode(runs, SHIPPED, "4829")
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

    monkeypatch.setattr(decode, "inspect", counted_inspect)
    decode.decode(runs, SHIPPED, "4829")
    assert requests == [1]


@pytest.mark.parametrize(
    ("typed", "part"),
    [("4 x 2", "'x' at position 2"), ("   ", "empty"), ("1" * 70, "max_seq_len=64"), ("1" * 5000, "5,000 characters")],
)
def test_an_invalid_input_is_explained_and_not_decoded(runs: Runs, typed: str, part: str):
    decoded, (message, answer, _, thumbnails, *_) = decode.decode(runs, SHIPPED, typed)
    assert message["problem"]
    assert part in message["text"]
    assert (decoded, answer, thumbnails) == (None, None, None)


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


def test_presets_can_be_picked_only_after_the_form_has_loaded(runs: Runs):
    with gr.Blocks() as built:
        train.build(runs, gr.State(None))
    radios = [each for each in built.blocks.values() if each.elem_id in ("family", "preset")]
    # Else the form, opening late, would take the place of what was picked.
    assert [radio.interactive for radio in radios] == [False, False]
    choices = train.preset_choice(train.presets_by_family(), Draft(*[load_preset("tiny")] * 2))
    assert [choice["interactive"] for choice in choices] == [True, True]


def test_the_form_describes_the_preset_it_was_opened_with():
    settings, filled = form_of("tiny")
    floats = [float(value) if type(value) is int else value for value in filled]  # as a number field gives them
    assert preset_form.preset_in(settings, *floats) == load_preset("tiny")


def test_a_form_that_is_still_loading_is_refused():
    settings, (draft, _, *values) = form_of("tiny")
    with pytest.raises(ConfigError, match="still loading"):
        preset_form.preset_in(settings, draft, 2, *values)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"d_model": 30}, "model.d_model=30 must be divisible by model.num_heads=4"),
        ({"d_model": None}, "model.d_model is empty"),
        ({"learning_rate": math.nan}, "training.learning_rate=nan"),
        ({"steps": 10.5}, "training.steps=10.5"),
        ({"batch_size": 0}, "training.batch_size=0"),
        ({"max_length": 100}, "max_seq_len=64"),
        ({"transform": "shuffle"}, "task.transform='shuffle'"),
    ],
)
def test_an_invalid_form_names_field_value_and_rule_and_starts_nothing(runs: Runs, changes: dict, part: str):
    settings, filled = form_of("digits-reversal", **changes)
    before = runs.names()
    _, problem = preset_form.started(runs.start, settings, *filled)
    summary, _, *hints = preset_form.check(VisitorRuns(Runs(Path("nowhere"))), settings, *filled)
    assert problem["problem"]
    assert part in problem["text"]
    assert part in summary["text"]
    assert any(hint["info"].startswith("✗") for hint in hints)
    assert runs.names() == before


def test_tying_embeddings_of_two_vocabularies_is_refused_at_its_control():
    settings, filled = form_of("number-words-french", tie_embeddings="all")
    summary, _, *hints = preset_form.check(VisitorRuns(Runs(Path("nowhere"))), settings, *filled)
    assert summary["problem"]
    wrong = [each for each, hint in zip(settings, hints, strict=True) if hint["info"].startswith("✗")]
    assert [each.key for each in wrong] == ["model.tie_embeddings"]


def test_the_form_lists_changed_settings():
    settings, filled = form_of("tiny", steps=500)
    summary, _, *updates = preset_form.check(VisitorRuns(Runs(Path("nowhere"))), settings, *filled)
    assert "training.steps 2000 → 500" in summary["text"]
    assert "22,637 parameters" in summary["text"]
    hints = {setting.key: update["info"] for setting, update in zip(settings, updates, strict=True)}
    assert hints["training.steps"].startswith("changed, preset value 2000")
    assert not hints["training.seed"].startswith("changed")


def test_presets_are_listed_by_family_of_tasks():
    of_families = train.presets_by_family()
    assert next(iter(of_families)) == "digits"
    assert of_families["digits"][0] == "digits-reversal"
    assert sorted(name for names in of_families.values() for name in names) == preset_names()
    draft = train.family_draft(of_families, "words", form_of("tiny")[1][0])
    assert draft.start == load_preset("words-reversal-gru")
    family, choice = train.preset_choice(of_families, draft)
    assert (choice["value"], choice["choices"]) == ("words-reversal-gru", of_families["words"])
    assert "value" not in family  # what was picked there is not set again: a later choice may have been made
    draft = train.picked_draft("words-reversal-transformer", draft)
    assert not any("value" in radios for radios in train.preset_choice(of_families, draft))


def test_a_loaded_preset_is_listed_with_its_family():
    of_families = train.presets_by_family()
    draft = Draft(*[load_preset("addition").model_copy(update={"name": "mine"})] * 2)
    family, choice = train.preset_choice(of_families, draft)
    assert (family["value"], choice["value"], choice["choices"]) == ("addition", "mine", ["addition", "mine"])


def test_a_saved_preset_loads_again_under_a_new_name():
    settings, filled = form_of("tiny", steps=500)
    text = preset_form.as_yaml(settings, *filled)
    draft = preset_form.loaded_draft(text.encode(), filled[0])
    assert draft.start.name == "tiny-changed"
    assert draft.start.training.steps == 500
    assert draft.start.model == load_preset("tiny").model
    assert draft.edition == 4


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a: &x [*x]", b"[" * 100_000, b"task: {colour: red}", b"", None])
def test_a_hostile_preset_file_is_refused_with_a_reason(data: bytes | None):
    with pytest.raises(ConfigError):
        preset_form.loaded_draft(data, form_of("tiny")[1][0])


def test_progress_is_returned_and_malformed_requests_return_an_error(runs: Runs):
    good = call(training_charts(runs), "progress", {"run": SHIPPED, "since_step": 990, "since_evaluation": 950})
    assert good["points"]["step"] == list(range(991, 1001))
    assert good["evaluations"]["step"] == [975, 1000]
    assert good["status"] == "finished"
    for request in (None, [], {"run": 3}, {"run": "../x"}, {"run": SHIPPED, "since_step": "1"}, {"run": "x" * 1000}):
        assert "error" in call(training_charts(runs), "progress", request)


def test_the_list_of_runs_skips_damaged_runs(runs: Runs):
    damaged = runs.root / "damaged-run"
    damaged.mkdir()
    (damaged / "preset.yaml").write_text("[")
    (damaged / "run.json").write_text("{")
    listed = [each["id"] for each in list_runs(runs)["runs"]]
    assert SHIPPED in listed
    assert damaged.name not in listed


def test_lab_errors_reach_the_page_as_text_not_markup(runs: Runs):
    def fail() -> None:
        raise LabError("<img src=x onerror=alert(1)>")

    with pytest.raises(gr.Error) as raised:
        show_errors(fail)()
    assert "<img" not in raised.value.message
    assert api.expose
