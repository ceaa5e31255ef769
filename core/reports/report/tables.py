"""Tables of a report: rows of text, the first row holding the column names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from core.config.counting import percent
from core.config.listing import changes_from_shipped
from core.evaluation.accuracy import Evaluation
from core.evaluation.breakdown import BreakdownAccuracy
from core.evaluation.by_length import AccuracyByLength
from core.evaluation.failures import OUTCOMES, first_difference
from core.interpret.trained import Trained
from core.models import count_parameters
from core.reports.formatting import headline_value, training_time
from core.reports.report.measurements import ReportMeasurements
from core.runs import RunInfo

Rows = list[list[str]]
NOT_SHIPPED = "not known: no preset of this name is shipped"
MAX_HEADS = 64  # listed with their alignment scores


@dataclass(frozen=True)
class ReportedRun:
    """The run that a report describes, as it was when the measurement began.

    Attributes:
        train_loss: loss of these weights on the fixed training set, nats per token; None without such a set.
        training: the same weights evaluated on training pairs; None if none is known.
    """

    loaded: Trained
    info: RunInfo
    train_loss: float | None
    training: Evaluation | None


def run_table(run: ReportedRun) -> Rows:
    """Return the description of the run: preset, task, model, training."""
    loaded, info = run.loaded, run.info
    preset, config = loaded.preset, loaded.preset.training
    changes = changes_from_shipped(preset)
    seen = f"{info.sequences_seen:,}"
    if config.training_sequences:
        seen += f" ({info.sequences_seen / config.training_sequences:.1f} epochs of {config.training_sequences:,})"
    return [
        ["property", "value"],
        ["preset", preset.name],
        ["settings changed from the preset", NOT_SHIPPED if changes is None else changes or "none"],
        ["task", preset.task.summary],
        ["how training inputs are drawn", loaded.task.sampling],
        ["model", preset.model.kind],
        ["parameters", f"{count_parameters(loaded.model):,}"],
        ["began with", f"the weights of {info.start.text}" if info.start else "random weights"],
        ["weights", f"{loaded.kind}, after step {loaded.step:,} of {config.steps:,}"],
        ["training sequences seen", seen],
        ["training time", training_time(info.seconds)],
        ["seed", str(config.seed)],
        ["status", info.status],
    ]


def metrics_table(measurements: ReportMeasurements, run: ReportedRun) -> Rows:
    """Return the main metrics."""
    evaluation, sequences, padding = measurements.evaluation, measurements.sequences, measurements.padding
    exact = int(sequences.is_exact.sum())
    rows = [
        ["metric", "value"],
        *([each.name, headline_value(each)] for each in measurements.figures if each.measure != "exact_match"),
        [
            "exact match, each input decoded separately",
            f"{percent(measurements.exact_match)} ({exact:,} of {evaluation.sequences:,})",
        ],
        [f"exact match of the first {padding.sequences:,}, in padded batches", percent(padding.padded)],
        ["outputs that end with EOS", percent(measurements.stopped)],
        ["token accuracy", percent(evaluation.token_accuracy)],
        *_on_training_pairs(run.training),
        ["loss, nats per token", f"{evaluation.loss:.4f}"],
        ["perplexity", f"{evaluation.perplexity:.4f}"],
    ]
    if evaluation.free_running_loss is not None:
        rows.append(["loss when the model reads its own output", f"{evaluation.free_running_loss:.4f}"])
    rows += [[f"{name} (metric of a plugin)", f"{value:.4f}"] for name, value in evaluation.metrics.items()]
    if run.train_loss is not None:
        rows.append(["loss of the same weights on the training set", f"{run.train_loss:.4f}"])
    return rows


def _on_training_pairs(training: Evaluation | None) -> Rows:
    """Return the accuracies on training pairs, beside which those on held-out inputs show what was memorized."""
    if training is None:
        return []
    on = f"on {training.sequences:,} training pairs, in padded batches"
    return [
        [f"exact match {on}", percent(training.exact_match)],
        [f"token accuracy {on}", percent(training.token_accuracy)],
    ]


def by_length_table(measurements: ReportMeasurements) -> Rows:
    """Return exact match by number of source symbols."""
    groups = measurements.sequences.groupby("length").is_exact
    rows = [[str(length), f"{len(exact):,}", percent(exact.mean())] for length, exact in groups]
    return [["symbols", "inputs", "exact match"], *rows]


def breakdown_table(breakdown: BreakdownAccuracy) -> Rows:
    """Return exact match of each group of test pairs, such as test sets with names, and BLEU where it is measured."""
    has_bleu = any(each.bleu is not None for each in breakdown.groups)
    rows = [["group", "inputs", "exact match", *["BLEU"] * has_bleu]]
    for each in breakdown.groups:
        bleu = [] if each.bleu is None else [f"{each.bleu:.2f}"]
        rows.append([each.name, f"{each.sequences:,}", percent(each.exact_match), *bleu])
    return rows


def other_lengths_table(curve: AccuracyByLength | None) -> Rows:
    """Return exact match and token accuracy at lengths outside of training; [] without any."""
    if curve is None:
        return []
    shortest, longest = curve.trained
    rows = [
        [str(at.length), f"{at.inputs:,}", percent(at.exact_match), percent(at.token_accuracy)]
        for at in curve.points
        if not shortest <= at.length <= longest
    ]
    return [[curve.unit, "inputs", "exact match", "tokens correct"], *rows] if rows else []


def outcomes_table(measurements: ReportMeasurements) -> Rows:
    """Count the outputs by outcome: exact, or one of the ways to fail."""
    counts = measurements.sequences.outcome.value_counts()
    rows = [
        [outcome, f"{counts[outcome]:,}", percent(counts[outcome] / len(measurements.sequences)), meaning]
        for outcome, meaning in OUTCOMES.items()
        if outcome in counts
    ]
    return [["outcome", "outputs", "fraction", "meaning"], *rows]


def heads_table(measurements: ReportMeasurements) -> Rows:
    """Return the alignment scores of the cross-attention heads; of many, those with the most attention mass."""
    scores = measurements.head_scores()
    if len(scores) > MAX_HEADS:
        scores = sorted(scores, key=lambda each: each.attention_mass, reverse=True)[:MAX_HEADS]
    rows = [
        [
            str(score.layer),
            str(score.head),
            percent(score.attention_mass),
            percent(score.uniform_mass),
            percent(score.argmax_accuracy),
            percent(score.aer),
            percent(score.uniform_aer),
        ]
        for score in scores
    ]
    columns = ["layer", "head", "attention on the correct source token", "uniform attention", "argmax accuracy"]
    return [[*columns, "alignment error rate", "at random"], *rows]


def examples(sequences: pd.DataFrame) -> list[dict[str, str]]:
    """Return input, output, reference and outcome of some sequences as text."""
    rows: Iterable[Any] = sequences.itertuples()
    return [
        {
            "input": sequence.input_text,
            "output": (sequence.output_text or "(empty)") + ("" if sequence.stopped else " …"),
            "reference": sequence.reference_text,
            "match": "match" if sequence.is_exact else "no match",
            "outcome": _describe_outcome(sequence),
        }
        for sequence in rows
    ]


def _describe_outcome(sequence: Any) -> str:
    index = first_difference(sequence.output, sequence.reference)
    return sequence.outcome if index is None else f"{sequence.outcome}, wrong from token {index + 1} on"
