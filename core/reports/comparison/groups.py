"""Groups of runs compared: a measure on the test set, a test between every two groups, and Holm's correction.

``compare`` tests whether two trained models differ; this tests whether two ways to train differ. A run is one value.
"""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

from core.config import Preset
from core.evaluation.accuracy import evaluate
from core.evaluation.group_tests import GroupTest, Measure, Test, compare_groups, holm, smallest_p
from core.evaluation.headline import headline_of
from core.evaluation.significance import Spread, t_interval
from core.reports.comparison.comparable import MAX_GROUPED_RUNS, check_comparable, differing_settings, unfinished
from core.reports.comparison.measurement import ComparisonProgress
from core.runs.run import Runs
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.table import sweep_table
from core.runs.sweeps.trials import value_text
from core.runs.text_tables import aligned, digits_for, interval, latex, number
from core.storage.error_messages import short_repr, shortened
from core.storage.errors import InputError
from core.tasks import fixed_pairs

MAX_PAIRS = 190  # of 20 groups; more with a baseline only
Groups = dict[str, tuple[str, ...]]
"""Names of runs by the label of their group."""


@dataclass(frozen=True)
class MeasuredGroup:
    """A group of runs and their values.

    Attributes:
        label: of the group.
        runs: names of its runs.
        values: the measure of each run on the test set.
        interval: 95 % t interval of the mean.
        mixed: settings other than the seed in which its runs differ.
    """

    label: str
    runs: tuple[str, ...]
    values: tuple[float, ...]
    spread: Spread
    interval: tuple[float, float] | None
    mixed: tuple[str, ...]


@dataclass(frozen=True)
class GroupPair:
    """Two groups compared.

    Attributes:
        p_holm: the p-value adjusted for the number of all pairs; None if the test is not defined.
    """

    first: str
    second: str
    result: GroupTest
    p_holm: float | None


@dataclass(frozen=True)
class GroupComparison:
    """Result of a comparison of groups.

    Attributes:
        measure: what was measured.
        sequences: number of test sequences, the same for all runs.
        groups: in the given order.
        pairs: every two groups, or each with the baseline.
        alike: those pairs whose runs differ in nothing but their seeds.
        unfinished: which runs were not trained to their end, as a sentence; "" if all were.
    """

    measure: Measure
    test: Test
    sequences: int
    groups: tuple[MeasuredGroup, ...]
    pairs: tuple[GroupPair, ...]
    alike: tuple[tuple[str, str], ...] = ()
    unfinished: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return asdict(self) | {"cautions": cautions(self)}


def groups_by_pattern(words: Sequence[str], known: Sequence[str]) -> Groups:
    """Return the groups named by ``LABEL=PATTERN,PATTERN``; without a label, the patterns are the label.

    A pattern may contain ``*`` and ``?``; NAME also stands for NAME-seed-0 and so on.

    Raises:
        InputError: a pattern matches no run, or two groups have the same label or share a run.
    """
    groups: Groups = {}
    for word in words:
        label, _, patterns = word.rpartition("=")
        label = label or patterns
        runs: dict[str, None] = {}
        for pattern in filter(None, patterns.split(",")):
            matching = [name for name in sorted(known) if fnmatchcase(name, pattern)]
            matching = matching or [name for name in sorted(known) if fnmatchcase(name, f"{pattern}-seed-*")]
            if not matching:
                raise InputError(f"--groups {short_repr(word, 100)}: no run is called {short_repr(pattern)}")
            runs |= dict.fromkeys(matching)
        if not label or label in groups:
            raise InputError(f"--groups {short_repr(word, 100)}: every group needs runs and a label of its own")
        groups[label] = tuple(runs)
    _check_disjoint(groups)
    return groups


