"""The runs that come with the program open, are small, and are packed with it."""

from pathlib import Path

import pytest

from core.interpret.inspection import inspect
from core.runs import DEFAULT_ROOT, list_runs, load_run

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {"digits-reversal-shipped", "translate-en-de-shipped"}
MOST_BYTES = 8_000_000


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
        ("Click OK to save the document.", "Klicken Sie auf OK, um das Dokument zu speichern."),
        (
            "Opens a dialog where you can select a color.",
            "Öffnet einen Dialog, in dem Sie eine Farbe auswählen können.",
        ),
    ],
)
def test_the_shipped_model_translates_an_example_of_the_page(sentence, translation):
    loaded = load_run(DEFAULT_ROOT / "translate-en-de-shipped")
    assert sentence in loaded.task.examples
    assert loaded.task.answer_text(inspect(loaded.model, loaded.task, sentence).output) == translation
