"""Runs that past releases left behind are read, decoded with and continued."""

import shutil
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from core.checkpoint import load_state
from core.files.tensor_file import FORMAT, UNSEALED_FORMAT
from core.models import Seq2Seq
from core.run_folder import RunFolder, check_resumable
from core.run_folder.history import History
from core.run_folder.recording import continued_state, copy_of_weights, load_best, train_recorded
from core.run_folder.replay import Replay
from core.training import new_state, train

PAST = Path(__file__).parent / "past_releases"
RUNS = sorted(path.relative_to(PAST) for path in PAST.glob("*/*"))


@pytest.fixture(params=RUNS, ids=str)
def past(request, tmp_path) -> RunFolder:
    """A run that was stopped after 5 of 8 steps, as a past release left it."""
    shutil.copytree(PAST / request.param, tmp_path / request.param.name)
    return RunFolder(tmp_path, request.param.name)


def test_each_format_that_was_ever_written_is_kept():
    assert {path.parts[0] for path in RUNS} | {FORMAT} == {UNSEALED_FORMAT, FORMAT}


def test_a_past_run_is_listed_with_its_figures(past):
    assert (past.info().status, past.info().step, past.info().best_step) == ("stopped", 5, 4)
    check_resumable(past)
    assert History.load(past.metrics, 8).points()["step"] == [1, 2, 3, 4, 5]
    assert [each.step for each in Replay.load(past.replay, 4).snapshots()] == [0, 4]


def test_its_best_weights_load(past):
    assert load_best(past, new_state(past.preset()).model)["step"] == 4


def felt(model: Seq2Seq) -> dict[str, torch.Tensor]:
    """The weights that change what a model says.

    The bias of keys adds the same to all scores of a query, so its gradient is rounding and nothing else, of which Adam
    makes whole steps.
    """
    return {name: each for name, each in copy_of_weights(model).items() if not name.endswith("w_k.bias")}


def drawn_one_by_one(x: torch.Tensor, p: float, generator: torch.Generator) -> torch.Tensor:
    """What dropout kept in past releases."""
    return torch.empty(x.shape).bernoulli_(1 - p, generator=generator)


def test_it_says_that_its_dropout_is_drawn_otherwise_now(past):
    assert (
        "dropout drawn one by one, now drawn four at once: the rest of the run is not" in continued_state(past).notice
    )


def test_it_goes_on_as_if_it_had_never_stopped_but_for_what_is_dropped_and_becomes_one_of_today(past, monkeypatch):
    monkeypatch.setattr("core.models.dropout._kept", drawn_one_by_one)
    state = continued_state(past)
    assert state.step == 5
    train_recorded(past, state, History(8), should_stop=lambda: False, on_event=lambda event: None)
    straight = new_state(past.preset())
    list(train(straight))
    ended = load_state(past.last, past.preset()).model
    assert_close(felt(ended), felt(straight.model))  # not bit for bit: it was begun on another machine
    assert FORMAT.encode() in past.last.read_bytes()[:10_000]
