"""Runs on the same items: counted by hand, refused where they share none, grouped by everything but the seed."""

from dataclasses import dataclass, replace

import pytest
import torch

from core.config import load_preset, preset_names
from core.evaluation.accuracy import with_eos
from core.evaluation.significance import PairedOutcomes
from core.reports.comparison import (
    Comparison,
    ComparisonProgress,
    MeasurementCache,
    PairedComparison,
    as_data,
    band_over,
    check_comparable,
    compare,
    duel_in_words,
    groups_of,
    held_out_key,
    p_in_words,
    points_in_words,
    settings_that_differ,
)
from core.runs import RunInfo
from core.runs.load import LoadedRun
from core.storage.errors import InputError
from core.tasks import build_task, fixed_pairs
from core.text.vocab import EOS_ID, PAD_ID
from core.training.history import History


def reversed_ids(src: torch.Tensor) -> torch.Tensor:
    """Answer sources of one length, (B, S) int64, by their symbols reversed."""
    return torch.nn.functional.pad(src[:, 1:-1].flip(1), (0, 1), value=EOS_ID)


def wrong_after(*digits: int):
    """Reverse, but say nothing to inputs that begin with one of some digits."""

    def answers(src: torch.Tensor) -> torch.Tensor:
        begins = torch.tensor([digit + 3 for digit in digits])
        return reversed_ids(src).masked_fill(torch.isin(src[:, 1:2], begins), EOS_ID)

    return answers


@dataclass
class Shelf:
    """Runs that answer as they are told to, with the preset they claim to be of; what ``compare`` asks of ``Runs``."""

    models: dict
    presets: dict

    def preset(self, name):
        return self.presets[name]

    def loaded(self, name):
        preset = self.presets[name]
        return LoadedRun(name, "best", 8, preset, build_task(preset.task), self.models[name])

    def info(self, name):
        return RunInfo(status="finished", seconds=2.0)

    def history(self, name):
        return History(8)


@pytest.fixture
def shelf(tiny, scripted) -> Shelf:
    """Three runs: one always right, one wrong where the input begins with 4, one where it does with 4, 5 or 6."""
    answers = {"right": reversed_ids, "four": wrong_after(4), "more": wrong_after(4, 5, 6)}
    seeds = {name: tiny.with_changes({"training.seed": place}) for place, name in enumerate(answers)}
    return Shelf({name: scripted(each) for name, each in answers.items()}, seeds)


def compared(shelf: Shelf, *names: str, **settings) -> Comparison:
    *_, comparison = compare(shelf, names, sequences=300, **settings)
    return comparison


# --- counting ----------------------------------------------------------------------------------------------------


def test_wins_and_losses_are_those_of_the_very_items(shelf, tiny):
    first_digits = fixed_pairs(build_task(tiny.task), 300, split="test").src[:, 1] - 3
    begins = {digit: int((first_digits == digit).sum()) for digit in (4, 5, 6)}
    found = {(duel.first, duel.second): duel.outcome for duel in compared(shelf, "right", "four", "more").duels}
    none = {"both_correct": 300 - begins[4], "both_wrong": 0}
    assert found["right", "four"] == PairedOutcomes(wins=begins[4], losses=0, **none)
    others = begins[5] + begins[6]
    assert found["four", "more"] == PairedOutcomes(300 - begins[4] - others, others, 0, begins[4])


def test_swapping_runs_swaps_wins_and_losses(shelf):
    (one,), (other,) = (compared(shelf, *names).duels for names in (("four", "more"), ("more", "four")))
    assert other.outcome == one.outcome.swapped()


def test_figures_are_those_of_each_run(shelf):
    right, four = compared(shelf, "right", "four").runs
    assert (right.measured.exact_match, right.measured.token_accuracy, right.info.seconds) == (1.0, 1.0, 2.0)
    wrong = 1 - four.measured.exact_match
    assert 0.05 < wrong < 0.2
    assert four.measured.token_accuracy < 1  # of an answer of nothing but EOS no token stands where it should


def test_lengths_are_measured_for_all_or_none(shelf):
    assert as_data(compared(shelf, "right", "four"))["lengths"] is None
    lengths = as_data(compared(shelf, "right", "four", per_length=20))["lengths"]
    assert lengths["trained"] == [2, 5]
    assert lengths["at"] == list(range(1, 11))
    (both,) = lengths["groups"]  # seeds of the same settings
    assert both["exact_match"]["at"] == list(range(1, 11))
    assert all(0.7 < mean <= 1 for mean in both["exact_match"]["mean"])