def groups_of_sweep(folder: SweepFolder, by: Sequence[str]) -> tuple[Groups, int, str]:
    """Return the finished runs of a sweep, grouped by the values of some axes.

    Args:
        by: keys of axes; empty for one group per trial.

    Returns:
        The groups; the number of trials left out because they were pruned or have fewer than two runs; and the sweep's
        metric.

    Raises:
        SweepError: there is no such sweep, or it is damaged.
        InputError: a key is not an axis.
    """
    table = sweep_table(folder)
    axes = list(table.file.sweep.axes)
    if unknown := next((key for key in by if key not in axes), None):
        raise InputError(f"--by={shortened(unknown)} is not an axis of the sweep; its axes are {', '.join(axes)}")
    keys = list(by) or table.axes
    groups: dict[str, list[str]] = {}
    for row in table.rows:
        if row.pruned is None:
            label = ", ".join(f"{key.partition('.')[2]}={value_text(row.settings[key])}" for key in keys)
            groups.setdefault(label, []).extend(row.runs)
    kept = {label: tuple(runs) for label, runs in groups.items() if len(runs) > 1}
    left_out = sum(row.pruned is not None for row in table.rows) + len(groups) - len(kept)
    return kept, left_out, table.file.sweep.goal.metric.removeprefix("validation_")


def compare_run_groups(
    runs: Runs, groups: Groups, *, measure: Measure, test: Test, sequences: int, baseline: str | None = None
) -> Iterator[ComparisonProgress | GroupComparison]:
    """Measure all runs on the same test sequences, and compare their groups.

    Args:
        sequences: number of test sequences; fewer are used if the test set is smaller.
        baseline: label of the group to compare the others with; None compares every pair of groups.

    Yields:
        ComparisonProgress before each run, and finally the GroupComparison.

    Raises:
        InputError: the groups cannot be compared, or the task does not have the measure.
        RunError: there is no such run, or it has no weights yet.
    """
    pairs = _pairs(groups, baseline)
    names = [name for each in groups.values() for name in each]
    if len(names) > MAX_GROUPED_RUNS:
        raise InputError(f"the groups have {len(names)} runs; at most {MAX_GROUPED_RUNS} can be compared")
    presets = {name: runs[name].preset for name in names}
    check_comparable(presets, most=MAX_GROUPED_RUNS)
    mixed = {label: _mixed(label, {name: presets[name] for name in each}) for label, each in groups.items()}
    values: dict[str, float] = {}
    count = 0
    for i, name in enumerate(names):
        yield ComparisonProgress(i / len(names), name)
        values[name], count = _measured(runs, name, measure, sequences)
    measured = [
        _group(label, each, tuple(values[name] for name in each), mixed[label]) for label, each in groups.items()
    ]
    of = {group.label: group.values for group in measured}
    results = [compare_groups(of[first], of[second], test=test) for first, second in pairs]
    adjusted = holm([result.p_value for result in results])
    compared = [GroupPair(*pair, result, p) for pair, result, p in zip(pairs, results, adjusted, strict=True)]
    settings = {label: _settings(runs, each) for label, each in groups.items()}
    alike = tuple((first, second) for first, second in pairs if settings[first] == settings[second])
    not_ended = unfinished((name, runs[name].info) for name in names)
    yield GroupComparison(measure, test, count, tuple(measured), tuple(compared), alike, not_ended)


