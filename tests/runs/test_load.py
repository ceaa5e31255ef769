"""Loading a run: the loader applies the preset's teaching bug."""

import pytest
import torch

from core.runs import RunError, RunFolder, load_run
from core.runs.run import Runs
from core.runs.training_state import load_state, training_state_of
from core.storage.tensor_file import write_tensors
from core.teaching.bugs import new_state
from tests.support.trainings import train_run


def test_a_run_with_a_bug_is_loaded_with_it(root, tiny):
    preset = tiny.model_copy(update={"bug": "no-causal-mask"})
    folder = RunFolder.create(root, preset, name="broken")
    train_run(folder)
    loaded = load_run(folder.path)
    src = torch.tensor([[1, 4, 5, 2]])
    first, other = torch.tensor([[1, 5, 6]]), torch.tensor([[1, 5, 7]])
    with torch.no_grad():
        logits = [loaded.model(src, tgt_in) for tgt_in in (first, other)]
    logits = [each[0] if isinstance(each, tuple) else each for each in logits]
    assert not torch.equal(logits[0][:, 0], logits[1][:, 0])  # the first position sees later ones


def test_a_loaded_run_has_the_best_weights_in_evaluation_mode(trained):
    loaded = Runs(trained)["done"].trained()
    assert (loaded.run, loaded.kind, loaded.step) == ("done", "best", loaded.facts["step"])
    assert not loaded.model.training
    state = training_state_of(loaded)
    assert state.step == loaded.step
    assert torch.equal(state.model.output.weight, loaded.model.output.weight)
    assert load_state(RunFolder(trained, "done").last, loaded.preset).step == 8


def test_an_ensemble_is_of_one_task(root, tiny):
    for name, changes in (("a", {}), ("b", {"training.seed": 1, "model.d_ff": 24}), ("c", {"task.base": 5})):
        preset = tiny.with_changes(changes)
        train_run(RunFolder.create(root, preset, name=name))
    runs = Runs(root)
    loaded = runs.ensemble(["a", "b"])
    assert (loaded.run, loaded.preset, loaded.model.training) == ("a + b", runs["a"].preset, False)
    assert [model.config.d_ff for model in loaded.model.members] == [tiny.model.d_ff, 24]
    with pytest.raises(RunError, match="run='c' has another task than run='a'; an ensemble has one task"):
        runs.ensemble(["a", "c"])


def test_saved_runs_are_not_loaded_from_outside_their_folder(trained):
    for name in ("../done", str(trained / "done"), "x/../../done"):
        with pytest.raises(RunError, match="is not a valid name"):
            Runs(trained / "done")[name].trained()


def test_weights_without_a_step_are_refused(root, tiny):
    folder = RunFolder.create(root, tiny, name="a")
    write_tensors(folder.best, new_state(tiny).model.state_dict(), {})
    with pytest.raises(RunError, match=r"run='a': best\.safetensors has no step in its metadata"):
        load_run(folder.path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "stopped"}, "has no weights yet; it is stopped"),
        ({"status": "failed"}, "failed before weights were saved"),
        ({"status": "finished", "best_step": 4}, r"has lost its best weights: best\.safetensors is missing"),
    ],
)
def test_a_run_without_weights_cannot_be_loaded(root, tiny, changes, reason):
    folder = RunFolder.create(root, tiny, name="new")
    folder.write_info(folder.read_info().model_copy(update=changes))
    with pytest.raises(RunError, match=f"run='new' {reason}"):
        load_run(root / "new")
