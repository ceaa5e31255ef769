"""A run is an object: read from its folder when asked, kept until a file changes; ``Runs`` is a mapping of them."""

import json
import shutil
from pathlib import Path

import pytest

from core.config import load_preset
from core.runs import DEFAULT_ROOT, Run, RunError, RunFolder, Runs
from core.storage.errors import InputError

SHIPPED = "digits-reversal-shipped"


@pytest.fixture
def trained(trained: Path, tmp_path: Path) -> Path:
    """A copy of the folder with the finished run ``done``, to change."""
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_folder_of_runs_is_a_mapping_newest_first(trained, tiny):
    runs = Runs(trained)
    before = list(runs)
    run = runs.create(tiny, name="newest")
    assert list(runs) == ["newest", *before]
    assert (len(runs), "newest" in runs, "nobody" in runs, "../etc" in runs) == (len(before) + 1, True, False, False)
    assert (run.name, run.info.status, run.preset, run.has_weights) == ("newest", "interrupted", tiny, False)
    assert "newest" in repr(runs)


@pytest.mark.parametrize(("name", "message"), [("nobody", "there is no such run"), ("../etc", "not a valid name")])
def test_a_run_that_does_not_exist_is_refused_by_name(root, name, message):
    with pytest.raises(RunError, match=message):
        Runs(root)[name]


def test_a_relative_folder_is_the_one_meant_when_it_was_passed(tmp_path, monkeypatch, tiny):
    monkeypatch.chdir(tmp_path)
    runs, folder = Runs(Path("runs"), pairs=Path("pairs.tsv")), RunFolder(Path("runs"), "mine")
    run = runs.create(tiny.with_changes({"training.steps": 2, "training.warmup_steps": 1}), name="mine")
    monkeypatch.chdir("/")
    with run.training() as events:
        for _ in events:
            pass
    assert (run.info.status, list(runs), folder.exists()) == ("finished", ["mine"], True)
    assert runs["mine"].pairs == tmp_path / "pairs.tsv"


def test_what_a_run_tells_is_what_its_files_say_now(trained):
    """Each property is read again after its file has changed, and not before."""
    run = Runs(trained)["done"]
    assert run.title == "done"
    run.folder.rename("Mine", others=[])
    assert run.title == "Mine"
    preset, info, history = run.preset, run.info, run.history
    assert run.preset is preset
    assert run.history is history
    file = run.folder.path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"message": "changed"}))
    assert (info.message, run.info.message.partition("; ")[0]) == ("", "changed")
    before = run.size
    (run.folder.path / "more").write_bytes(bytes(1_000))
    assert run.size == before + 1_000


def test_a_run_keeps_its_model_until_its_weights_change(trained):
    runs = Runs(trained)
    one, again = runs["done"].trained(), runs["done"].trained()
    assert one is again
    best = runs["done"].folder.best
    best.write_bytes(best.read_bytes())
    assert runs["done"].trained() is not one


def test_the_model_of_an_earlier_step_has_the_weights_of_that_step():
    run = Runs(DEFAULT_ROOT)[SHIPPED]
    first, *_, last = run.weights_by_step.steps
    untrained, finished = run.trained(step=first), run.trained(step=last)
    assert (untrained.step, untrained.kind, finished.step) == (first, "kept", last)
    assert untrained.evaluate(50).exact_match < 0.1 < finished.evaluate(50).exact_match
    with pytest.raises(RunError, match=r"^step='5' is not one whose weights"):
        run.trained(step="5")
    with pytest.raises(RunError, match=f"^step=7 is not one whose weights run='{SHIPPED}' kept"):
        run.trained(step=7)


def test_a_run_without_weights_says_what_it_is(root, tiny):
    run = Runs(root).create(tiny, name="a")
    with pytest.raises(RunError, match="run='a' has no weights yet; it is interrupted"):
        run.trained()
    assert (run.history.points()["step"], run.replay.snapshots(), run.weights_by_step.steps) == ([], [], ())


def test_a_trained_model_carries_its_interventions_and_leaves_the_cached_one_alone():
    trained = Runs(DEFAULT_ROOT)[SHIPPED].trained()
    without = trained.ablate("cross.2")
    assert trained.decode("4 8 2 9").output == ["9", "2", "8", "4"]
    assert without.decode("4 8 2 9").output != ["9", "2", "8", "4"]
    assert not trained.interventions
    assert Runs(DEFAULT_ROOT)[SHIPPED].trained().model is not without.ablate().model
    with pytest.raises(InputError, match=r"cross\.9"):
        trained.ablate("cross.9")


def test_the_task_of_a_run_is_that_of_its_preset_without_any_weights(own):
    run = Run(RunFolder(own.path.parent, own.name))
    assert run.task().src_vocab.tokens == run.trained().task.src_vocab.tokens
    assert load_preset("tiny") != run.preset
