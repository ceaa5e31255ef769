"""BLEU (Papineni et al. 2002) and chrF (Popović 2015) of translations, computed by sacrebleu (Post 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.evaluation.headline import BleuName, bleu_name_of, headline_of
from core.storage.optional_imports import require_package
from core.tasks import Batch, Task
from core.text.vocab import UNK, until_eos

# Two signs, so that an unknown token of a translation never counts as equal to an unknown token of its reference.
_UNKNOWN_OUTPUT, _UNKNOWN_REFERENCE = "\N{REPLACEMENT CHARACTER}", "\N{DOUBLE QUESTION MARK}"


@dataclass(frozen=True)
class TranslationQuality:
    """Corpus BLEU and chrF of translations with one reference each.

    Attributes:
        bleu, chrf: 0-100, higher is better.
        bleu_signature: sacrebleu's, such as ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0``: scores
            with different signatures cannot be compared.
        chrf_signature: of chrF, such as ``nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0``.
        bleu_name: ``BLEU`` or ``character BLEU``; see ``core.evaluation.headline.bleu_name_of``.
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    bleu_name: BleuName


def quality_metrics(tokenizer: str) -> dict[str, Any]:
    """Return sacrebleu's metrics, ``BLEU`` and ``CHRF`` objects, by the names ``bleu`` and ``chrf``.

    Args:
        tokenizer: of BLEU: ``13a`` for words, ``char`` for characters.

    Raises:
        LabError: sacrebleu is not installed.
    """
    package = require_package("sacrebleu", purpose="BLEU")
    # force: do not warn that texts look tokenized; those of own pairs are tokens joined by spaces, on both sides.
    return {"bleu": package.BLEU(tokenize=tokenizer, force=True), "chrf": package.CHRF()}


def score_translations(outputs: Sequence[str], references: Sequence[str], *, tokenizer: str) -> TranslationQuality:
    """Compute BLEU and chrF of a corpus of texts.

    Args:
        outputs: the translations.
        references: one for each.
        tokenizer: see ``quality_metrics``.

    Raises:
        LabError: sacrebleu is not installed.
        ValueError: there are no translations, or not as many references.
    """
    if len(outputs) != len(references) or not outputs:
        raise ValueError(f"{len(outputs)} translations and {len(references)} references: both must be as many, above 0")
    metrics = quality_metrics(tokenizer)
    scores = {name: metric.corpus_score(list(outputs), [list(references)]).score for name, metric in metrics.items()}
    return TranslationQuality(
        bleu=scores["bleu"],
        chrf=scores["chrf"],
        bleu_signature=str(metrics["bleu"].get_signature()),
        chrf_signature=str(metrics["chrf"].get_signature()),
        bleu_name=bleu_name_of(tokenizer),
    )


def output_text(task: Task, ids: Sequence[int]) -> str:
    """Write the ids of an output, up to EOS, as text; see ``answer_text``."""
    return answer_text(task, task.tgt_vocab.decode(until_eos(ids)))


def answer_text(task: Task, tokens: Sequence[str]) -> str:
    """Write the tokens of an output as text; unknown tokens become U+FFFD, which no reference has for its own."""
    return _text(task, tokens, _UNKNOWN_OUTPUT)


def reference_texts(task: Task, pairs: Batch) -> list[str]:
    """Write the target of each pair as text. A source with several references has one of them here."""
    rows = [task.tgt_vocab.decode(until_eos(ids)) for ids in pairs.tgt_out.tolist()]
    return [_text(task, tokens, _UNKNOWN_REFERENCE) for tokens in rows]


def source_texts(task: Task, pairs: Batch) -> list[str]:
    """Write the source of each pair as text."""
    return [task.source_text(task.src_vocab.decode(until_eos(ids[1:]))) for ids in pairs.src.tolist()]


def copying_quality(task: Task, pairs: Batch) -> TranslationQuality | None:
    """Return BLEU and chrF of the sources themselves as translations: what is reached without translating.

    None if the task's answers have no BLEU.
    """
    tokenizer = headline_of(task).bleu_tokenizer
    if tokenizer is None:
        return None
    return score_translations(source_texts(task, pairs), reference_texts(task, pairs), tokenizer=tokenizer)


def _text(task: Task, tokens: Sequence[str], unknown: str) -> str:
    return task.answer_text([unknown if token == UNK else token for token in tokens])