def test_progress_rises_to_the_end_and_names_who_is_measured(shelf):
    *events, last = compare(shelf, ["right", "four"], sequences=300, per_length=5)
    assert isinstance(last, Comparison)
    done = [event.done for event in events]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(1.0)
    assert {event.run for event in events if isinstance(event, ComparisonProgress)} == {"right", "four"}


def test_what_was_measured_is_not_measured_again_while_its_weights_are_in_use(shelf):
    known = MeasurementCache()
    first = compared(shelf, "right", "four", measurements=known)
    events = list(compare(shelf, ["right", "four", "more"], sequences=300, measurements=known))
    assert {event.run for event in events[:-1]} == {"more"}
    assert events[-1].duels[0] == first.duels[0]
    events = list(compare(shelf, ["right", "four"], sequences=200, measurements=known))
    assert len(events) > 1  # other items


# --- who can be compared -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task.max_length": 6}, "task.max_length: 5 and 6"),
        ({"task.transform": "copy"}, "task.transform: reverse and copy"),
        ({"task.family": "words"}, "task.family: digits and words"),
        ({"task.family": "addition"}, "task.max_digits: none and 3"),
    ],
)
def test_runs_of_different_tasks_are_refused_and_what_differs_is_named(tiny, changes, reason):
    with pytest.raises(InputError, match="runs 'a' and 'c' are of different tasks") as raised:
        check_comparable({"a": tiny, "b": tiny, "c": tiny.with_changes(changes)})
    assert reason in str(raised.value)


@pytest.mark.parametrize(("names", "reason"), [([], "0 named"), (["right"], "1 named"), (["four", "four"], "twice")])
def test_too_few_runs_are_refused(shelf, names, reason):
    with pytest.raises(InputError, match=reason):
        next(compare(shelf, names, sequences=10))


def test_too_many_runs_are_refused(tiny):
    with pytest.raises(InputError, match="21 named, where 2 to 20 can be compared"):
        check_comparable({f"run-{number}": tiny for number in range(21)})


def test_what_only_training_sees_makes_no_other_task():
    told, own = load_preset("numbers-reversal-as-reported"), load_preset("numbers-reversal")
    own = own.with_changes({"task.min_length": told.task.min_length, "task.max_length": told.task.max_length})
    assert told.task.eos_in_targets != own.task.eos_in_targets
    check_comparable({"told": told, "own": own})


def test_equal_keys_mean_the_same_vocabulary_and_items():
    tasks = {name: load_preset(name).task for name in preset_names()}
    tasks["without-eos"] = tasks["numbers-reversal"].model_copy(update={"eos_in_targets": False})
    by_key: dict = {}
    for task in tasks.values():
        by_key.setdefault(held_out_key(task), []).append(task)
    assert any(len(same) > 1 for same in by_key.values())
    for same in by_key.values():
        built = [build_task(task) for task in same[:2]]
        assert len({(each.src_vocab.tokens, each.tgt_vocab.tokens) for each in built}) == 1
        pairs = [fixed_pairs(each, 30, split="test") for each in built]
        assert torch.equal(pairs[0].src, pairs[-1].src)
        first, last = (with_eos(each.tgt) for each in (pairs[0], pairs[-1]))
        assert torch.equal(first[first != PAD_ID], last[last != PAD_ID])


# --- groups and settings -----------------------------------------------------------------------------------------


def test_runs_that_differ_in_their_seed_only_are_a_group(tiny):
    presets = {f"rev-seed-{seed}": tiny.with_changes({"training.seed": seed}) for seed in (0, 1)}
    presets["fast-fox"] = tiny.with_changes({"training.learning_rate": 0.02})
    presets["calm-fox"] = tiny.with_changes({"training.seed": 5})
    groups = groups_of(presets)
    assert [group.runs for group in groups] == [("rev-seed-0", "rev-seed-1", "calm-fox"), ("fast-fox",)]
    assert [group.label for group in groups] == ["rev-seed-0 and 2 more", "fast-fox"]
    assert groups[0].seeds == (0, 1, 5)
    assert groups_of({name: presets[name] for name in ("rev-seed-0", "rev-seed-1")})[0].label == "rev"


