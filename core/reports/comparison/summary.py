"""Say in words what a comparison found, and hand it on as plain data."""

import math
from collections.abc import Callable
from dataclasses import asdict
from statistics import fmean
from typing import Any

from core.evaluation.by_length import AccuracyByLength
from core.evaluation.significance import PairedOutcomes, Spread
from core.reports.comparison.comparable import RunGroup
from core.reports.comparison.measurement import ComparedRun, Comparison, PairedComparison, band_over
from core.reports.formatting import count

UNLIKELY = 0.05  # p: below it, a difference is called one
FIGURES: dict[str, Callable[[ComparedRun], float]] = {
    "exact_match": lambda run: run.measured.exact_match,
    "token_accuracy_free_running": lambda run: run.measured.token_accuracy,
    "token_accuracy": lambda run: run.measured.token_accuracy_fed,
    "loss": lambda run: run.measured.loss,
    "seconds": lambda run: run.info.seconds,
}


def duel_in_words(duel: PairedComparison) -> str:
    """Say who of two runs wins how often, whether that could be chance, and how large the difference is."""
    first, second, outcome = duel.first, duel.second, duel.outcome
    if not outcome.wins + outcome.losses:
        return (
            f"{first} and {second} are right on the same inputs, {outcome.both_correct:,} of {outcome.items:,}: nothing "
            f"tells them apart. {_interval_in_words(outcome)}."
        )
    chance = (
        f"Were they equally good, a split at least so uneven would have {p_in_words(outcome.p_value)} (exact McNemar "
        "test)"
    )
    if outcome.p_value >= UNLIKELY:
        verdict = "so these inputs do not tell them apart"
    else:
        verdict = f"so {first if outcome.wins > outcome.losses else second} is better at inputs like these"
    return (
        f"{first} is right on {count(outcome.wins, 'input')} that {second} gets wrong, and {second} on "
        f"{outcome.losses:,} that {first} gets wrong; on {outcome.ties:,} of {outcome.items:,} both do alike. "
        f"{chance}, {verdict}. {_interval_in_words(outcome)}."
    )


def p_in_words(p: float) -> str:
    """Write a p without digits that say nothing: ``p < 0.001``, ``p = 0.032``, ``p = 1``."""
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.2g}"


def points_in_words(outcome: PairedOutcomes) -> tuple[str, str]:
    """Write difference and confidence interval in percentage points, with no more digits than the items allow."""
    digits = max(0, min(2, math.ceil(math.log10(outcome.items)) - 2))
    low, high = outcome.confidence_interval
    return _signed(outcome.difference, digits), f"{_signed(low, digits)} to {_signed(high, digits)}"


def cautions(comparison: Comparison) -> list[str]:
    """Say what must not be read out of a comparison."""
    said = ["The tests are about these trained models, not about their settings: those show over several seeds."]
    if len(comparison.duels) > 1:
        said.append(
            f"{len(comparison.duels)} pairs are tested, each by itself: by chance alone one in twenty has p < 0.05."
        )
    if comparison.open_ended:
        said.insert(0, "Many answers are as good as the reference here, so exact match says nothing: go by the loss.")
    return said


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain data, for programs and for the page."""
    label_of = {name: group.label for group in comparison.groups for name in group.runs}
    return {
        "task": comparison.task,
        "sequences": comparison.sequences,
        "runs": [_run(run, label_of[run.name]) for run in comparison.runs],
        "groups": [_group(comparison, group) for group in comparison.groups],
        "settings": {key: list(values) for key, values in comparison.settings.items()},
        "pairs": [_duel(duel) for duel in comparison.duels],
        "lengths": _lengths(comparison),
        "cautions": cautions(comparison),
    }


def _interval_in_words(outcome: PairedOutcomes) -> str:
    difference, interval = points_in_words(outcome)
    return f"Difference in exact match: {difference} points (95 % confidence interval {interval})"


def _signed(share: float, digits: int) -> str:
    text = f"{100 * share:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return text.lstrip("+\N{MINUS SIGN}") if not float(text.replace("\N{MINUS SIGN}", "-")) else text


def _run(run: ComparedRun, group: str) -> dict[str, Any]:
    loaded, info = run.loaded, run.info
    return {
        "run": run.name,
        "group": group,
        "preset": loaded.preset.name,
        "status": info.status,
        "weights": loaded.kind,
        "step": loaded.step,
        "seed": loaded.preset.training.seed,
        "parameters": run.parameters,
    } | {name: figure(run) for name, figure in FIGURES.items()}


def _group(comparison: Comparison, group: RunGroup) -> dict[str, Any]:
    runs = comparison.of(group)
    figures = {name: asdict(Spread.of([figure(run) for run in runs])) for name, figure in FIGURES.items()}
    steps = {
        name: _band([(run.evaluations["step"], run.evaluations[name]) for run in runs])
        for name in ("validation_loss", "exact_match")
    }
    who = {"label": group.label, "runs": list(group.runs), "seeds": list(group.seeds), "n": len(runs)}
    return who | {"figures": figures, "by_step": steps}


def _duel(duel: PairedComparison) -> dict[str, Any]:
    outcome = duel.outcome
    return {
        "first": duel.first,
        "second": duel.second,
        "wins": outcome.wins,
        "losses": outcome.losses,
        "ties": outcome.ties,
        "difference": outcome.difference,
        "interval": list(outcome.confidence_interval),
        "p_value": outcome.p_value,
        "points": list(points_in_words(outcome)),
        "p": p_in_words(outcome.p_value),
        "in_words": duel_in_words(duel),
    }


def _lengths(comparison: Comparison) -> dict[str, Any] | None:
    """Return each group's figures by length; None where they were not asked for, or there are none."""
    curves = {run.name: run.measured.curve for run in comparison.runs}
    first = comparison.runs[0].measured.curve
    if first is None:
        return None
    groups = [[curves[run].points for run in group.runs] for group in comparison.groups]
    figures = [
        {
            name: _band(
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
        "groups": figures,
        "longer": _longer(curves),
        "limits": {name: curve.limit for name, curve in curves.items() if curve.limit},
    }


def _longer(curves: dict[str, AccuracyByLength]) -> dict[str, Any] | None:
    """Return each run's means over the lengths above those trained on that all were measured at; None without such.

    Every length counts as much, however many inputs there are of it.
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


def _band(series: list[tuple[list[int], list[float]]]) -> dict[str, list]:
    """Return a band as columns: where, the mean, and the standard deviation there, None of a single run."""
    band = band_over(series)
    return {
        "at": list(band.at),
        "mean": [spread.mean for spread in band.spreads],
        "sd": [spread.sd for spread in band.spreads],
    }
