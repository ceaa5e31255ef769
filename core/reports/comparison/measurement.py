"""Measure runs on the same held-out items, step by step, and put what was found side by side."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from weakref import WeakKeyDictionary

import pandas as pd

from core.evaluation.answers import answer_parts, join_parts
from core.evaluation.by_length import AccuracyByLength, collect_lengths, held_out_by_length, measure_lengths
from core.evaluation.significance import PairedOutcomes, Spread, pair_outcomes
from core.models import Seq2Seq, count_parameters
from core.reports.comparison.comparable import RunGroup, check_comparable, groups_of, settings_that_differ
from core.runs import RunInfo
from core.runs.load import LoadedRun, RunSource
from core.storage.errors import InputError
from core.tasks import Batch, fixed_pairs


@dataclass(frozen=True)
class ComparisonProgress:
    """How far a comparison is.

    Attributes:
        done: share of the work, 0-1.
        run: which is being measured.
    """

    done: float
    run: str


@dataclass(frozen=True)
class Measurement:
    """What a run's weights do with the held-out items, all but ``curve`` each by itself.

    Attributes:
        is_exact: of each item in turn, whether it was answered exactly, free-running.
        token_accuracy: free-running; see ``LengthAccuracy``. 0-1.
        token_accuracy_fed: teacher-forced: share of tokens predicted right when fed the true answer so far, 0-1.
        loss: nats per token, teacher-forced.
        curve: by length; None unless asked for, or where length says nothing.
    """

    is_exact: tuple[bool, ...]
    token_accuracy: float
    token_accuracy_fed: float
    loss: float
    curve: AccuracyByLength | None

    @property
    def exact_match(self) -> float:
        """Share of items answered exactly, 0-1."""
        return fmean(self.is_exact)


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs compared.

    Attributes:
        evaluations: see ``History.evaluations``.
    """

    loaded: LoadedRun
    info: RunInfo
    parameters: int
    measured: Measurement
    evaluations: Mapping[str, Sequence[float]]

    @property
    def name(self) -> str:
        """The run's name."""
        return self.loaded.run


@dataclass(frozen=True)
class PairedComparison:
    """Two of the runs, item by item; wins are those of ``first``."""

    first: str
    second: str
    outcome: PairedOutcomes


@dataclass(frozen=True)
class Band:
    """A figure of a group's runs along steps or lengths: its mean, and its standard deviation where there are several.

    Attributes:
        at: the steps or lengths that all of the runs have.
    """

    at: tuple[int, ...]
    spreads: tuple[Spread, ...]


@dataclass(frozen=True)
class Comparison:
    """What was found.

    Attributes:
        task: in a few words.
        open_ended: see ``Task.open_ended``: then exact match says nothing.
        sequences: held-out items, the same for all runs.
        groups: the runs by their settings; those of one differ only in the seed.
        settings: those that differ, with the value of each group; see ``settings_that_differ``.
        duels: every two of the runs.
    """

    task: str
    open_ended: bool
    sequences: int
    runs: tuple[ComparedRun, ...]
    groups: tuple[RunGroup, ...]
    settings: Mapping[str, tuple]
    duels: tuple[PairedComparison, ...]

    def of(self, group: RunGroup) -> list[ComparedRun]:
        """Return the runs of a group."""
        return [run for run in self.runs if run.name in group.runs]


