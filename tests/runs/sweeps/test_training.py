"""One run of a sweep: as it is alone, from where it stopped, and to its budget."""

import pytest
import torch

from core.runs import RunError, RunFolder
from core.runs.sweeps.folder import is_done, run_state
from core.runs.sweeps.training import reported, sweep_training
from core.storage.tensor_file import read_tensors
from tests.runs.sweeps.conftest import make_sweep
from tests.support.trainings import train_run


def weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    return read_tensors(folder.last)[0]


def test_it_trains_as_a_run_alone_does_also_when_it_was_stopped(root, tiny):
    alone = RunFolder.create(root, tiny, name="alone")
    train_run(alone)
    swept = RunFolder(root, "swept")
    torch.set_num_threads(2)  # of the caller; the run takes one
    with sweep_training(swept, tiny) as run:
        for event in run:
            if event.step == 3:
                run.reason = "enough"
                break
    assert (run.info.status, run.info.step, swept.read_info().message) == ("stopped", 3, "enough")
    assert run_state(swept, make_sweep()) == "broken off"
    with sweep_training(swept, tiny) as run:
        reports = list(reported(run, minutes=None, reasons=[]))
    assert run.info.status == "finished"
    assert all(torch.equal(tensor, weights(swept)[name]) for name, tensor in weights(alone).items())
    assert {session.threads for session in swept.read_info().provenance} == {1}
    assert swept.read_info().validation == alone.read_info().validation is not None
    assert [report["evaluation"] for report in reports] == [1, 2]
    assert reports[1]["figures"]["exact_match"] == alone.read_info().exact_match


def test_a_run_ends_after_its_minutes_and_is_done_then(root, tiny):
    folder = RunFolder(root, "a")
    with sweep_training(folder, tiny) as run:
        assert list(reported(run, minutes=1e-9, reasons=[])) == []
    assert (run.info.status, run.info.step) == ("stopped", 1)
    assert folder.read_info().message == "trained for the 1e-09 minutes of its sweep"
    assert is_done(folder.read_info(), make_sweep(goal={"minutes": 1e-9}))
    assert not is_done(folder.read_info(), make_sweep(goal={"minutes": 5}))
    assert not is_done(folder.read_info(), make_sweep())


def test_a_run_of_another_preset_is_left_alone(root, tiny, trained):
    with pytest.raises(RunError, match="run='done' exists already, with another preset"):
        sweep_training(RunFolder(trained, "done"), tiny.with_changes({"training.seed": 5}))
    assert RunFolder(trained, "done").read_info().status == "finished"


def test_a_reason_that_comes_with_an_evaluation_stops_the_run_after_its_next_update(root, tiny):
    folder, reasons = RunFolder(root, "a"), []
    with sweep_training(folder, tiny) as run:
        for report in reported(run, minutes=5, reasons=reasons):
            reasons.append(f"pruned at {report['evaluation']}")
    assert (folder.read_info().status, folder.read_info().step, folder.read_info().message) == (
        "stopped",
        5,
        "pruned at 1",
    )
