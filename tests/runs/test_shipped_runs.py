"""The runs that come with the program open, are small, and are packed with it."""

from pathlib import Path

import pytest

from core.interpret.inspection import inspect
from core.runs import DEFAULT_ROOT, list_runs, load_run
from core.tasks.ingest.tatoeba import ATTRIBUTION

ROOT = Path(__file__).resolve().parents[2]
TRANSLATOR = "translate-en-de-shipped"
SHIPPED = {"digits-reversal-shipped", "induction-shipped", TRANSLATOR}
MOST_BYTES = 10_000_000


def test_git_and_the_container_keep_exactly_the_shipped_runs():
    assert {folder.name for folder in list_runs(DEFAULT_ROOT) if folder.read_info().shipped} == SHIPPED
    for file in (".gitignore", ".dockerignore"):
        kept = {line.strip("!/") for line in (ROOT / file).read_text().splitlines() if line.startswith("!")}
        assert kept == {f"checkpoints/{name}" for name in SHIPPED}, file


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_run_is_small_and_has_only_what_is_needed(name):
    files = {path.name: path.stat().st_size for path in (DEFAULT_ROOT / name).iterdir() if path.name != ".lock"}
    assert sum(files.values()) <= MOST_BYTES
    assert not [file for file in files if file.startswith("last.") or ".previous" in file]
    assert "replay.safetensors" in files  # the page shows how it learned


@pytest.mark.parametrize(
    ("sentence", "translation"),
    [
        ("We can't start today.", "Wir können heute nicht anfangen."),
        ("I've lost my glasses.", "Ich habe meine Brille verloren."),
    ],
)
def test_the_shipped_model_translates_an_example_of_the_page(sentence, translation):
    loaded = load_run(DEFAULT_ROOT / TRANSLATOR)
    assert sentence in loaded.task.examples
    assert loaded.task.answer_text(inspect(loaded.model, loaded.task, sentence).output) == translation


def test_the_shipped_model_names_its_source_and_has_no_pairs():
    folder = DEFAULT_ROOT / TRANSLATOR
    task = load_run(folder).preset.task
    assert ATTRIBUTION in task.origin
    assert ATTRIBUTION in task.summary  # which the page shows beside the run's name
    assert ATTRIBUTION in (folder / "README.md").read_text(encoding="utf-8")
    assert not (folder / "pairs.tsv").exists()