class MeasurementCache:
    """What was measured before, for as long as the weights that it is of are in use."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Seq2Seq, dict[Hashable, Measurement]] = WeakKeyDictionary()

    def known(self, model: Seq2Seq, items: Hashable) -> Measurement | None:
        """Return what was measured of a model on some items, told by how many and which; None if it was not."""
        return self._known.get(model, {}).get(items)

    def keep(self, model: Seq2Seq, items: Hashable, measured: Measurement) -> None:
        """Remember what was measured of a model on some items."""
        self._known.setdefault(model, {})[items] = measured


def compare(
    runs: RunSource,
    names: Sequence[str],
    *,
    sequences: int,
    per_length: int = 0,
    lengths: range | None = None,
    measurements: MeasurementCache | None = None,
) -> Iterator[ComparisonProgress | Comparison]:
    """Measure runs on the same held-out items, greedily and each item by itself, and compare them.

    Breaking off between two parts is giving up; nothing is left behind.

    Args:
        sequences: items of the test set, at least 1; fewer are used where there are fewer.
        per_length: items of every length; 0 leaves the lengths out.
        lengths: which; those of ``Task.lengths`` unless given.
        measurements: what was measured before, to be used and added to.

    Yields:
        ComparisonProgress now and then, and at last the Comparison.

    Raises:
        InputError: the runs cannot be compared, or their task has no inputs of such lengths.
        RunError: there is no such run, or it has no weights yet.
    """
    if len(set(names)) < len(names):
        raise InputError(f"runs={','.join(names)[:200]!r} names a run twice")
    check_comparable({name: runs.preset(name) for name in names})
    loaded = [runs.loaded(name) for name in names]
    facts = [(runs.info(name), runs.history(name).evaluations()) for name in names]
    measurements = measurements or MeasurementCache()
    task = loaded[0].task
    pairs = fixed_pairs(task, sequences, split="test")
    sets = held_out_by_length(task, per_length=per_length, lengths=lengths) if per_length else {}
    items = (sequences, per_length, lengths)
    compared: list[ComparedRun] = []
    for each, (info, evaluations) in zip(loaded, facts, strict=True):
        measured = measurements.known(each.model, items)
        if measured is None:
            for part in _measure(each, pairs, sets):
                if isinstance(part, Measurement):
                    measured = part
                else:
                    yield ComparisonProgress((len(compared) + part) / len(loaded), each.run)
            measurements.keep(each.model, items, measured)
        compared.append(ComparedRun(each, info, count_parameters(each.model), measured, evaluations))
    yield _side_by_side(compared)


def band_over(series: Sequence[tuple[Sequence[int], Sequence[float]]]) -> Band:
    """Return mean and spread of series of (places, values), at the places that all of them have."""
    tables = [dict(zip(*each, strict=True)) for each in series]
    at = tuple(place for place in tables[0] if all(place in table for table in tables))
    return Band(at, tuple(Spread.of([table[place] for table in tables]) for place in at))


def _side_by_side(compared: Sequence[ComparedRun]) -> Comparison:
    """RunGroup runs that were measured on the same items, and count the wins and losses of every two."""
    first = compared[0].loaded
    presets = {run.name: run.loaded.preset for run in compared}
    groups = groups_of(presets)
    return Comparison(
        task=first.preset.task.summary,
        open_ended=first.task.open_ended,
        sequences=len(compared[0].measured.is_exact),
        runs=tuple(compared),
        groups=tuple(groups),
        settings=settings_that_differ([presets[group.runs[0]] for group in groups]),
        duels=tuple(
            PairedComparison(one.name, other.name, pair_outcomes(one.measured.is_exact, other.measured.is_exact))
            for one, other in combinations(compared, 2)
        ),
    )


def _measure(loaded: LoadedRun, pairs: Batch, sets: dict[int, Batch]) -> Iterator[float | Measurement]:
    """Yield the share of the work that is done, 0-1, and at last the measurement."""
    model, task = loaded.model, loaded.task
    work, done = len(pairs) + sum(map(len, sets.values())), 0
    parts: list[pd.DataFrame] = []
    for part in answer_parts(model, task, pairs):
        parts.append(part)
        done += len(part)
        yield done / work
    points = []
    for point in measure_lengths(model, task, sets):
        points.append(point)
        done += point.inputs
        yield done / work
    table = join_parts(parts)
    tokens = table.num_tokens.sum()
    yield Measurement(
        is_exact=tuple(table.is_exact.tolist()),
        token_accuracy=float(table.correct_tokens.sum() / tokens),
        token_accuracy_fed=float(table.correct_tokens_teacher_forced.sum() / tokens),
        loss=float(table.loss.sum() / tokens),
        curve=collect_lengths(model, task, sets, points),
    )
