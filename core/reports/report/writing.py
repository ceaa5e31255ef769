"""Put a run's report together and save it."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.evaluation.accuracy import evaluate
from core.evaluation.by_length import accuracy_by_length
from core.interpret.inspection import inspect
from core.reports.report.attention_section import answers, best_head
from core.reports.report.findings import Training, findings, verdict
from core.reports.report.measurements import ReportMeasurements, measure
from core.reports.report.pictures import PICTURES, draw
from core.reports.report.rendering import as_html, as_markdown
from core.reports.report.tables import ReportedRun, beyond, by_length, examples, facts, figures, heads, kinds
from core.runs.load import LoadedRun, RunSource
from core.storage.atomic import write_atomically
from core.storage.errors import LabError
from core.tasks import fixed_pairs

EXAMPLES, FAILURES = 12, 8
TRAINING_SEQUENCES = 2_000  # of a fixed set, to tell its loss
PAGE_FILE, TEXT_FILE, FIGURES_FILE = "report.html", "report.md", "report.json"
REPORT_FILES = (PAGE_FILE, TEXT_FILE, FIGURES_FILE, *PICTURES)


@dataclass(frozen=True)
class Report:
    """A report of a run.

    Attributes:
        summary: whether the model does its task, in a sentence.
        markdown: the whole, with its pictures named as files beside it.
        html: the same with its pictures in it.
        pictures: PNG files by name; ``attention_heatmap.png`` is missing where there is no attention.
        figures: the main ones for a program, and which weights they are of.
    """

    run: str
    summary: str
    markdown: str
    html: str
    pictures: dict[str, bytes]
    figures: dict[str, Any]

    def save(self, folder: Path) -> None:
        """Write the report into a folder, which is made if need be.

        Raises:
            LabError: it cannot be written there.
        """
        files = {**self.pictures, TEXT_FILE: self.markdown.encode(), PAGE_FILE: self.html.encode()}
        files[FIGURES_FILE] = json.dumps(self.figures, indent=1).encode()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                write_atomically(folder / name, content)
        except OSError as error:
            raise LabError(f"the report cannot be written to {folder.name}: {error.strerror}") from error


def write_report(runs: RunSource, name: str, *, sequences: int) -> Report:
    """Measure a run on its test set and report on it.

    Args:
        sequences: how many of the test set, at least 1; fewer are used where there are fewer.

    Raises:
        RunError: there is no such run, or it has no weights yet.
    """
    loaded = runs.loaded(name)
    training = _training(loaded, runs)
    subject = ReportedRun(loaded, runs.info(name), training.train_loss)
    history = runs.history(name)
    measured = measure(loaded.model, loaded.task, fixed_pairs(loaded.task, sequences, split="test"))
    example = inspect(loaded.model, loaded.task, loaded.task.source_text(_middling_input(measured)))
    head = best_head(measured)
    curve = accuracy_by_length(loaded.model, loaded.task)
    pictures = draw(history, curve, example, head)
    failed = measured.sequences[~measured.sequences.is_exact]
    context = {
        "run": name,
        "verdict": verdict(measured),
        "findings": findings(measured, training),
        "description": loaded.preset.description,
        "facts": facts(subject),
        "figures": figures(measured, subject),
        "by_length": by_length(measured),
        "beyond": beyond(curve),
        "limit": curve.limit if curve else "",
        "kinds": kinds(measured),
        "examples": examples(measured.sequences.head(EXAMPLES)),
        "failures": examples(failed.head(FAILURES)),
        "heads": heads(measured),
        "example": example,
        "head": head,
        "answers": answers(measured),
        "no_attention": _no_attention(measured),
        "pictures": {picture.removesuffix(".png"): picture for picture in pictures},
    }
    markdown = as_markdown(context)
    html = as_html(markdown, title=f"Report: {name}", pictures=pictures)
    return Report(name, context["verdict"], markdown, html, pictures, _for_programs(subject, measured))


def _training(loaded: LoadedRun, runs: RunSource) -> Training:
    config, info = loaded.preset.training, runs.info(loaded.run)
    train_loss = None
    if config.training_sequences:
        count = min(config.training_sequences, TRAINING_SEQUENCES)
        train_loss = evaluate(loaded.model, fixed_pairs(loaded.task, count, split="train")).loss
    return Training(info.step, config.steps, info.message, train_loss, math.log(len(loaded.task.tgt_vocab)))


def _no_attention(measured: ReportMeasurements) -> str:
    """Say why there is no head to show; needed only where there is none."""
    if measured.steps.empty:
        return "This model has no attention over its input to show."
    return (
        "Its task does not say which input token a token of the answer comes from: several have a share in each. So "
        "there is nothing to judge the heads by; the page shows where they looked."
    )


def _middling_input(measured: ReportMeasurements) -> list[str]:
    """Return the first of the inputs whose length is in the middle."""
    lengths = measured.sequences.length
    middle = lengths.sort_values(ignore_index=True).iloc[len(lengths) // 2]
    return measured.sequences[lengths == middle].input.iloc[0]


def _for_programs(subject: ReportedRun, measured: ReportMeasurements) -> dict[str, Any]:
    evaluation = measured.evaluation
    return {
        "run": subject.loaded.run,
        "preset": subject.loaded.preset.name,
        "weights": subject.loaded.kind,
        "step": subject.loaded.step,
        "sequences": evaluation.sequences,
        "exact_match": evaluation.exact_match,
        "exact_match_unpadded": measured.exact_alone,
        "token_accuracy": evaluation.token_accuracy,
        "loss": evaluation.loss,
        "ended_by_eos": measured.stopped,
        "summary": verdict(measured),
    }