def test_the_same_training_twice_is_no_second_sample(tiny):
    assert [group.runs for group in groups_of({"a": tiny, "b": tiny})] == [("a",), ("b",)]


def test_a_preset_by_another_name_is_the_same_settings(tiny):
    other = tiny.with_changes({"training.seed": 1}).model_copy(update={"name": "other", "description": "another"})
    assert len(groups_of({"a": tiny, "b": other})) == 1
    assert settings_that_differ([tiny, other]) == {}


def test_groups_given_the_same_name_are_told_apart(tiny):
    presets = {f"rev-seed-{seed}": tiny.with_changes({"training.seed": seed}) for seed in range(4)}
    fast = {name: preset.with_changes({"training.learning_rate": 0.02}) for name, preset in presets.items()}
    mixed = dict(list(presets.items())[:2] + list(fast.items())[2:])
    assert [group.label for group in groups_of(mixed)] == ["rev-seed-0 and 1 more", "rev-seed-2 and 1 more"]


def test_only_the_settings_that_differ_are_told(tiny, tiny_gru):
    other = tiny.with_changes({"training.learning_rate": 0.02, "training.seed": 3})
    assert settings_that_differ([tiny, other]) == {"training.learning_rate": (0.01, 0.02)}
    families = settings_that_differ([tiny, tiny_gru, tiny])
    assert families["model.family"] == ("transformer", "gru", "transformer")
    assert families["model.d_hidden"] == (None, 12, None)
    assert "model.max_seq_len" not in families


def test_a_band_is_over_the_places_that_all_have():
    band = band_over([([0, 10, 20], [1.0, 0.5, 0.2]), ([0, 10], [3.0, 0.7])])
    assert band.at == (0, 10)
    assert [spread.mean for spread in band.spreads] == [2.0, pytest.approx(0.6)]
    assert band.spreads[0].sd == pytest.approx(2**0.5)
    assert band_over([([5], [1.0])]).spreads[0].sd is None
    assert band_over([([], []), ([1], [1.0])]).at == ()


# --- words -------------------------------------------------------------------------------------------------------


def test_a_clear_winner_is_named_whichever_side_it_is_on():
    outcome = PairedOutcomes(both_correct=900, wins=80, losses=10, both_wrong=10)
    for duel in (PairedComparison("a", "b", outcome), PairedComparison("b", "a", outcome.swapped())):
        said = duel_in_words(duel)
        assert "so a is better at inputs like these" in said
        assert "p < 0.001 (exact McNemar test)" in said
        assert "on 910 of 1,000 both do alike" in said
    assert "a is right on 80 inputs that b gets wrong, and b on 10 that a gets wrong" in duel_in_words(
        PairedComparison("a", "b", outcome)
    )


def test_what_could_be_chance_is_not_called_a_difference():
    said = duel_in_words(PairedComparison("a", "b", PairedOutcomes(990, 1, 2, 7)))
    assert "do not tell them apart" in said
    assert "right on 1 input that" in said


def test_runs_that_never_differ_are_said_to_be_alike():
    said = duel_in_words(PairedComparison("a", "b", PairedOutcomes(998, 0, 0, 2)))
    assert "right on the same inputs, 998 of 1,000" in said
    assert "0.0 points (95 % confidence interval \N{MINUS SIGN}0.4 to +0.4)" in said


@pytest.mark.parametrize(
    ("p", "written"),
    [(0.0321, "p = 0.032"), (1.0, "p = 1"), (0.0009, "p < 0.001"), (0.5, "p = 0.5"), (0.0, "p < 0.001")],
)
def test_a_p_has_no_false_digits(p, written):
    assert p_in_words(p) == written


@pytest.mark.parametrize(("items", "written"), [(100, "+10"), (1_000, "+10.0"), (10_000, "+10.00"), (90_000, "+10.00")])
def test_points_have_as_many_digits_as_the_items_allow(items, written):
    assert points_in_words(PairedOutcomes(0, items // 10, 0, items - items // 10))[0] == written


def test_cautions_fit_what_was_compared(shelf):
    assert "pairs" not in " ".join(as_data(compared(shelf, "right", "four"))["cautions"])
    comparison = compared(shelf, "right", "four", "more")
    assert "3 pairs are tested" in " ".join(as_data(comparison)["cautions"])
    assert "exact match says nothing" in as_data(replace(comparison, open_ended=True))["cautions"][0]
