"""Measure runs on the same held-out items and compare them pairwise."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd

from core.evaluation.answers import answer_parts, join_parts
from core.evaluation.bootstrap import PairedBootstrap, paired_bootstraps
from core.evaluation.by_length import AccuracyByLength, collect_lengths, held_out_by_length, measure_lengths
from core.evaluation.error_rates import nearest_reference
from core.evaluation.headline import Headline, headline_of
from core.evaluation.significance import PairedOutcomes, pair_outcomes
from core.evaluation.translation_quality import (
    TranslationQuality,
    answer_text,
    copying_quality,
    reference_texts,
    score_translations,
)
from core.interpret.trained import Trained
from core.models import Seq2Seq, count_parameters
from core.reports.comparison.comparable import RunGroup, check_comparable, differing_settings, group_runs
from core.runs import RunInfo
from core.runs.run import Run
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks import Batch, Task, fixed_pairs


@dataclass(frozen=True)
class ComparisonProgress:
    """Progress of a comparison.

    Attributes:
        done: fraction of the work, 0-1.
        run: the run being measured.
    """

    done: float
    run: str


@dataclass(frozen=True)
class RunMeasurement:
    """Metrics of a run's weights on the held-out items; all but ``curve`` with each item decoded separately.

    Attributes:
        is_exact: whether each item was answered exactly, free-running.
        token_accuracy: free-running, see ``LengthAccuracy``; 0-1.
        token_accuracy_teacher_forced: with the reference so far as decoder input, 0-1.
        loss: teacher-forced, nats per token.
        curve: accuracy by length; None if not requested, or not available for the task.
        translations: the greedy outputs as text, if they are measured by BLEU.
        quality: BLEU and chrF of ``translations``; None if the task's answers have no BLEU.
        token_error_rate: free-running, edits to the nearest references per token of them; None unless it decides.
    """

    is_exact: tuple[bool, ...]
    token_accuracy: float
    token_accuracy_teacher_forced: float
    loss: float
    curve: AccuracyByLength | None
    translations: tuple[str, ...] = ()
    quality: TranslationQuality | None = None
    token_error_rate: float | None = None

    @property
    def exact_match(self) -> float:
        """Fraction of items answered exactly, 0-1."""
        return fmean(self.is_exact)


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs compared.

    Attributes:
        title: the title of the run, or its name if another of the runs has the same title.
        evaluations: see ``History.evaluations``.
    """

    title: str
    loaded: Trained
    info: RunInfo
    parameters: int
    measurement: RunMeasurement
    evaluations: Mapping[str, Sequence[Any]]

    @property
    def name(self) -> str:
        """The run's name."""
        return self.loaded.run


