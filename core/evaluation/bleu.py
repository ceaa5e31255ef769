"""BLEU, the share of word sequences that translations have in common with their references, by sacrebleu."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.evaluation.accuracy import evaluation_mode, without_padding
from core.generation import generate
from core.models import Seq2Seq
from core.storage.optional_imports import require_package
from core.tasks import Batch, Task
from core.text.vocab import until_eos


@dataclass(frozen=True)
class Bleu:
    """A corpus's BLEU: the score, 0-100, and sacrebleu's signature, which says how it was computed."""

    score: float
    signature: str


def corpus_bleu(task: Task, outputs: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Bleu | None:
    """Compare answers with their references as text, all together; None where the task is no translation.

    Args:
        outputs, references: tokens, EOS left out.

    Raises:
        LabError: sacrebleu is not installed.
    """
    if task.bleu_tokenizer is None:
        return None
    metric = require_package("sacrebleu", purpose="BLEU").BLEU(tokenize=task.bleu_tokenizer)
    texts = [[task.text(tokens) for tokens in side] for side in (outputs, references)]
    score = metric.corpus_score(texts[0], [texts[1]]).score
    return Bleu(score, str(metric.get_signature()))


@torch.no_grad()
def bleu_of(model: Seq2Seq, task: Task, pairs: Batch) -> Bleu | None:
    """Let a model translate pairs greedily, each by itself, and compare; None where the task is no translation."""
    if task.bleu_tokenizer is None:
        return None
    outputs, references = [], []
    with evaluation_mode(model):
        for _, chunk in without_padding(pairs):
            decoded = generate(model, chunk.src, max_steps=model.max_seq_len)
            outputs += [task.tgt_vocab.decode(until_eos(row)) for row in decoded.tokens.tolist()]
            references += [task.tgt_vocab.decode(until_eos(row)) for row in chunk.tgt_out.tolist()]
    return corpus_bleu(task, outputs, references)
