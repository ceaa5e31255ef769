"""The report's tables: rows of text, the first of them the names of the columns."""

from dataclasses import dataclass

import pandas as pd

from core.evaluation.bleu import corpus_bleu
from core.evaluation.by_length import AccuracyByLength
from core.evaluation.failures import OUTCOMES, first_difference
from core.models import count_parameters
from core.reports.formatting import percent
from core.reports.report.measurements import ReportMeasurements
from core.runs import RunInfo
from core.runs.load import LoadedRun

Rows = list[list[str]]


@dataclass(frozen=True)
class ReportedRun:
    """The run that is reported on, as it was when the measuring began.

    Attributes:
        train_loss: of these weights on the fixed set they were trained on, nats per token; None without one.
    """

    loaded: LoadedRun
    info: RunInfo
    train_loss: float | None


def facts(subject: ReportedRun) -> Rows:
    """Say what the run is: preset, task, model, training."""
    loaded, info = subject.loaded, subject.info
    preset, config = loaded.preset, loaded.preset.training
    seen = f"{info.sequences_seen:,}"
    if config.training_sequences:
        seen += f", {info.sequences_seen / config.training_sequences:.1f} times a set of {config.training_sequences:,}"
    return [
        ["what", "value"],
        ["preset", preset.name],
        ["task", preset.task.summary],
        ["model", preset.model.family],
        ["parameters", f"{count_parameters(loaded.model):,}"],
        ["weights", f"{loaded.kind}, after step {loaded.step:,} of {config.steps:,}"],
        ["training sequences seen", seen],
        ["training time", f"{info.seconds:.1f} s"],
        ["seed", str(config.seed)],
        ["status", info.status],
    ]


def figures(measured: ReportMeasurements, subject: ReportedRun) -> Rows:
    """Give the main figures."""
    evaluation = measured.evaluation
    exact = int(measured.sequences.is_exact.sum())
    rows = [
        ["figure", "value"],
        [
            "exact match, each input by itself",
            f"{percent(measured.exact_alone)} ({exact:,} of {evaluation.sequences:,})",
        ],
        ["exact match, in a padded batch", percent(evaluation.exact_match)],
        ["answers ended by EOS", percent(measured.stopped)],
        ["token accuracy", percent(evaluation.token_accuracy)],
        ["loss, nats per token", f"{evaluation.loss:.4f}"],
        ["perplexity", f"{evaluation.perplexity:.4f}"],
    ]
    bleu = corpus_bleu(subject.loaded.task, measured.sequences.output, measured.sequences.reference)
    if bleu is not None:
        rows.append([f"{bleu.name}, each input by itself", f"{bleu.score:.2f} (sacrebleu signature {bleu.signature})"])
    if subject.train_loss is not None:
        rows.append(["loss of the same weights on training sequences", f"{subject.train_loss:.4f}"])
    return rows


def by_length(measured: ReportMeasurements) -> Rows:
    """Give exact match by the number of symbols in the input."""
    groups = measured.sequences.groupby("length").is_exact
    rows = [[str(length), f"{len(exact):,}", percent(exact.mean())] for length, exact in groups]
    return [["symbols", "inputs", "exact match"], *rows]


def beyond(curve: AccuracyByLength | None) -> Rows:
    """Give exact match and tokens right at the lengths that were not trained on; [] where there are none."""
    points = (
        [point for point in curve.points if not curve.trained[0] <= point.length <= curve.trained[1]] if curve else []
    )
    rows = [[str(at.length), f"{at.inputs:,}", percent(at.exact_match), percent(at.token_accuracy)] for at in points]
    return [[curve.unit, "inputs", "exact match", "tokens right"], *rows] if rows else []


def kinds(measured: ReportMeasurements) -> Rows:
    """Count the answers by the way in which they are right or wrong."""
    counts = measured.sequences.outcome.value_counts()
    rows = [
        [kind, f"{counts[kind]:,}", percent(counts[kind] / len(measured.sequences)), meaning]
        for kind, meaning in OUTCOMES.items()
        if kind in counts
    ]
    return [["kind", "answers", "share", "meaning"], *rows]


def heads(measured: ReportMeasurements) -> Rows:
    """Give every cross-attention head's scores."""
    rows = [
        [
            str(score.layer),
            str(score.head),
            percent(score.attention_mass),
            percent(score.argmax_accuracy),
            percent(score.uniform_mass),
        ]
        for score in measured.head_scores()
    ]
    return [["layer", "head", "on the true token", "largest weight there", "uniform would be"], *rows]


def examples(sequences: pd.DataFrame) -> list[dict[str, str]]:
    """Return input, output and reference of some sequences, and whether they match."""
    return [
        {
            "input": " ".join(sequence.input),
            "output": (" ".join(sequence.output) or "(nothing)") + ("" if sequence.stopped else " …"),
            "reference": " ".join(sequence.reference),
            "match": "match" if sequence.is_exact else "no match",
            "kind": _kind_and_place(sequence),
        }
        for sequence in sequences.itertuples()
    ]


def _kind_and_place(sequence: tuple) -> str:
    place = first_difference(sequence.output, sequence.reference)
    return sequence.outcome if place is None else f"{sequence.outcome}, wrong from token {place + 1} on"