@dataclass(frozen=True)
class PairedComparison:
    """Two of the runs compared item by item; wins are those of ``first``.

    Attributes:
        quality: ``bleu`` and ``chrf`` compared by paired bootstrap resampling; None if the task is not a translation.
    """

    first: str
    second: str
    outcome: PairedOutcomes
    quality: Mapping[str, PairedBootstrap] | None = None


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison.

    Attributes:
        task: summary of the task.
        open_ended: see ``Task.open_ended``; then exact match says nothing.
        sequences: number of held-out items, the same for all runs.
        runs: all runs.
        groups: the runs by their settings; the runs of one group differ only in the seed.
        settings: settings that differ, with the value of each group; see ``differing_settings``.
        pairs: every two of the runs.
        headline: what decides between the runs.
        copying: BLEU and chrF of the untranslated sources; None if the task's answers have no BLEU.
    """

    task: str
    open_ended: bool
    sequences: int
    runs: tuple[ComparedRun, ...]
    groups: tuple[RunGroup, ...]
    settings: Mapping[str, tuple[Any, ...]]
    pairs: tuple[PairedComparison, ...]
    headline: Headline
    copying: TranslationQuality | None = None

    def of(self, group: RunGroup) -> list[ComparedRun]:
        """Return the runs of a group."""
        return [run for run in self.runs if run.name in group.runs]


class MeasurementCache:
    """Earlier measurements, kept for as long as the measured model is in use."""

    def __init__(self) -> None:
        self._measurements: WeakKeyDictionary[Seq2Seq, dict[Hashable, RunMeasurement]] = WeakKeyDictionary()

    def get(self, model: Seq2Seq, items: Hashable) -> RunMeasurement | None:
        """Return the measurement of a model on some items; None if there is none.

        Args:
            items: the key of the items: their number and lengths.
        """
        return self._measurements.get(model, {}).get(items)

    def put(self, model: Seq2Seq, items: Hashable, measurement: RunMeasurement) -> None:
        """Store the measurement of a model on some items."""
        self._measurements.setdefault(model, {})[items] = measurement


def compare(
    runs: Sequence[Run],
    *,
    sequences: int,
    per_length: int = 0,
    lengths: range | None = None,
    cache: MeasurementCache | None = None,
) -> Iterator[ComparisonProgress | Comparison]:
    """Measure runs on the same held-out items, greedily and each item separately, and compare them.

    The caller may stop iterating at any time to cancel.

    Args:
        sequences: number of test items, at least 1; fewer are used if the test set is smaller.
        per_length: number of items of every length; 0 measures no lengths.
        lengths: lengths to measure; None takes those of ``Task.lengths``.
        cache: earlier measurements to reuse and add to.

    Yields:
        ComparisonProgress from time to time, and finally the Comparison.

    Raises:
        InputError: the runs cannot be compared, or their task has no inputs of such lengths.
        RunError: there is no such run, or it has no weights yet.
    """
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise InputError(f"runs={short_repr(','.join(names), 200)} names a run twice")
    check_comparable({run.name: run.preset for run in runs})
    loaded = [run.trained() for run in runs]
    records = [(run.info, run.history.evaluations()) for run in runs]
    titles = [run.title for run in runs]
    cache = cache or MeasurementCache()
    task = loaded[0].task
    pairs = fixed_pairs(task, sequences, split="test")
    sets = held_out_by_length(task, per_length=per_length, lengths=lengths) if per_length else {}
    items = (sequences, per_length, lengths)
    compared: list[ComparedRun] = []
    for each, title, (info, evaluations) in zip(loaded, titles, records, strict=True):
        measurement = cache.get(each.model, items)
        if measurement is None:
            for part in _measure(each, pairs, sets):
                if isinstance(part, RunMeasurement):
                    measurement = part
                else:
                    yield ComparisonProgress((len(compared) + part) / len(loaded), each.run)
            assert measurement is not None  # noqa: S101 - ``_measure`` ends with it
            cache.put(each.model, items, measurement)
        unique_title = title if titles.count(title) == 1 else each.run
        compared.append(ComparedRun(unique_title, each, info, count_parameters(each.model), measurement, evaluations))
    yield _comparison_of(compared, pairs)


def _comparison_of(compared: Sequence[ComparedRun], items: Batch) -> Comparison:
    """Group runs that were measured on the same items, and compare every pair."""
    first = compared[0].loaded
    bootstraps: Mapping[tuple[str, str], Mapping[str, PairedBootstrap]] = {}
    headline = headline_of(first.task)
    if headline.bleu_tokenizer is not None:
        bootstraps = paired_bootstraps(
            {run.name: run.measurement.translations for run in compared},
            reference_texts(first.task, items),
            tokenizer=headline.bleu_tokenizer,
        )
    presets = {run.name: run.loaded.preset for run in compared}
    groups = group_runs(presets, titles={run.name: run.title for run in compared})
    return Comparison(
        task=first.preset.task.summary,
        open_ended=first.task.open_ended,
        sequences=len(compared[0].measurement.is_exact),
        runs=tuple(compared),
        groups=tuple(groups),
        settings=differing_settings([presets[group.runs[0]] for group in groups]),
        pairs=tuple(
            PairedComparison(
                one.name,
                other.name,
                pair_outcomes(one.measurement.is_exact, other.measurement.is_exact),
                bootstraps.get((one.name, other.name)),
            )
            for one, other in combinations(compared, 2)
        ),
        headline=headline,
        copying=copying_quality(first.task, items),
    )


def _measure(loaded: Trained, pairs: Batch, sets: dict[int, Batch]) -> Iterator[float | RunMeasurement]:
    """Yield the finished fraction of the work, 0-1, and finally the measurement."""
    model, task = loaded.model, loaded.task
    total, done = len(pairs) + sum(map(len, sets.values())), 0
    parts: list[pd.DataFrame] = []
    for part in answer_parts(model, task, pairs):
        parts.append(part)
        done += len(part)
        yield done / total
    points = []
    for point in measure_lengths(model, task, sets):
        points.append(point)
        done += point.inputs
        yield done / total
    table = join_parts(parts)
    scored = table.scored_tokens.sum()
    translations: list[str] = []
    quality = None
    headline = headline_of(task)
    if (tokenizer := headline.bleu_tokenizer) is not None:
        translations = [answer_text(task, output) for output in table.output]
        quality = score_translations(translations, reference_texts(task, pairs), tokenizer=tokenizer)
    yield RunMeasurement(
        is_exact=tuple(table.is_exact.tolist()),
        token_accuracy=float(table.correct_tokens.sum() / scored),
        token_accuracy_teacher_forced=float(table.correct_tokens_teacher_forced.sum() / scored),
        loss=float(table.loss.sum() / table.num_tokens.sum()),
        curve=collect_lengths(model, task, sets, points),
        translations=tuple(translations),
        quality=quality,
        token_error_rate=_token_error_rate(task, table) if "token_error_rate" in headline.measures else None,
    )


def _token_error_rate(task: Task, table: pd.DataFrame) -> float:
    """Return the edits from outputs to their nearest references, per token of those."""
    answers = zip(table.output, table.input, table.reference, strict=True)
    nearest = [nearest_reference(output, task.references(source) or [own]) for output, source, own in answers]
    return sum(distance for distance, _ in nearest) / max(1, sum(len(reference) for _, reference in nearest))
