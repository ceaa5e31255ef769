"""Every failure is in one group by kind and one by place, with what is needed to open it."""

import pytest
import torch

from core.config import load_preset
from core.interpret.trained import Trained
from core.reports.report.gallery import EXAMPLES_PER_GROUP, MAX_POSITION, Gallery, find_failures, gallery_as_data
from core.storage.errors import InputError
from core.tasks import build_task
from core.text.vocab import EOS_ID


def right(src: torch.Tensor) -> torch.Tensor:
    """Answer sources of one length, (B, S) int64, by their symbols reversed."""
    return torch.nn.functional.pad(src[:, 1:-1].flip(1), (0, 1), value=EOS_ID)


@pytest.fixture
def loaded(tiny, scripted):
    """Publish a model that answers as it is told to."""

    def make(answers, preset=tiny, **settings) -> Trained:
        return Trained("told", "best", 8, preset, build_task(preset.task), scripted(answers, **settings))

    return make


def found(run: Trained, source="held out", sequences=200) -> Gallery:
    *_, gallery = find_failures(run, source=source, sequences=sequences)
    return gallery


def test_a_model_without_failures_has_an_empty_gallery(loaded):
    assert gallery_as_data(found(loaded(right))) == {
        "inputs": 200,
        "wrong": 0,
        "groupings": {"kind": [], "first wrong token": []},
    }


def test_failures_are_grouped_by_outcome_and_by_the_first_wrong_token(loaded):
    def answers(src):
        written = right(src)
        first = src[:, 1:2] - 3  # the input's first digit decides what goes wrong
        hasty = written.masked_fill(torch.arange(written.shape[1]) >= written.shape[1] - 2, EOS_ID)
        silent = torch.full_like(written, EOS_ID)
        return torch.where(first == 1, hasty, torch.where(first == 2, silent, written))

    gallery = found(loaded(answers))
    (kind,) = gallery.by_outcome
    assert (kind.name, kind.count) == ("stopped early", gallery.wrong)
    assert 20 < gallery.wrong < 60
    assert sum(group.count for group in gallery.by_position) == gallery.wrong
    said = gallery_as_data(gallery)
    for group in said["groupings"]["first wrong token"]:
        for example in group["examples"]:
            assert group["name"] == f"token {example['place'] + 1}"
            assert example["input"][0] == ("2" if example["place"] == 0 and not example["output"] else "1")
            assert example["expected"] == example["input"][::-1]
            assert example["output"] == example["expected"][: example["place"]]


def test_the_largest_group_comes_first_and_examples_are_bounded(loaded):
    def answers(src):
        written = right(src)
        return torch.where(src[:, 1:2] == 3, torch.full_like(written, EOS_ID), torch.full_like(written, 5))

    gallery = found(loaded(answers))
    assert [group.name for group in gallery.by_outcome] == ["never stopped", "stopped early"]
    assert gallery.by_outcome[0].count > EXAMPLES_PER_GROUP == len(gallery.by_outcome[0].examples)


def test_longer_inputs_show_failures_of_a_model_that_has_none_in_training(loaded):
    def answers(src):
        return right(src) if src.shape[1] <= 7 else torch.full((len(src), 1), EOS_ID)

    run = loaded(answers)
    assert found(run).wrong == 0
    gallery = found(run, source="longer")
    assert gallery.wrong == gallery.inputs == 5 * 100  # 6 to 10 digits
    assert gallery.by_outcome[0].examples.length.min() == 6
    assert gallery.by_outcome[0].examples.index.is_unique


def test_late_first_errors_are_one_group(loaded, tiny):
    def forgetful(src):
        return right(src).scatter(1, torch.tensor([[src.shape[1] - 3]]).expand(len(src), 1), EOS_ID)

    preset = tiny.with_changes({"task.max_length": 14, "task.min_length": 14})
    gallery = found(loaded(forgetful, preset=preset))
    assert [group.name for group in gallery.by_position] == [f"token {MAX_POSITION} or later"]


def test_progress_rises_to_the_end(loaded):
    *shares, _ = find_failures(loaded(right), source="longer", sequences=1)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("preset", "source", "reason"),
    [
        ("psalms", "held out", "no single reference answer"),
        ("number-words-german", "longer", "cannot read inputs longer than those it was trained on .7"),
        ("tiny", "upside down", "source='upside down' must be one of held out, longer"),
    ],
)
def test_where_there_can_be_no_failures_the_reason_is_given(loaded, preset, source, reason):
    with pytest.raises(InputError, match=reason):
        found(loaded(right, preset=load_preset(preset)), source=source)


def test_a_model_too_small_for_longer_inputs_says_so(loaded):
    with pytest.raises(InputError, match="cannot read inputs longer"):
        found(loaded(right, max_seq_len=7), source="longer")