def cautions(comparison: GroupComparison) -> list[str]:
    """Return the assumptions of the tests and invalid conclusions from them."""
    sizes = {group.label: len(group.values) for group in comparison.groups}
    compared = {tuple(sorted((sizes[pair.first], sizes[pair.second]))) for pair in comparison.pairs}
    smallest, of_sizes = max((smallest_p(*each), each) for each in compared)
    sentences = [
        {
            "welch": "Welch's t-test assumes that the values of a group are drawn independently from a normal "
            "distribution; the 95 % intervals too.",
            "permutation": "The permutation test assumes that runs are drawn independently; its null hypothesis is "
            "that both groups have the same distribution, not only the same mean. The intervals are Welch's.",
        }[comparison.test]
    ]
    if comparison.test == "permutation" and smallest > 0.05 / len(comparison.pairs):
        sentences.append(
            f"Groups of {' and '.join(map(str, of_sizes))} runs cannot have a p-value below {smallest:.2g}, "
            "however different they are: train more seeds."
        )
    if len(comparison.pairs) > 1:
        sentences.append(
            f"p (Holm) is corrected for the {len(comparison.pairs)} pairs of this table, not for other measures, "
            "sweeps or looks; the intervals are not corrected."
        )
    if mixed := [group for group in comparison.groups if group.mixed]:
        keys = dict.fromkeys(key for group in mixed for key in group.mixed)
        sentences.append(
            f"Runs of one group also differ in {', '.join(keys)}, so they are not a random sample: the test "
            "shows whether groups differ beyond that spread, for these settings only."
        )
    sentences += [
        f"No setting differs between {first} and {second}: any difference is one between seeds, or none."
        for first, second in comparison.alike
    ]
    if comparison.unfinished:
        sentences.append(comparison.unfinished)
    if not_finite := [group.label for group in comparison.groups if not all(map(math.isfinite, group.values))]:
        sentences.append(f"Runs of {', '.join(not_finite)} have values that are no finite numbers: there is no test.")
    without_p = [{pair.first, pair.second} for pair in comparison.pairs if pair.result.p_value is None]
    if any(pair.isdisjoint(not_finite) for pair in without_p):
        sentences.append("– where no run of either group differs from its others: the test is not defined then.")
    if not mixed:
        sentences.append("Only seeds vary, so nothing is said about other tasks, sizes or training lengths.")
    fewest, most = min(sizes.values()), max(sizes.values())
    number = str(most) if fewest == most else f"{fewest} to {most}"
    sentences.append(
        "A p-value above 0.05 does not show that groups are equal; "
        f"with {number} runs a group, only large differences show."
    )
    return sentences


# ---- formats


def as_text(comparison: GroupComparison) -> str:
    """Format the groups and their pairs for a terminal."""
    measured, pairs = _cells(comparison)
    note = f"{comparison.measure.replace('_', ' ')} on {comparison.sequences:,} test sequences"
    tables = f"{note}\n{aligned(measured, left=1)}\n\n{aligned(pairs, left=2)}"
    return f"{tables}\n\n" + "\n".join(cautions(comparison))


def as_csv(comparison: GroupComparison) -> str:
    """Format the pairs as CSV, with all digits and the statistics of both groups."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    of = {group.label: group for group in comparison.groups}
    sides = [f"{side}_{name}" for side in ("first", "second") for name in ("runs", "mean", "sd")]
    writer.writerow(["measure", "test", "first", "second", *sides, "difference", "low", "high", "p", "p_holm"])
    for pair in comparison.pairs:
        spreads = [of[label].spread for label in (pair.first, pair.second)]
        figures = [figure for spread in spreads for figure in (spread.n, spread.mean, spread.sd)]
        result = pair.result
        ends = result.interval or (None, None)
        row = [comparison.measure, comparison.test, pair.first, pair.second, *figures]
        writer.writerow([*row, result.difference, *ends, result.p_value, pair.p_holm])
    return text.getvalue().rstrip("\n")


def as_latex(comparison: GroupComparison) -> str:
    """Format groups and pairs as two LaTeX ``tabular``s for the package ``booktabs``."""
    measured, pairs = _cells(comparison)
    return f"{latex(measured, left=1)}\n\n{latex(pairs, left=2)}"


FORMATS: dict[str, Callable[[GroupComparison], str]] = {"text": as_text, "csv": as_csv, "latex": as_latex}


def _cells(comparison: GroupComparison) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of both tables as text."""
    groups = [["group", "runs", "mean", "sd", "95 % t interval"]]
    for group in comparison.groups:
        mean, sd = group.spread.mean, group.spread.sd
        digits = digits_for(mean, sd)
        groups.append(
            [
                group.label,
                str(group.spread.n),
                number(mean, digits),
                number(sd, digits),
                interval(group.interval, digits),
            ]
        )
    pairs = [["first", "second", "difference", "95 % interval", "p", "p (Holm)"]]
    for pair in comparison.pairs:
        ends, difference = pair.result.interval, pair.result.difference
        digits = digits_for(difference, (ends[1] - ends[0]) / 4 if ends else None)
        cells = [number(difference, digits), interval(ends, digits), _p(pair.result.p_value), _p(pair.p_holm)]
        pairs.append([pair.first, pair.second, *cells])
    return groups, pairs


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2g}" if value >= 0.0001 else "< 0.0001"


