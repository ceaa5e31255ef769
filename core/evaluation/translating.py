"""Translate held-out pairs with any decoding strategy, and measure the translations."""

import torch

from core.evaluation.accuracy import evaluation_mode
from core.evaluation.translation_quality import TranslationQuality, output_text, reference_texts, score_translations
from core.generation import GREEDY, Strategy
from core.generation.translation import decode_sources
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import until_eos


@torch.no_grad()
def translate_pairs(model: Seq2Seq, task: Task, pairs: Batch, *, strategy: Strategy = GREEDY) -> list[str]:
    """Decode the sources of pairs and return the outputs as text, in order; the model's mode is left unchanged."""
    sources = [until_eos(row)[1:] for row in pairs.src.tolist()]  # without BOS
    with evaluation_mode(model):
        return [output_text(task, ids) for ids in decode_sources(model, sources, strategy=strategy)]


def measure_quality(
    model: Seq2Seq, task: Task, pairs: Batch, *, strategy: Strategy = GREEDY
) -> TranslationQuality | None:
    """Translate pairs and compute BLEU and chrF; None if the task is not a translation.

    Raises:
        LabError: sacrebleu is not installed.
        ValueError: there are no pairs.
    """
    if task.bleu_tokenizer is None:
        return None
    outputs = translate_pairs(model, task, pairs, strategy=strategy)
    return score_translations(outputs, reference_texts(task, pairs), tokenizer=task.bleu_tokenizer)
