"""One run of a sweep: as it is alone, from where it stopped, and to its budget."""

import pytest
import torch

from core.runs import RunError, RunFolder
from core.runs.recorder import train_recorded
from core.runs.sweeps.folder import is_done, run_state
from core.runs.sweeps.training import train_run
from core.storage.tensor_file import read_tensors
from core.teaching.bugs import new_state
from core.training.history import History
from tests.runs.sweeps.conftest import make_sweep


def weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    return read_tensors(folder.last)[0]


def test_it_trains_as_a_run_alone_does_also_when_it_was_stopped(root, tiny):
    alone = RunFolder.create(root, tiny, name="alone")
    train_recorded(alone, new_state(tiny), History())
    swept = RunFolder(root, "swept")
    torch.set_num_threads(2)  # of the caller; the run takes one
    stops = iter([False, False, True])
    info = train_run(swept, tiny, reason_to_stop=lambda: "enough" if next(stops) else "")
    assert (info.status, info.step, swept.info().message) == ("stopped", 3, "enough")
    assert run_state(swept, make_sweep()) == "broken off"
    reported = []
    assert (
        train_run(swept, tiny, report=lambda number, figures: reported.append((number, figures))).status == "finished"
    )
    assert all(torch.equal(tensor, weights(swept)[name]) for name, tensor in weights(alone).items())
    assert {session.threads for session in swept.info().provenance} == {1}
    assert swept.info().validation == alone.info().validation is not None
    assert [number for number, _ in reported] == [1, 2]
    assert reported[1][1]["exact_match"] == alone.info().exact_match


def test_a_run_ends_after_its_minutes_and_is_done_then(root, tiny):
    folder = RunFolder(root, "a")
    info = train_run(folder, tiny, minutes=1e-9)
    assert (info.status, info.step) == ("stopped", 1)
    assert folder.info().message == "trained for the 1e-09 minutes of its sweep"
    assert is_done(folder.info(), make_sweep(goal={"minutes": 1e-9}))
    assert not is_done(folder.info(), make_sweep(goal={"minutes": 5}))
    assert not is_done(folder.info(), make_sweep())


def test_a_run_of_another_preset_is_left_alone(root, tiny, trained):
    with pytest.raises(RunError, match="run='done' exists already, with another preset"):
        train_run(RunFolder(trained, "done"), tiny.with_changes({"training.seed": 5}))
