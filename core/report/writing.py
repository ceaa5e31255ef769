"""Put a run's report together: what was measured, in tables, pictures and words."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from core.analysis import true_cells
from core.bleu import corpus_bleu
from core.failures import KINDS
from core.figures import accuracy_figure, as_png, attention_figure, lengths_figure, loss_figure
from core.files import write_atomically
from core.history import History
from core.inspection import Inspection, inspect
from core.models import count_parameters
from core.report.attention_answers import answers, best_head
from core.report.measuring import Measured, measure
from core.report.numerals import percent
from core.report.rendering import as_html, as_markdown
from core.report.wording import Training, exact_by_length, findings, verdict
from core.runs import Published, Runs
from core.tasks import Task, fixed_pairs

EXAMPLES, FAILURES = 12, 8
LOSS, ACCURACY = "loss.png", "accuracy.png"
LENGTHS, HEATMAP = "accuracy_by_length.png", "attention_heatmap.png"
PAGE_FILE, TEXT_FILE = "report.html", "report.md"
REPORT_FILES = (PAGE_FILE, TEXT_FILE, LOSS, ACCURACY, LENGTHS, HEATMAP)


@dataclass(frozen=True)
class Report:
    """A report of a run.

    Attributes:
        summary: whether the model does its task, in a sentence.
        markdown: the whole, with its pictures named as files beside it.
        html: the same with its pictures in it.
        pictures: PNG files by name; ``attention_heatmap.png`` is missing where there is no cross-attention.
    """

    run: str
    summary: str
    markdown: str
    html: str
    pictures: dict[str, bytes]

    def save(self, folder: Path) -> None:
        """Write report.md, report.html and the pictures into a folder, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in self.pictures.items():
            write_atomically(folder / name, picture)
        write_atomically(folder / TEXT_FILE, self.markdown.encode())
        write_atomically(folder / PAGE_FILE, self.html.encode())


def write_report(runs: Runs, name: str, *, sequences: int) -> Report:
    """Measure a run on its test set and report on it.

    Args:
        sequences: how many of the test set, at least 1; fewer are used where there are fewer.

    Raises:
        RunError: there is no such run, or it has no weights yet.
    """
    published, history = runs.published(name), runs.history(name)
    measured = measure(published.model, published.task, fixed_pairs(published.task, sequences, split="test"))
    training = _training(published, history, runs.info(name).step)
    example = _example(published, measured)
    pictures = _pictures(measured, history, example)
    sequences_table = measured.sequences
    context = {
        "run": name,
        "verdict": verdict(measured),
        "findings": findings(measured, training),
        "description": published.preset.description,
        "facts": _facts(published, runs),
        "figures": _figures(published.task, measured, training),
        "by_length": _by_length(sequences_table),
        "kinds": _kinds(sequences_table),
        "examples": _examples(sequences_table.head(EXAMPLES)),
        "failures": _examples(sequences_table[~sequences_table.is_exact].head(FAILURES)),
        "heads": _heads(measured),
        "heatmap_caption": _caption(measured, example),
        "answers": answers(measured),
        "no_attention": _no_attention(measured),
        "pictures": {name.removesuffix(".png"): name for name in pictures},
    }
    markdown = as_markdown(context)
    return Report(
        name, context["verdict"], markdown, as_html(markdown, title=f"Report: {name}", pictures=pictures), pictures
    )


def _training(published: Published, history: History, step: int) -> Training:
    config = published.preset.training
    evaluated = history.evaluations()["step"]
    since = evaluated[-2] if len(evaluated) > 1 else -1
    losses = history.points(since=since)["loss"]
    return Training(
        step=step,
        steps=config.steps,
        train_loss=sum(losses) / len(losses) if losses else None,
        guessing_loss=math.log(len(published.task.tgt_vocab)),
        is_fixed_set=config.training_sequences > 0,
    )