# ---- groups


def _pairs(groups: Mapping[str, Sequence[str]], baseline: str | None) -> list[tuple[str, str]]:
    """Return the pairs of labels to compare."""
    if len(groups) < 2:
        raise InputError(f"{len(groups)} group{'s' if len(groups) != 1 else ''} with two runs or more: 2 are needed")
    if small := next((label for label, runs in groups.items() if len(runs) < 2), None):
        raise InputError(
            f"group {short_repr(small, 100)} has 1 run; a test between groups needs at least 2 runs of each"
        )
    if baseline is not None and baseline not in groups:
        raise InputError(f"--baseline={shortened(baseline, 100)} is not a group; there are: {', '.join(groups)[:300]}")
    if baseline is not None:
        return [(label, baseline) for label in groups if label != baseline]
    pairs = list(combinations(groups, 2))
    if len(pairs) > MAX_PAIRS:
        raise InputError(
            f"{len(groups)} groups make {len(pairs):,} pairs; at most {MAX_PAIRS} are compared: name a --baseline, or "
            "group a sweep --by fewer axes"
        )
    return pairs


def _check_disjoint(groups: Groups) -> None:
    owner: dict[str, str] = {}
    for label, runs in groups.items():
        for run in runs:
            if run in owner:
                raise InputError(f"run {run!r} is in two groups: {short_repr(owner[run])} and {short_repr(label)}")
            owner[run] = label


def _mixed(label: str, presets: Mapping[str, Preset]) -> tuple[str, ...]:
    """Return the settings in which runs of a group differ.

    Raises:
        InputError: two of them have the same settings and the same seed.
    """
    seen: dict[str, str] = {}
    for name, preset in presets.items():
        key = preset.model_copy(update={"name": "", "description": ""}).model_dump_json()
        if key in seen:
            raise InputError(
                f"group {short_repr(label)}: runs {seen[key]!r} and {name!r} have the same settings and seed; "
                "one training done twice is not two samples"
            )
        seen[key] = name
    return tuple(differing_settings(list(presets.values())))


def _settings(runs: Runs, names: Sequence[str]) -> set[tuple[str, str]]:
    """Return the settings of runs without their seeds, and the weights that they began with."""
    found = set()
    for run in map(runs.__getitem__, names):
        settings = run.preset.with_changes({"training.seed": 0}).model_copy(update={"name": "", "description": ""})
        found.add((settings.model_dump_json(), run.info.start.text if run.info.start else ""))
    return found


def _measured(runs: Runs, name: str, measure: Measure, sequences: int) -> tuple[float, int]:
    """Return a run's measure on the test set, and the number of sequences."""
    loaded = runs[name].trained()
    pairs = fixed_pairs(loaded.task, sequences, split="test")
    evaluation = evaluate(loaded.model, pairs, free_running_loss=measure == "free_running_loss", task=loaded.task)
    value = getattr(evaluation, measure)
    if value is None:
        text, why = f"--measure={measure} is measured for translations only", headline_of(loaded.task).without_bleu
        raise InputError(f"{text}. {why}" if why else text)
    return float(value), evaluation.sequences


def _group(label: str, runs: Sequence[str], values: tuple[float, ...], mixed: tuple[str, ...]) -> MeasuredGroup:
    return MeasuredGroup(label, tuple(runs), values, Spread.of(values), t_interval(values), mixed)
