"""Summarize a comparison: sentences for people, plain data for programs and the page."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from core.config.counting import counted, percent
from core.evaluation.accuracy import perplexity
from core.evaluation.bootstrap import RESAMPLES, SEED, PairedBootstrap
from core.evaluation.by_length import AccuracyByLength
from core.evaluation.headline import Headline
from core.evaluation.significance import PairedOutcomes, Spread
from core.reports.comparison.comparable import RunGroup, unfinished
from core.reports.comparison.measurement import ComparedRun, Comparison, PairedComparison

SIGNIFICANCE_LEVEL = 0.05
METRICS: dict[str, Callable[[ComparedRun], float]] = {
    "exact_match": lambda run: run.measurement.exact_match,
    "token_accuracy_free_running": lambda run: run.measurement.token_accuracy,
    "token_accuracy": lambda run: run.measurement.token_accuracy_teacher_forced,
    "loss": lambda run: run.measurement.loss,
    "seconds": lambda run: run.info.seconds,
}
HEADLINE_METRICS: dict[str, Callable[[ComparedRun], float]] = {  # others have a measurement of their own
    "exact_match": METRICS["exact_match"],
    "error_rate": lambda run: 1 - run.measurement.exact_match,  # an item is right with any of its references
    "perplexity": lambda run: perplexity(run.measurement.loss),
}


def metrics_of(run: ComparedRun, headline: Headline) -> dict[str, float]:
    """Return the metrics of a run by name: those of the headline first, ``chrf`` after ``bleu``, then ``METRICS``."""
    measured = run.measurement
    scores: dict[str, float] = {}
    for measure in headline.measures:
        if measure == "bleu" and measured.quality:
            scores |= {"bleu": measured.quality.bleu, "chrf": measured.quality.chrf}
        elif measure == "token_error_rate" and measured.token_error_rate is not None:
            scores[measure] = measured.token_error_rate
        elif measure in HEADLINE_METRICS:
            scores[measure] = HEADLINE_METRICS[measure](run)
    return scores | {name: metric(run) for name, metric in METRICS.items()}


def describe_quality(first: str, second: str, quality: Mapping[str, PairedBootstrap], *, bleu_name: str) -> str:
    """State which of two translations is better, and whether this could be due to the choice of test pairs."""
    bleu, chrf = quality["bleu"], quality["chrf"]
    if bleu.p_value >= SIGNIFICANCE_LEVEL:
        verdict = f"so the difference in {bleu_name} is not significant"
    else:
        verdict = f"so {first if bleu.difference > 0 else second} is significantly better on texts like these"
    parts = [
        f"{_signed_score(each.difference)} in {name} (95 % interval {_interval(each)}, {format_p(each.p_value)})"
        for name, each in ((bleu_name, bleu), ("chrF", chrf))
    ]
    return (
        f"{first} has {bleu_name} {bleu.first:.1f} and chrF {chrf.first:.1f}, {second} {bleu.second:.1f} and "
        f"{chrf.second:.1f}: a difference of {parts[0]} and of {parts[1]}, {verdict}. Paired bootstrap resampling: "
        f"{RESAMPLES:,} resamples of the test pairs, seed {SEED}; {first} has the higher {bleu_name} in "
        f"{percent(bleu.first_better)} of them."
    )


def describe_pair(pair: PairedComparison) -> str:
    """State how often each of two runs wins, whether this could be chance, and how large the difference is."""
    first, second, outcome = pair.first, pair.second, pair.outcome
    if not outcome.wins + outcome.losses:
        return (
            f"{first} and {second} answer the same inputs correctly, {outcome.both_correct:,} of {outcome.items:,}: "
            f"there is no difference. {_describe_interval(outcome)}."
        )
    if outcome.p_value >= SIGNIFICANCE_LEVEL:
        verdict = "so the difference is not significant"
    else:
        verdict = (
            f"so {first if outcome.wins > outcome.losses else second} is significantly better on inputs like these"
        )
    return (
        f"{first} is correct on {counted(outcome.wins, 'input')} that {second} gets wrong, and {second} on "
        f"{outcome.losses:,} that {first} gets wrong; on {outcome.ties:,} of {outcome.items:,} both are correct or "
        "both wrong. If the two were equally good, a split at least this uneven would have "
        f"{format_p(outcome.p_value)} "
        f"(exact McNemar test), {verdict}. {_describe_interval(outcome)}."
    )


def format_p(p: float) -> str:
    """Format a p-value with two significant digits: ``p < 0.001``, ``p = 0.032``, ``p = 1``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def format_points(outcome: PairedOutcomes) -> tuple[str, str]:
    """Format difference and confidence interval in percentage points, with as many digits as the items allow."""
    digits = max(0, min(2, math.ceil(math.log10(outcome.items)) - 2))
    low, high = outcome.confidence_interval
    return _signed(outcome.difference, digits), f"{_signed(low, digits)} to {_signed(high, digits)}"