def _example(published: Published, measured: Measured) -> Inspection:
    """Look into the first of the inputs whose length is in the middle."""
    middle = measured.sequences.length.sort_values(ignore_index=True).iloc[len(measured.sequences) // 2]
    symbols = measured.sequences[measured.sequences.length == middle].input.iloc[0]
    return inspect(published.model, published.task, " ".join(symbols))


def _pictures(measured: Measured, history: History, example: Inspection) -> dict[str, bytes]:
    by_length = exact_by_length(measured)
    counts = measured.sequences.groupby("length").size()
    pictures = {LENGTHS: as_png(lengths_figure(list(by_length.index), list(by_length), list(counts)))}
    evaluations = history.evaluations()
    if evaluations["step"]:
        pictures[LOSS] = as_png(loss_figure(history.points(), evaluations))
        pictures[ACCURACY] = as_png(accuracy_figure(evaluations))
    head = best_head(measured)
    if head is not None:
        figure = attention_figure(
            example.maps.cross[head.layer - 1, 0, head.head - 1].numpy(),
            rows=[step.produced for step in example.steps],
            columns=example.source_labels,
            title=f"cross-attention, layer {head.layer}, head {head.head}",
            marked=true_cells(example.alignment, steps=len(example.steps)),
        )
        pictures[HEATMAP] = as_png(figure)
    return pictures


def _facts(published: Published, runs: Runs) -> list[list[str]]:
    preset, info = published.preset, runs.info(published.run)
    config = preset.training
    seen = f"{info.sequences_seen:,}"
    if config.training_sequences:
        seen += f", {info.sequences_seen / config.training_sequences:.1f} times a set of {config.training_sequences:,}"
    return [
        ["what", "value"],
        ["preset", preset.name],
        ["task", preset.task.summary],
        ["model", preset.model.family],
        ["parameters", f"{count_parameters(published.model):,}"],
        ["weights", f"{published.kind}, after step {published.step:,} of {config.steps:,}"],
        ["training sequences seen", seen],
        ["training time", f"{info.seconds:.1f} s"],
        ["seed", str(config.seed)],
        ["status", info.status],
    ]


def _figures(task: Task, measured: Measured, training: Training) -> list[list[str]]:
    evaluation = measured.evaluation
    exact = int(measured.sequences.is_exact.sum())
    train_loss = "–" if training.train_loss is None else f"{training.train_loss:.4f}"
    bleu = corpus_bleu(task, measured.sequences.output, measured.sequences.reference)
    return [
        ["on the test set", "value"],
        [
            "exact match, each input by itself",
            f"{percent(measured.exact_alone)} ({exact:,} of {evaluation.sequences:,})",
        ],
        ["exact match, in a padded batch", percent(evaluation.exact_match)],
        ["token accuracy", percent(evaluation.token_accuracy)],
        ["loss, nats per token", f"{evaluation.loss:.4f}"],
        ["perplexity", f"{evaluation.perplexity:.4f}"],
        ["training loss at the end", train_loss],
        ["answers ended by EOS", percent(measured.stopped)],
        *([] if bleu is None else [["BLEU, each input by itself", f"{bleu.score:.2f} ({bleu.signature})"]]),
    ]


def _by_length(sequences: pd.DataFrame) -> list[list[str]]:
    groups = sequences.groupby("length").is_exact
    rows = [[str(length), f"{len(exact):,}", percent(exact.mean())] for length, exact in groups]
    return [["symbols", "inputs", "exact match"], *rows]


def _kinds(sequences: pd.DataFrame) -> list[list[str]]:
    counts = sequences.kind.value_counts()
    rows = [
        [kind, f"{counts[kind]:,}", percent(counts[kind] / len(sequences)), meaning]
        for kind, meaning in KINDS.items()
        if kind in counts
    ]
    return [["kind", "answers", "share", "meaning"], *rows]


def _examples(sequences: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "input": " ".join(sequence.input),
            "output": " ".join(sequence.output) + ("" if sequence.stopped else " …") or "(nothing)",
            "reference": " ".join(sequence.reference),
            "match": "match" if sequence.is_exact else "no match",
            "kind": sequence.kind,
        }
        for sequence in sequences.itertuples()
    ]


def _heads(measured: Measured) -> list[list[str]]:
    rows = [
        [str(score.layer), str(score.head), percent(score.share), percent(score.hits), percent(score.uniform)]
        for score in measured.head_scores()
    ]
    return [["layer", "head", "on the true token", "largest weight there", "uniform would be"], *rows]


def _caption(measured: Measured, example: Inspection) -> str:
    head = best_head(measured)
    if head is None:
        return ""
    end = "" if example.stopped else " …"
    return (
        f"{' '.join(example.symbols)} → {' '.join(example.output)}{end}: layer {head.layer}, head {head.head}, the one "
        "of the last layer that looks most at the true tokens. Each row is a step of writing, labelled with the token "
        "it wrote; the columns are the input; outlined is where the task says the token comes from."
    )


def _no_attention(measured: Measured) -> str:
    """Say why there is no head to show; needed only where there is none."""
    if measured.steps.empty:
        return "This model has no cross-attention to show."
    return (
        "Its task does not say which input token a token of the answer comes from: several have a share in each. So "
        "there is nothing to judge the heads by; the page shows where they looked."
    )
