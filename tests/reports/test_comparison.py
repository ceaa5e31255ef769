"""Runs on the same items: counted by hand, refused where they share none, grouped by everything but the seed."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import torch

from core.config import load_preset, preset_names
from core.evaluation.outputs import with_eos
from core.evaluation.significance import PairedOutcomes
from core.interpret.trained import Trained
from core.reports.comparison import (
    Comparison,
    ComparisonProgress,
    MeasurementCache,
    PairedComparison,
    RunGroup,
    as_data,
    check_comparable,
    compare,
    describe_pair,
    differing_settings,
    format_p,
    format_points,
    group_runs,
    held_out_key,
)
from core.reports.comparison.summary import mean_curve
from core.runs import RunInfo
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
    """Runs that answer as they are told to, with the preset they claim to be of; what ``compare`` asks of a ``Run``."""

    models: dict
    presets: dict
    titles: dict = field(default_factory=dict)  # of the runs that have another than their name

    def __getitem__(self, name):
        preset = self.presets[name]
        trained = Trained(name, "best", 8, preset, build_task(preset.task), self.models[name])
        info = RunInfo(status="finished", seconds=2.0)
        return SimpleNamespace(
            name=name,
            preset=preset,
            title=self.titles.get(name, name),
            info=info,
            history=History(),
            trained=lambda: trained,
        )


@pytest.fixture
def shelf(tiny, scripted) -> Shelf:
    """Three runs: one always right, one wrong where the input begins with 4, one where it does with 4, 5 or 6."""
    answers = {"right": reversed_ids, "four": wrong_after(4), "more": wrong_after(4, 5, 6)}
    seeds = {name: tiny.with_changes({"training.seed": seed}) for seed, name in enumerate(answers)}
    return Shelf({name: scripted(each) for name, each in answers.items()}, seeds)


def compared(shelf: Shelf, *names: str, **settings) -> Comparison:
    *_, comparison = compare([shelf[name] for name in names], sequences=300, **settings)
    return comparison


# --- counting ----------------------------------------------------------------------------------------------------


def test_wins_and_losses_are_counted_item_by_item(shelf, tiny):
    first_digits = fixed_pairs(build_task(tiny.task), 300, split="test").src[:, 1] - 3
    begins = {digit: int((first_digits == digit).sum()) for digit in (4, 5, 6)}
    found = {(pair.first, pair.second): pair.outcome for pair in compared(shelf, "right", "four", "more").pairs}
    none = {"both_correct": 300 - begins[4], "both_wrong": 0}
    assert found["right", "four"] == PairedOutcomes(wins=begins[4], losses=0, **none)
    others = begins[5] + begins[6]
    assert found["four", "more"] == PairedOutcomes(300 - begins[4] - others, others, 0, begins[4])


def test_swapping_runs_swaps_wins_and_losses(shelf):
    (one,), (other,) = (compared(shelf, *names).pairs for names in (("four", "more"), ("more", "four")))
    assert other.outcome == one.outcome.swapped()


def test_metrics_are_those_of_each_run(shelf):
    right, four = compared(shelf, "right", "four").runs
    assert (right.measurement.exact_match, right.measurement.token_accuracy, right.info.seconds) == (1.0, 1.0, 2.0)
    wrong = 1 - four.measurement.exact_match
    assert 0.05 < wrong < 0.2
    assert four.measurement.token_accuracy < 1  # an empty output has no token at the correct position


def test_lengths_are_measured_only_on_request(shelf):
    assert as_data(compared(shelf, "right", "four"))["lengths"] is None
    lengths = as_data(compared(shelf, "right", "four", per_length=20))["lengths"]
    assert lengths["trained"] == [2, 5]
    assert lengths["at"] == list(range(1, 11))
    (both,) = lengths["groups"]  # seeds of the same settings
    assert both["exact_match"]["at"] == list(range(1, 11))
    assert all(0.7 < mean <= 1 for mean in both["exact_match"]["mean"])


def test_progress_rises_to_the_end_and_names_the_measured_run(shelf):
    *events, last = compare([shelf[name] for name in ["right", "four"]], sequences=300, per_length=5)
    assert isinstance(last, Comparison)
    done = [event.done for event in events]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(1.0)
    assert {event.run for event in events if isinstance(event, ComparisonProgress)} == {"right", "four"}


def test_cached_measurements_are_not_repeated(shelf):
    cache = MeasurementCache()
    first = compared(shelf, "right", "four", cache=cache)
    events = list(compare([shelf[name] for name in ["right", "four", "more"]], sequences=300, cache=cache))
    assert {event.run for event in events[:-1]} == {"more"}
    assert events[-1].pairs[0] == first.pairs[0]
    events = list(compare([shelf[name] for name in ["right", "four"]], sequences=200, cache=cache))
    assert len(events) > 1  # other items


# --- which runs can be compared ----------------------------------------------------------------------------------


def test_runs_of_different_tasks_are_refused_with_the_settings_that_differ(tiny):
    pairs, other = load_preset("plurals"), "f" * 64
    data = f"task.data: {pairs.task.data[:12]}… and ffffffffffff…"
    for first, changes, reason in (
        (tiny, {"task.max_length": 6}, "task.max_length: 5 and 6"),
        (tiny, {"task.transform": "copy"}, "task.transform: reverse and copy"),
        (tiny, {"task.family": "words"}, "task.family: digits and words"),
        (tiny, {"task.family": "addition"}, "task.family: digits and addition"),
        (pairs, {"task.data": other, "task.vocabulary": other}, data),
        (pairs, {"task.vocabulary": other}, "task.vocabulary: none and ffffffffffff…"),
    ):
        with pytest.raises(InputError, match="runs 'a' and 'c' have different tasks") as raised:
            check_comparable({"a": first, "b": first, "c": first.with_changes(changes)})
        assert str(raised.value).endswith(f"held-out items ({reason})")


def test_too_few_and_too_many_runs_are_refused(shelf, tiny):
    for names, reason in (([], "0 given"), (["right"], "1 given"), (["four", "four"], "twice")):
        with pytest.raises(InputError, match=reason):
            next(compare([shelf[name] for name in names], sequences=10))
    with pytest.raises(InputError, match="21 given; 2 to 20 runs can be compared"):
        check_comparable({f"run-{number}": tiny for number in range(21)})


def test_settings_that_only_affect_training_data_keep_runs_comparable():
    told, own = load_preset("numbers-reversal-as-told"), load_preset("numbers-reversal")
    own = own.with_changes({"task.min_length": told.task.min_length, "task.max_length": told.task.max_length})
    assert told.task.eos_in_targets != own.task.eos_in_targets
    check_comparable({"told": told, "own": own})


def test_own_pairs_may_have_other_examples_and_another_origin():
    preset = load_preset("plurals")
    check_comparable({"one": preset, "two": preset.with_changes({"task.origin": "a file", "task.examples": "Hello."})})
    with pytest.raises(InputError, match=r"\(task.split_seed: 0 and 1\)"):
        check_comparable({"one": preset, "two": preset.with_changes({"task.examples": "Hello.", "task.split_seed": 1})})


def test_equal_keys_mean_the_same_vocabulary_and_items():
    tasks = {load_preset(name).task for name in preset_names()}
    tasks.add(load_preset("numbers-reversal").task.model_copy(update={"eos_in_targets": False}))
    by_key: dict = {}
    for task in tasks:
        by_key.setdefault(held_out_key(task), []).append(task)
    shared = [configs for configs in by_key.values() if len(configs) > 1]
    assert shared
    for configs in shared:
        built = [build_task(task) for task in configs]
        assert len({(each.src_vocab.tokens, each.tgt_vocab.tokens) for each in built}) == 1
        first, *others = (fixed_pairs(each, 30, split="test") for each in built)
        for other in others:
            assert torch.equal(first.src, other.src)
            one, two = (with_eos(each.tgt) for each in (first, other))
            assert torch.equal(one[one != PAD_ID], two[two != PAD_ID])


# --- groups and settings -----------------------------------------------------------------------------------------


def grouped(presets: dict, **titles: str) -> list[RunGroup]:
    return group_runs(presets, titles={name: titles.get(name, name) for name in presets})


def test_runs_that_differ_only_in_the_seed_form_a_group(tiny):
    presets = {f"rev-seed-{seed}": tiny.with_changes({"training.seed": seed}) for seed in (0, 1)}
    presets["fast-fox"] = tiny.with_changes({"training.learning_rate": 0.02})
    presets["calm-fox"] = tiny.with_changes({"training.seed": 5})
    groups = grouped(presets)
    assert [group.runs for group in groups] == [("rev-seed-0", "rev-seed-1", "calm-fox"), ("fast-fox",)]
    assert [group.label for group in groups] == ["rev-seed-0 and 2 more", "fast-fox"]
    assert groups[0].seeds == (0, 1, 5)
    assert grouped({name: presets[name] for name in ("rev-seed-0", "rev-seed-1")})[0].label == "rev"


def test_a_group_is_labeled_with_a_title(tiny):
    other = tiny.with_changes({"training.learning_rate": 0.02})
    labels = [group.label for group in grouped({"a": tiny, "b": other}, b="Ten times faster")]
    assert labels == ["a", "Ten times faster"]
    (group,) = grouped({"a": tiny, "b": tiny.with_changes({"training.seed": 1})}, a="First")
    assert group.label == "First and 1 more"


def test_the_same_training_done_twice_is_not_a_second_sample(tiny):
    assert [group.runs for group in grouped({"a": tiny, "b": tiny})] == [("a",), ("b",)]


def test_the_name_of_a_preset_does_not_separate_runs(tiny):
    other = tiny.with_changes({"training.seed": 1}).model_copy(update={"name": "other", "description": "another"})
    assert len(grouped({"a": tiny, "b": other})) == 1
    assert differing_settings([tiny, other]) == {}


def test_groups_with_the_same_label_get_distinct_ones(tiny):
    presets = {f"rev-seed-{seed}": tiny.with_changes({"training.seed": seed}) for seed in range(4)}
    fast = {name: preset.with_changes({"training.learning_rate": 0.02}) for name, preset in presets.items()}
    mixed = dict(list(presets.items())[:2] + list(fast.items())[2:])
    assert [group.label for group in grouped(mixed)] == ["rev-seed-0 and 1 more", "rev-seed-2 and 1 more"]


def test_only_the_settings_that_differ_are_returned(tiny, tiny_gru):
    other = tiny.with_changes({"training.learning_rate": 0.02, "training.seed": 3})
    assert differing_settings([tiny, other]) == {"training.learning_rate": (0.01, 0.02)}
    families = differing_settings([tiny, tiny_gru, tiny])
    assert families["model.family"] == ("transformer", "gru", "transformer")
    assert families["model.d_hidden"] == (None, 12, None)
    assert "model.max_seq_len" not in families


def test_a_bug_is_a_difference_and_separates_runs(tiny):
    broken = tiny.with_bug("pad-attended-to").with_changes({"training.seed": 1})
    assert differing_settings([tiny, broken]) == {"bug": (None, "pad-attended-to")}
    assert len(grouped({"a": tiny, "b": broken})) == 2


def test_mean_curve_covers_the_steps_that_all_runs_have():
    curve = mean_curve([([0, 10, 20], [1.0, 0.5, 0.2]), ([0, 10], [3.0, 0.7])])
    assert curve["at"] == [0, 10]
    assert curve["mean"] == [2.0, pytest.approx(0.6)]
    assert curve["sd"][0] == pytest.approx(2**0.5)
    assert mean_curve([([5], [1.0])])["sd"] == [None]
    assert mean_curve([([], []), ([1], [1.0])])["at"] == []


# --- sentences -------------------------------------------------------------------------------------------------------


def test_a_clear_winner_is_named_whichever_side_it_is_on():
    outcome = PairedOutcomes(both_correct=900, wins=80, losses=10, both_wrong=10)
    for pair in (PairedComparison("a", "b", outcome), PairedComparison("b", "a", outcome.swapped())):
        text = describe_pair(pair)
        assert "so a is significantly better on inputs like these" in text
        assert "p < 0.001 (exact McNemar test)" in text
        assert "on 910 of 1,000 both are correct or both wrong" in text
    assert "a is correct on 80 inputs that b gets wrong, and b on 10 that a gets wrong" in describe_pair(
        PairedComparison("a", "b", outcome)
    )


def test_a_difference_that_could_be_chance_is_not_called_significant():
    text = describe_pair(PairedComparison("a", "b", PairedOutcomes(990, 1, 2, 7)))
    assert "so the difference is not significant" in text
    assert "correct on 1 input that" in text


def test_runs_that_never_differ_are_reported_as_equal():
    text = describe_pair(PairedComparison("a", "b", PairedOutcomes(998, 0, 0, 2)))
    assert "answer the same inputs correctly, 998 of 1,000" in text
    assert "0.0 points (95 % confidence interval \N{MINUS SIGN}0.4 to +0.4)" in text


def test_numbers_have_only_meaningful_digits():
    for p, text in ((0.0321, "p = 0.032"), (1.0, "p = 1"), (0.0009, "p < 0.001"), (0.5, "p = 0.5"), (0.0, "p < 0.001")):
        assert format_p(p) == text
    for items, text in ((100, "+10"), (1_000, "+10.0"), (10_000, "+10.00"), (90_000, "+10.00")):
        assert format_points(PairedOutcomes(0, items // 10, 0, items - items // 10))[0] == text


def test_sentences_name_runs_by_their_titles_unless_two_are_the_same(shelf):
    titled = replace(shelf, titles={"right": "Always right", "four": "Not four"})
    result = as_data(compared(titled, "right", "four"))
    assert [each["title"] for each in result["runs"]] == ["Always right", "Not four"]
    assert [each["run"] for each in result["runs"]] == ["right", "four"]
    assert "Always right is correct on" in result["pairs"][0]["in_words"]
    assert (result["pairs"][0]["first"], result["pairs"][0]["second"]) == ("right", "four")
    alike = replace(shelf, titles=dict.fromkeys(("right", "four"), "Same"))
    assert [each["title"] for each in as_data(compared(alike, "right", "four"))["runs"]] == ["right", "four"]


def test_cautions_depend_on_the_comparison(shelf):
    assert "pairs" not in " ".join(as_data(compared(shelf, "right", "four"))["cautions"])
    comparison = compared(shelf, "right", "four", "more")
    assert "3 pairs are tested" in " ".join(as_data(comparison)["cautions"])
    assert "exact match says nothing" in as_data(replace(comparison, open_ended=True))["cautions"][0]
    stopped = replace(comparison.runs[1], info=RunInfo(status="stopped", step=1_200))
    words = "Not trained to the end: four (stopped at step 1,200). They count as the others do."
    runs = (comparison.runs[0], stopped, comparison.runs[2])
    assert words in as_data(replace(comparison, runs=runs))["cautions"]
    assert "Not trained" not in " ".join(as_data(comparison)["cautions"])