def cautions(comparison: Comparison) -> list[str]:
    """Return the limits of a comparison: conclusions that it does not support."""
    sentences = [
        "The tests compare these trained models, not their settings: to compare settings, train several seeds of each."
    ]
    if text := unfinished((run.title, run.info) for run in comparison.runs):
        sentences.append(text)
    if len(comparison.pairs) > 1:
        sentences.append(
            f"{len(comparison.pairs)} pairs are tested without correction: by chance alone, one in twenty has p < 0.05."
        )
    if comparison.open_ended:
        sentences.insert(
            0, "This task has no single reference answer, so exact match says nothing: compare the loss instead."
        )
    return sentences


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON-compatible data, for programs and for the page."""
    label_of = {name: group.label for group in comparison.groups for name in group.runs}
    titles = {run.name: run.title for run in comparison.runs}
    return {
        "task": comparison.task,
        "sequences": comparison.sequences,
        "headline": _headline_data(comparison.headline),
        "runs": [_run_data(run, label_of[run.name], comparison.headline) for run in comparison.runs],
        "groups": [_group_data(comparison, group) for group in comparison.groups],
        "settings": {key: list(values) for key, values in comparison.settings.items()},
        "pairs": [_pair_data(pair, titles, comparison) for pair in comparison.pairs],
        "translation": _translation_data(comparison),
        "lengths": _length_data(comparison),
        "cautions": cautions(comparison),
    }


def mean_curve(series: Sequence[tuple[Sequence[int], Sequence[float]]]) -> dict[str, list[Any]]:
    """Return mean and standard deviation of several curves, at their common x values.

    Args:
        series: (x, y) of each curve; x are steps or lengths.

    Returns:
        Columns ``at`` (x), ``mean`` and ``sd``; ``sd`` is None for a single curve.
    """
    tables = [dict(zip(*each, strict=True)) for each in series]
    at = [x for x in tables[0] if all(x in table for table in tables)]
    spreads = [Spread.of([table[x] for table in tables]) for x in at]
    return {"at": at, "mean": [spread.mean for spread in spreads], "sd": [spread.sd for spread in spreads]}


def _describe_interval(outcome: PairedOutcomes) -> str:
    difference, interval = format_points(outcome)
    return f"Difference in exact match: {difference} points (95 % confidence interval {interval})"


def _interval(bootstrap: PairedBootstrap) -> str:
    low, high = bootstrap.interval
    return f"{_signed_score(low)} to {_signed_score(high)}"


def _signed_score(score: float) -> str:
    """Format a difference of two scores of 0 to 100."""
    return _signed(score / 100, 1)


def _signed(fraction: float, digits: int) -> str:
    text = f"{100 * fraction:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return text.lstrip("+\N{MINUS SIGN}") if not float(text.replace("\N{MINUS SIGN}", "-")) else text


def _headline_data(headline: Headline) -> dict[str, Any]:
    """Return the measures that decide, the first first, with their names, and why there is no BLEU."""
    measures = [{"measure": each, "name": headline.names[each]} for each in headline.measures]
    return {"measures": measures, "without_bleu": headline.without_bleu}


def _run_data(run: ComparedRun, group: str, headline: Headline) -> dict[str, Any]:
    loaded, info = run.loaded, run.info
    return {
        "run": run.name,
        "title": run.title,
        "group": group,
        "preset": loaded.preset.name,
        "status": info.status,
        "weights": loaded.kind,
        "step": loaded.step,
        "seed": loaded.preset.training.seed,
        "parameters": run.parameters,
    } | metrics_of(run, headline)


def _translation_data(comparison: Comparison) -> dict[str, Any] | None:
    """Return how translations were measured, and the scores of copying the source; None for other tasks."""
    if comparison.copying is None:
        return None
    return {"copying": asdict(comparison.copying), "resamples": RESAMPLES, "seed": SEED}


def _group_data(comparison: Comparison, group: RunGroup) -> dict[str, Any]:
    runs = comparison.of(group)
    measured = [metrics_of(run, comparison.headline) for run in runs]
    metrics = {name: asdict(Spread.of([each[name] for each in measured])) for name in measured[0]}
    recorded = ("bleu", "error_rate", "token_error_rate")
    names = ("validation_loss", "exact_match", *(name for name in recorded if name in comparison.headline.measures))
    by_step = {name: mean_curve([_recorded(run, name) for run in runs]) for name in names}
    identity = {"label": group.label, "runs": list(group.runs), "seeds": list(group.seeds), "n": len(runs)}
    return identity | {"figures": metrics, "by_step": by_step}


def _recorded(run: ComparedRun, name: str) -> tuple[list[int], list[float]]:
    """Return steps and values of a metric of the evaluations; older runs lack some of them."""
    values = run.evaluations.get(name, [])
    measured = [
        (step, value) for step, value in zip(run.evaluations["step"], values, strict=False) if value is not None
    ]
    return [step for step, _ in measured], [value for _, value in measured]


def _pair_data(pair: PairedComparison, titles: dict[str, str], comparison: Comparison) -> dict[str, Any]:
    outcome = pair.outcome
    titled = replace(pair, first=titles[pair.first], second=titles[pair.second])
    sentences = []
    for measure in comparison.headline.measures:
        if measure == "bleu" and pair.quality:
            name = comparison.headline.names["bleu"]
            sentences.append(describe_quality(titled.first, titled.second, pair.quality, bleu_name=name))
        else:
            sentences.append(describe_pair(titled))
    return {
        "quality": pair.quality and {name: _bootstrap_data(each) for name, each in pair.quality.items()},
        "first": pair.first,
        "second": pair.second,
        "wins": outcome.wins,
        "losses": outcome.losses,
        "ties": outcome.ties,
        "difference": outcome.difference,
        "interval": list(outcome.confidence_interval),
        "p_value": outcome.p_value,
        "points": list(format_points(outcome)),
        "p": format_p(outcome.p_value),
        "in_words": " ".join(dict.fromkeys(sentences)),
    }


def _bootstrap_data(bootstrap: PairedBootstrap) -> dict[str, Any]:
    return asdict(bootstrap) | {
        "interval": list(bootstrap.interval),
        "difference": bootstrap.difference,
        "points": [_signed_score(bootstrap.difference), _interval(bootstrap)],
        "p": format_p(bootstrap.p_value),
    }


def _length_data(comparison: Comparison) -> dict[str, Any] | None:
    """Return each group's accuracy by length; None if it was not requested, or is not available for the task."""
    curves = {run.name: run.measurement.curve for run in comparison.runs if run.measurement.curve is not None}
    if not curves:
        return None
    first = next(iter(curves.values()))
    groups = [[curves[run].points for run in group.runs] for group in comparison.groups]
    by_group = [
        {
            name: mean_curve(
                [([each.length for each in points], [getattr(each, name) for each in points]) for points in runs]
            )
            for name in ("exact_match", "token_accuracy")
        }
        for runs in groups
    ]
    inputs = {point.length: point.inputs for curve in curves.values() for point in curve.points}
    return {
        "unit": first.unit,
        "trained": list(first.trained),
        "at": sorted(inputs),
        "inputs": [inputs[length] for length in sorted(inputs)],
        "groups": by_group,
        "longer": _longer_means(curves),
        "limits": {name: curve.limit for name, curve in curves.items() if curve.limit},
    }


def _longer_means(curves: dict[str, AccuracyByLength]) -> dict[str, Any] | None:
    """Return each run's means over the lengths beyond training at which all runs were measured; None without any.

    Every length has the same weight, whatever its number of inputs.
    """
    points = {run: {point.length: point for point in curve.points} for run, curve in curves.items()}
    longest = next(iter(curves.values())).trained[1]
    at = sorted(length for length in set.intersection(*map(set, points.values())) if length > longest)
    if not at:
        return None
    means = {
        run: {name: fmean(getattr(own[length], name) for length in at) for name in ("token_accuracy", "exact_match")}
        for run, own in points.items()
    }
    return {"at": at, "runs": means}
