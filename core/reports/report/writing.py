"""Write a run's report: measure the run, draw its figures, render the text, save the files."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.evaluation.accuracy import Evaluation, evaluate, score_references
from core.evaluation.breakdown import measure_breakdown
from core.evaluation.by_length import AccuracyByLength, accuracy_by_length
from core.interpret.head_scores import HeadScore
from core.interpret.inspection import Inspection
from core.interpret.trained import Trained
from core.reports.report.attention_section import answer_questions, best_head
from core.reports.report.documented_examples import documented_examples
from core.reports.report.findings import TrainingOutcome, findings, verdict
from core.reports.report.health_section import health_section
from core.reports.report.measurements import ReportMeasurements, measure
from core.reports.report.rendering import as_html, as_markdown
from core.reports.report.tables import (
    MAX_HEADS,
    ReportedRun,
    breakdown_table,
    by_length_table,
    examples,
    heads_table,
    metrics_table,
    other_lengths_table,
    outcomes_table,
    run_table,
)
from core.reports.report.translation_section import translation_section
from core.runs.run import Run
from core.storage.atomic import write_atomically
from core.storage.errors import LabError
from core.tasks import fixed_pairs, training_sample
from core.tasks.alignment import gold_cells
from core.text.pieces import piece_name, sentence_of
from core.training.history import History

NUM_EXAMPLES, NUM_FAILURES = 12, 8
MAX_TRAINING_SEQUENCES = 2_000  # sequences of the fixed training set for its loss
TRAINING_PAIRS = 1_000  # on which accuracy is measured, beside that on held-out inputs: within 3 points
MAX_EXTRA_STEPS = 5  # steps drawn of an output that is longer than the reference
LOSS, ACCURACY = "loss.png", "accuracy.png"
LENGTHS, HEATMAP = "accuracy_by_length.png", "attention_heatmap.png"
FIGURES = (LOSS, ACCURACY, LENGTHS, HEATMAP)
PAGE_FILE, TEXT_FILE, METRICS_FILE = "report.html", "report.md", "report.json"
REPORT_FILES = (PAGE_FILE, TEXT_FILE, METRICS_FILE, *FIGURES)


@dataclass(frozen=True)
class Report:
    """A report of a run.

    Attributes:
        summary: one sentence on how well the model solves its task.
        markdown: the whole report; it refers to the figures by file name.
        html: the whole report as one page, figures embedded.
        figures: PNG files by name; ``attention_heatmap.png`` is missing for a model without cross-attention,
            ``accuracy_by_length.png`` if BLEU decides.
        metrics: the main metrics as JSON-compatible data, and the weights that they belong to.
    """

    run: str
    summary: str
    markdown: str
    html: str
    figures: dict[str, bytes]
    metrics: dict[str, Any]

    def save(self, folder: Path) -> None:
        """Write the report to a folder, which is created if needed.

        Raises:
            LabError: the folder cannot be written to.
        """
        files = {**self.figures, TEXT_FILE: self.markdown.encode(), PAGE_FILE: self.html.encode()}
        files[METRICS_FILE] = json.dumps(self.metrics, indent=1).encode()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                write_atomically(folder / name, content)
        except OSError as error:
            raise LabError(f"the report cannot be written to {folder.name}: {error.strerror}") from error


def write_report(run: Run, *, sequences: int) -> Report:
    """Measure a run on its test set and write a report about it.

    Args:
        sequences: number of test items, at least 1; fewer are used if the test set is smaller.

    Raises:
        RunError: the run has no weights yet.
    """
    loaded = run.trained()
    training = _training_outcome(loaded, run)
    history = run.history
    pairs = fixed_pairs(loaded.task, sequences, split="test")
    reported = ReportedRun(loaded, run.info, training.train_loss, _on_training_pairs(loaded, len(pairs)))
    measurements = measure(
        loaded.model, loaded.task, pairs, free_running_loss=loaded.preset.training.free_running_validation
    )
    translation = translation_section(loaded.model, loaded.task, pairs, measurements)
    example = loaded.decode(loaded.task.source_text(_median_length_input(measurements)))
    head = best_head(measurements)
    headline = measurements.headline
    breakdown = measure_breakdown(loaded.model, loaded.task, sequences=len(pairs))
    curve = None if headline.is_bleu_first else accuracy_by_length(loaded.model, loaded.task)
    figures = _draw_figures(
        history, curve, example, head, bleu_name=headline.names["bleu"] if headline.is_bleu_first else ""
    )
    failures = measurements.sequences[~measurements.sequences.is_exact]
    summary = verdict(measurements)
    title = run.title
    context = {
        "title": title,
        "verdict": summary,
        "findings": findings(measurements, training),
        "description": loaded.preset.description,
        "run_table": run_table(reported),
        "translation": translation,
        "is_bleu_first": headline.is_bleu_first,
        "without_bleu": headline.without_bleu,
        "metrics": metrics_table(measurements, reported),
        "breakdown": breakdown
        and {
            "title": f"{breakdown.name[0].upper()}{breakdown.name[1:]}",
            "sampling": breakdown.sampling,
            "rows": breakdown_table(breakdown),
        },
        "by_length": by_length_table(measurements),
        "other_lengths": other_lengths_table(curve),
        "limit": curve.limit if curve else "",
        "outcomes": outcomes_table(measurements),
        "documented": documented_examples(loaded.model, loaded.task),
        "examples": examples(measurements.sequences.head(NUM_EXAMPLES)),
        "failures": examples(failures.head(NUM_FAILURES)),
        "heads": heads_table(measurements),
        "unlisted_heads": max(0, len(measurements.head_scores()) - MAX_HEADS),
        "example": example,
        "example_texts": _texts(example),
        "head": head,
        "answers": answer_questions(measurements),
        "health": health_section(run.replay.snapshots()),
        "no_attention": _why_no_attention(measurements),
        "figures": {figure.removesuffix(".png"): figure for figure in figures},
    }
    markdown = as_markdown(context)
    html = as_html(markdown, title=f"Report: {title}", figures=figures)
    metrics = _metrics(reported, measurements, summary) | {
        "translation": translation and translation.as_data(),
        "breakdown": breakdown and asdict(breakdown),
    }
    return Report(run.name, summary, markdown, html, figures, metrics)


def _training_outcome(loaded: Trained, run: Run) -> TrainingOutcome:
    config, info = loaded.preset.training, run.info
    train_loss = None
    if config.training_sequences:
        count = min(config.training_sequences, MAX_TRAINING_SEQUENCES)
        train_loss = score_references(loaded.model, fixed_pairs(loaded.task, count, split="train")).loss
    return TrainingOutcome(
        step=info.step,
        steps=info.step if loaded.preset.task.family == "imported" else config.steps,  # none were planned here
        message=info.message,
        train_loss=train_loss,
        guessing_loss=math.log(len(loaded.task.tgt_vocab)),
        overfitting=run.history.overfitting(info.best_step),
        stopped_early=bool(config.patience) and info.status == "finished" and info.step < config.steps,
    )


def _on_training_pairs(loaded: Trained, count: int) -> Evaluation | None:
    """Evaluate the model on training pairs; None for an imported one, whose training pairs are not known.

    Args:
        count: of them, at most ``TRAINING_PAIRS``.
    """
    if loaded.preset.task.family == "imported":
        return None
    sequences = loaded.preset.training.training_sequences
    return evaluate(
        loaded.model, training_sample(loaded.task, min(count, TRAINING_PAIRS), training_sequences=sequences)
    )


def _why_no_attention(measurements: ReportMeasurements) -> str:
    """Return why the attention section has no head to show."""
    if measurements.steps.empty:
        return "This model has no attention over its input."
    return (
        "This task has no gold alignment: several input tokens contribute to each output token. So the heads cannot "
        "be scored; the page shows where they attended."
    )


def _texts(example: Inspection) -> list[str]:
    """Return input and output as text, "…" after an output that did not end."""
    text = sentence_of if example.has_subwords else " ".join
    return [text(example.symbols), text(example.output) + ("" if example.stopped else " …")]


def _median_length_input(measurements: ReportMeasurements) -> list[str]:
    """Return the first of the inputs of median length."""
    lengths = measurements.sequences.length
    median = lengths.sort_values(ignore_index=True).iloc[len(lengths) // 2]
    return measurements.sequences[lengths == median].input.iloc[0]


def _metrics(run: ReportedRun, measurements: ReportMeasurements, summary: str) -> dict[str, Any]:
    evaluation = measurements.evaluation
    return {
        "run": run.loaded.run,
        "preset": run.loaded.preset.name,
        "weights": run.loaded.kind,
        "step": run.loaded.step,
        "sequences": evaluation.sequences,
        "exact_match": measurements.exact_match,
        "exact_match_unpadded": measurements.exact_match,
        "padding": asdict(measurements.padding),
        "token_accuracy": evaluation.token_accuracy,
        "train_exact_match": run.training and run.training.exact_match,
        "train_token_accuracy": run.training and run.training.token_accuracy,
        "loss": evaluation.loss,
        "metrics": evaluation.metrics,
        "ended_by_eos": measurements.stopped,
        "headline": [figure.model_dump() for figure in measurements.figures],
        "summary": summary,
    }


def _draw_figures(
    history: History, curve: AccuracyByLength | None, example: Inspection, head: HeadScore | None, *, bleu_name: str
) -> dict[str, bytes]:
    """Return PNG files by name; figures without data are left out.

    Args:
        example: the inspected example with the attention to draw.
        head: the head to draw.
        bleu_name: of a task whose answers are judged by BLEU; "" for other tasks.
    """
    # Imported here because matplotlib takes half a second to import, which the page's start-up should not pay.
    from core.reports.plotting import (
        accuracy_figure,
        as_png,
        attention_figure,
        lengths_figure,
        loss_figure,
        quality_figure,
    )

    figures = {}
    if curve is not None:
        figures[LENGTHS] = as_png(
            lengths_figure(
                [point.length for point in curve.points],
                [point.exact_match for point in curve.points],
                [point.token_accuracy for point in curve.points],
                trained=curve.trained,
                unit=curve.unit,
            )
        )
    evaluations = history.evaluations()
    if evaluations["step"]:
        figures[LOSS] = as_png(loss_figure(history.points(), evaluations))
        is_translation = bleu_name and "bleu" in evaluations  # metrics recorded by older versions have no BLEU
        figures[ACCURACY] = as_png(
            quality_figure(evaluations, bleu_name=bleu_name) if is_translation else accuracy_figure(evaluations)
        )
    if head is not None and example.over_source is not None and example.expected is not None:
        steps = example.steps[: len(example.expected) + 1 + MAX_EXTRA_STEPS]
        steps = steps[: example.over_source.shape[-2]]  # an encoder-only model has no more rows than its source
        name = piece_name if example.has_subwords else str
        heatmap = attention_figure(
            example.over_source[head.layer - 1, 0, head.head - 1, : len(steps)].cpu().numpy(),
            rows=[name(step.produced) for step in steps],
            columns=list(map(name, example.source_labels)),
            title=f"attention over the input, layer {head.layer}, head {head.head}",
            marked=gold_cells(example.sources, steps=len(steps)),
        )
        figures[HEATMAP] = as_png(heatmap)
    return figures
