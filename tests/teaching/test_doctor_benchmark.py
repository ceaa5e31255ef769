"""The doctor benchmark: its table, and the presets it trains once, saves and resumes."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.__main__ import main
from core.cli import doctor_benchmark as benchmark
from core.config import Preset
from core.runs import RunFolder, list_runs
from core.teaching.doctor import Examination, Finding


@pytest.fixture
def presets(tiny, monkeypatch) -> dict[str, Preset]:
    """Presets in place of the project's: a short one, a long one, one with a known bug, one for a GPU."""
    known = {
        "short": tiny,
        "long": tiny.with_changes({"training.steps": benchmark.MAX_UPDATES + 1}),
        "numbers-reversal-as-told": tiny.with_changes({"training.steps": 4}).with_bug("no-eos-in-targets"),
        "base": tiny,
    }
    monkeypatch.setattr(benchmark, "preset_names", lambda: list(known))
    monkeypatch.setattr(benchmark, "load_preset", lambda name: known[name])
    return known


@pytest.fixture
def updates(monkeypatch) -> list[str]:
    """The name of a run for each update made; nothing is examined."""
    names: list[str] = []
    training = benchmark.training

    @contextmanager
    def counting(folder, **options):
        with training(folder, **options) as run:
            before = run.state.step
            yield run
            names.extend([folder.name] * (run.state.step - before))

    monkeypatch.setattr(benchmark, "training", counting)
    monkeypatch.setattr(benchmark, "examine_state", lambda name, state, _: Examination(name, state.step, (), 0.1))
    return names


def examined_steps(root: Path, steps: int) -> dict[str, int]:
    return {each.subject: each.examination.step for each in benchmark.of_trained_presets(root, steps)}


def test_short_presets_are_trained_to_their_end_and_saved(root, presets, updates, monkeypatch):
    monkeypatch.setattr(benchmark, "NUM_SEEDS", 2)
    expected = {
        **{f"short, seed {seed}": 8 for seed in range(2)},
        **{f"long, seed {seed}": 3 for seed in range(2)},
        "numbers-reversal-as-told, seed 0": 4,
    }
    assert examined_steps(root, 3) == expected
    assert list_runs(root) == []  # the page does not list them
    assert len(updates) == 2 * 8 + 2 * 3 + 4
    updates.clear()
    assert examined_steps(root, 3) == expected
    assert updates == []
    assert examined_steps(root, 5)["long, seed 1"] == 5
    assert updates == ["long-seed-0"] * 2 + ["long-seed-1"] * 2


def test_a_changed_preset_is_trained_again(root, presets, updates, monkeypatch):
    monkeypatch.setattr(benchmark, "NUM_SEEDS", 1)
    examined_steps(root, 1)
    updates.clear()
    presets["short"] = presets["short"].with_changes({"training.steps": 6})
    assert examined_steps(root, 1)["short, seed 0"] == 6
    assert updates == ["short-seed-0"] * 6
    assert RunFolder(root / benchmark.FOLDER, "short-seed-0").read_info().status == "finished"


def test_untrained_presets_without_a_bug_are_examined_with_three_seeds(presets, monkeypatch):
    def examine(preset):
        return Examination(preset.name, 0, (Finding("a check", "red", "", 1.0, preset.bug),) if preset.bug else (), 0.1)

    monkeypatch.setattr(benchmark, "examine_preset", examine)
    verdicts = list(benchmark.of_untrained_presets())
    assert [each.subject for each in verdicts if "seed 0" not in each.subject] == [
        f"{name}, seed {seed}" for name in ("short", "long") for seed in (1, 2)
    ]
    assert [each.examination.bugs for each in verdicts if each.expected] == [["no-eos-in-targets"]]
    assert all(each.is_correct for each in verdicts)


def examination(light: str, bug: str | None) -> Examination:
    return Examination("it", 5, (Finding("a check", light, "It is so.", 1.0, bug),), 0.5)


@pytest.mark.parametrize(
    ("expected", "light", "bug", "is_correct"),
    [
        (None, "green", None, True),
        (None, "amber", None, False),
        (None, "red", "no-positions", False),
        ("no-positions", "red", "no-positions", True),
        ("no-positions", "red", None, False),
        ("no-residual", "red", "no-positions", False),
    ],
)
def test_a_verdict_is_correct_if_exactly_the_expected_bug_is_found(
    expected, light, bug, is_correct, monkeypatch, capsys
):
    verdict = benchmark.Verdict("something", expected, examination(light, bug))
    monkeypatch.setattr(benchmark, "of_bugs", lambda steps: iter([verdict]))
    fine = benchmark.Verdict("something good", None, examination("green", None))
    monkeypatch.setattr(benchmark, "of_untrained_presets", lambda: iter([fine]))
    assert verdict.is_correct is is_correct
    assert main(["doctor", "--all-bugs", "--json"]) == (0 if is_correct else 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("correct" if is_correct else "WRONG")
    found, alarms = int(bool(expected) and is_correct), int(not expected and not is_correct)
    assert f"{found} of {int(bool(expected))} bugs found, {alarms} false alarms" in "\n".join(lines)
    assert [each["correct"] for each in json.loads(lines[-1])["parts"]["bugs, untrained"]] == [is_correct]


@pytest.mark.parametrize("is_finished", [True, False])
def test_only_a_finished_training_must_do_its_task(is_finished):
    failed = Examination("it", 5, (Finding("task", "amber", "It does not.", 0.0),), 0.5)
    assert benchmark.Verdict("something", None, failed, is_finished).is_correct is not is_finished
    assert not benchmark.Verdict("something", None, examination("amber", None), is_finished).is_correct


def test_with_steps_the_table_also_has_trained_models(monkeypatch, capsys, tmp_path):
    verdict = benchmark.Verdict("something", None, examination("green", None))
    calls = []
    monkeypatch.setattr(benchmark, "of_bugs", lambda steps: calls.append(steps) or iter([verdict]))
    monkeypatch.setattr(benchmark, "of_untrained_presets", lambda: iter([verdict]))
    monkeypatch.setattr(
        benchmark, "of_trained_presets", lambda root, steps: calls.append((root, steps)) or iter([verdict])
    )
    assert main(["--checkpoints", str(tmp_path), "doctor", "--all-bugs", "--steps", "7"]) == 0
    assert calls == [0, 7, (tmp_path, 7)]
    assert "presets, trained:" in capsys.readouterr().out
