"""Translate held-out pairs with any decoding strategy, in batches of similar lengths: the quickest way to texts."""

import torch

from core.evaluation.passes import evaluation_mode
from core.evaluation.translation_quality import output_text
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
