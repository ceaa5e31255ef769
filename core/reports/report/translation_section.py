"""The section of a report on translation quality: greedy, beam search and copying the source; sample translations."""

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from core.evaluation.translating import translate_pairs
from core.evaluation.translation_quality import TranslationQuality, answer_text, reference_texts, score_translations
from core.generation import Beam
from core.models import Seq2Seq
from core.reports.report.measurements import ReportMeasurements
from core.tasks import Batch, Task

BEAM = Beam(beam_size=5)
NUM_SAMPLES = 12
MAX_GROUPS = 5  # of source lengths
MIN_GROUP = 20  # sources; BLEU of fewer is not meaningful
_EMPTY = "(empty)"


@dataclass(frozen=True)
class TranslationSection:
    """BLEU and chrF of the same held-out pairs for three ways to translate, with samples.

    Attributes:
        greedy, beam, copying: of greedy decoding, of beam search, and of the untranslated sources.
        samples: source, greedy output, output of beam search and reference of the first pairs, as text.
        by_length: a table of the greedy outputs by source length; only its header if there are too few of each.
    """

    greedy: TranslationQuality
    beam: TranslationQuality
    copying: TranslationQuality
    samples: list[dict[str, str]]
    by_length: list[list[str]]

    @property
    def table(self) -> list[list[str]]:
        """BLEU and chrF of each way; the first row holds the column names."""
        ways = {
            "greedy": self.greedy,
            f"beam search, {BEAM.beam_size} hypotheses": self.beam,
            "none: the source, copied": self.copying,
        }
        rows = [[way, f"{each.bleu:.2f}", f"{each.chrf:.2f}"] for way, each in ways.items()]
        return [["decoding", self.greedy.bleu_name, "chrF"], *rows]

    def as_data(self) -> dict[str, Any]:
        """Return the scores as JSON-compatible data."""
        return {"greedy": asdict(self.greedy), "beam": asdict(self.beam), "copying": asdict(self.copying)}


def translation_section(
    model: Seq2Seq, task: Task, pairs: Batch, measurements: ReportMeasurements
) -> TranslationSection | None:
    """Measure the section on the pairs of ``measurements``; None if the task's answers have no BLEU.

    Raises:
        LabError: sacrebleu is not installed.
    """
    copying = measurements.copying
    tokenizer = measurements.headline.bleu_tokenizer
    if tokenizer is None or measurements.quality is None or copying is None:
        return None
    outputs, references = translate_pairs(model, task, pairs, strategy=BEAM), reference_texts(task, pairs)
    greedy_outputs = [answer_text(task, tokens) for tokens in measurements.sequences.output]
    sources = measurements.sequences.input_text.tolist()
    samples = [
        {"source": source, "greedy": greedy or _EMPTY, "beam": beam or _EMPTY, "reference": reference}
        for source, greedy, beam, reference in zip(sources, greedy_outputs, outputs, references, strict=True)
    ]
    return TranslationSection(
        greedy=measurements.quality,
        beam=score_translations(outputs, references, tokenizer=tokenizer),
        copying=copying,
        samples=samples[:NUM_SAMPLES],
        by_length=_by_length(
            measurements.sequences.assign(text=greedy_outputs, reference_text=references),
            tokenizer,
            unit=task.length_unit,
        ),
    )


def _by_length(greedy: pd.DataFrame, tokenizer: str, *, unit: str) -> list[list[str]]:
    """Return BLEU and chrF in groups of about equal size, shortest sources first.

    Args:
        greedy: ``answer_table`` with the columns ``text`` and ``reference_text``.
    """
    rows, name = [], ""
    groups = min(MAX_GROUPS, len(greedy) // MIN_GROUP)
    if groups > 1:
        for _, group in greedy.groupby(pd.qcut(greedy.length, groups, duplicates="drop"), observed=True):
            quality = score_translations(group.text.tolist(), group.reference_text.tolist(), tokenizer=tokenizer)
            name = quality.bleu_name
            first, last = group.length.min(), group.length.max()
            span = str(first) if first == last else f"{first}–{last}"
            rows.append([span, f"{len(group):,}", f"{quality.bleu:.2f}", f"{quality.chrf:.2f}"])
    return [[unit, "inputs", name, "chrF"], *rows]
