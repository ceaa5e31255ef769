"""Lessons: each has its text and its results, and the command trains its pair."""

import json

import pytest

from core.__main__ import main
from core.config import BUG_FAMILIES
from core.storage.errors import InputError
from core.teaching.lessons import LESSON_FOLDER, RESULTS_FILE, SECTIONS, lesson_names, load_lesson
from core.teaching.lessons.lesson import PRESET_FILE, TEXT_FILE

MAX_BYTES = 60_000
MAX_SECONDS = 120


def test_every_bug_has_its_lesson():
    assert lesson_names() == list(BUG_FAMILIES)
    assert {each.name for each in LESSON_FOLDER.iterdir()} == set(BUG_FAMILIES)


@pytest.mark.parametrize("name", lesson_names())
def test_a_lesson_is_complete_and_its_results_belong_to_its_preset(name):
    lesson, folder = load_lesson(name), LESSON_FOLDER / name
    assert tuple(lesson.text) == SECTIONS
    assert all(lesson.text.values())
    assert (lesson.broken.bug, lesson.right.bug) == (name, None)
    assert lesson.right.changed_from(lesson.broken) == {"bug": (name, None)}
    assert sorted(each.name for each in folder.iterdir()) == [TEXT_FILE, PRESET_FILE, RESULTS_FILE]
    assert (folder / RESULTS_FILE).stat().st_size < MAX_BYTES
    assert lesson.results["seconds"] < MAX_SECONDS
    for side, preset in (("right", lesson.right), ("broken", lesson.broken)):
        results = lesson.results[side]
        assert results["bug"] == preset.bug
        assert results["figures"]["steps"] == preset.training.steps
        assert results["evaluations"]["step"][1] == preset.training.evaluate_every


@pytest.mark.parametrize("name", lesson_names())
def test_the_doctor_names_the_bug_and_passes_the_correct_run_which_solves_the_task(name):
    right, broken = (load_lesson(name).results[side] for side in ("right", "broken"))
    assert broken["doctor"]["bugs"] == [name]
    assert right["doctor"]["bugs"] == []
    assert {each["light"] for each in right["doctor"]["findings"]} <= {"green", "gray"}
    assert all((each["light"] == "gray") == ("Not checked" in each["sentence"]) for each in right["doctor"]["findings"])
    figures = right["figures"]
    assert figures["exact_match"] > 0.99
    assert figures["exact_match_unpadded"] == figures["exact_match"]
    assert figures["answer"] == figures["expected"]


def test_an_unknown_lesson_is_refused(capsys):
    with pytest.raises(InputError, match="not one of"):
        load_lesson("../../etc")
    assert main(["lesson", "nothing"]) == 2
    assert "no-causal-mask" in capsys.readouterr().err


def test_the_command_lists_the_lessons(capsys):
    assert main(["lesson"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(BUG_FAMILIES)


def test_the_command_trains_a_pair_and_writes_what_ships(tmp_path, monkeypatch, capsys, tiny):
    from core.teaching.lessons import lesson as lessons

    folder = tmp_path / "lessons"
    place = folder / "no-residual"
    place.mkdir(parents=True)
    (place / TEXT_FILE).write_text("# x\n\n## Predict\n\nWhat?\n")
    (place / PRESET_FILE).write_text(
        "description: d\nbug: no-residual\ntask: {family: digits, min_length: 2, max_length: 5}\n"
        "model: {family: transformer, d_model: 8, num_heads: 2, d_ff: 8, max_seq_len: 12}\n"
        "training: {steps: 4, warmup_steps: 1, batch_size: 4, evaluate_every: 2, validation_sequences: 8}\n"
    )
    monkeypatch.setattr("core.cli.lesson.load_lesson", lambda name: lessons.load_lesson(name, folder=folder))
    assert main(["lesson", "no-residual", "--out", str(folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed == json.loads((place / RESULTS_FILE).read_text())
    assert printed["broken"]["evaluations"]["step"] == [0, 2, 4]
    assert printed["broken"]["doctor"]["bugs"] == ["no-residual"]
