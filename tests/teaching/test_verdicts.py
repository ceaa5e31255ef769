"""The doctor's table of bugs and presets: what is trained for it is kept, gone on with, and not trained again."""

import json
from pathlib import Path

import pytest

from core.__main__ import main
from core.cli import doctor_benchmark as verdicts
from core.config import Preset
from core.runs import RunFolder, list_runs
from core.teaching.doctor import Examination, Finding
from core.training.loop import StepEvent


@pytest.fixture
def presets(tiny, monkeypatch) -> dict[str, Preset]:
    """Presets in place of the project's: a short one, a long one, one that is told to be broken, one for a GPU."""
    known = {
        "short": tiny,
        "long": tiny.with_changes({"training.steps": verdicts.MAX_UPDATES + 1}),
        "numbers-reversal-as-reported": tiny.with_changes({"training.steps": 4}).with_bug("no-eos-in-targets"),
        "base": tiny,
    }
    monkeypatch.setattr(verdicts, "preset_names", lambda: list(known))
    monkeypatch.setattr(verdicts, "load_preset", lambda name: known[name])
    return known


@pytest.fixture
def updates(monkeypatch) -> list[str]:
    """The updates that are made, each with the name of its run."""
    made: list[str] = []
    train = verdicts.train_recorded

    def counted(folder, state, history, *, should_stop, on_event):
        def told(event):
            on_event(event)
            made.extend([folder.name] * isinstance(event, StepEvent))

        return train(folder, state, history, should_stop=should_stop, on_event=told)

    monkeypatch.setattr(verdicts, "train_recorded", counted)
    monkeypatch.setattr(verdicts, "examine_state", lambda name, state, _: Examination(name, state.step, (), 0.1))
    return made


def examined(root: Path, steps: int) -> dict[str, int]:
    return {each.subject: each.found.step for each in verdicts.of_trained_presets(root, steps)}


def test_presets_are_trained_to_their_end_long_ones_for_some_updates_and_kept(root, presets, updates):
    found = examined(root, 3)
    assert found == {
        **{f"short, seed {seed}": 8 for seed in range(3)},
        **{f"long, seed {seed}": 3 for seed in range(3)},
        "numbers-reversal-as-reported, seed 0": 4,
    }
    assert list_runs(root) == []  # they are no runs of anybody's
    assert len(updates) == 3 * 8 + 3 * 3 + 4
    updates.clear()
    assert examined(root, 3) == found
    assert updates == []
    assert examined(root, 5)["long, seed 1"] == 5
    assert updates == ["long-seed-0"] * 2 + ["long-seed-1"] * 2 + ["long-seed-2"] * 2


def test_a_preset_that_has_changed_is_trained_anew(root, presets, updates):
    examined(root, 1)
    updates.clear()
    presets["short"] = presets["short"].with_changes({"training.steps": 6})
    assert examined(root, 1)["short, seed 0"] == 6
    assert updates == [f"short-seed-{seed}" for seed in range(3) for _ in range(6)]
    assert RunFolder(root / verdicts.KEPT, "short-seed-0").info().status == "finished"


def test_untrained_presets_are_examined_with_three_seeds_but_for_the_large_and_the_broken(presets):
    found = list(verdicts.of_untrained_presets())
    assert [each.subject for each in found if "seed 0" not in each.subject] == [
        f"{name}, seed {seed}" for name in ("short", "long") for seed in (1, 2)
    ]
    assert [each.found.bugs for each in found if each.truth] == [["no-eos-in-targets"]]
    assert all(each.is_right for each in found)


def examination(light: str, bug: str | None) -> Examination:
    return Examination("it", 5, (Finding("a check", light, "It is so.", 1.0, bug),), 0.5)


@pytest.mark.parametrize(
    ("truth", "light", "bug", "is_right"),
    [
        (None, "green", None, True),
        (None, "amber", None, False),
        (None, "red", "no-positions", False),
        ("no-positions", "red", "no-positions", True),
        ("no-positions", "red", None, False),
        ("no-residual", "red", "no-positions", False),
    ],
)
def test_a_verdict_is_right_if_it_names_what_is_there_and_nothing_else(
    truth, light, bug, is_right, monkeypatch, capsys, tmp_path
):
    verdict = verdicts.Verdict("something", truth, examination(light, bug))
    monkeypatch.setattr(verdicts, "of_bugs", lambda steps: iter([verdict]))
    fine = verdicts.Verdict("something good", None, examination("green", None))
    monkeypatch.setattr(verdicts, "of_untrained_presets", lambda: iter([fine]))
    assert verdict.is_right is is_right
    assert main(["doctor", "--all-bugs", "--json"]) == (0 if is_right else 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("right" if is_right else "MISSED")
    named, alarms = int(bool(truth) and is_right), int(not truth and not is_right)
    assert f"{named} of {int(bool(truth))} that are broken named, {alarms} false alarms" in "\n".join(lines)
    assert [each["right"] for each in json.loads(lines[-1])["parts"]["bugs, untrained"]] == [is_right]


def test_with_steps_the_table_has_both_states(monkeypatch, capsys, tmp_path):
    verdict = verdicts.Verdict("something", None, examination("green", None))
    asked = []
    monkeypatch.setattr(verdicts, "of_bugs", lambda steps: asked.append(steps) or iter([verdict]))
    monkeypatch.setattr(verdicts, "of_untrained_presets", lambda: iter([verdict]))
    monkeypatch.setattr(
        verdicts, "of_trained_presets", lambda root, steps: asked.append((root, steps)) or iter([verdict])
    )
    assert main(["--checkpoints", str(tmp_path), "doctor", "--all-bugs", "--steps", "7"]) == 0
    assert asked == [0, 7, (tmp_path, 7)]
    assert "presets, trained:" in capsys.readouterr().out
