"""BLEU (Papineni et al. 2002), computed by sacrebleu on the answers' text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.evaluation.accuracy import evaluation_mode
from core.generation import generate
from core.models import Seq2Seq
from core.storage.optional_imports import require_package
from core.tasks import Batch, Task, unpadded_batches
from core.text.vocab import until_eos


@dataclass(frozen=True)
class Bleu:
    """Corpus BLEU of a model's answers.

    Attributes:
        score: 0-100.
        signature: sacrebleu's, such as ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0``.
        tokenizer: sacrebleu's name of the units that n-grams are made of: ``13a`` for words, ``char`` for characters.
    """

    score: float
    signature: str
    tokenizer: str

    @property
    def name(self) -> str:
        """``BLEU``, or ``character BLEU``, which is higher and not comparable with BLEU on words."""
        return "character BLEU" if self.tokenizer == "char" else "BLEU"


def corpus_bleu(task: Task, outputs: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Bleu | None:
    """Compute the BLEU of a corpus; None if the task is not a translation.

    Args:
        task: its ``bleu_tokenizer`` names sacrebleu's tokenizer.
        outputs: the answers' tokens, without EOS.
        references: the reference tokens of each answer, without EOS.

    Raises:
        LabError: sacrebleu is not installed.
    """
    if task.bleu_tokenizer is None:
        return None
    metric = require_package("sacrebleu", purpose="BLEU").BLEU(tokenize=task.bleu_tokenizer)
    output_texts, reference_texts = ([task.answer_text(tokens) for tokens in side] for side in (outputs, references))
    score = metric.corpus_score(output_texts, [reference_texts]).score
    return Bleu(score, str(metric.get_signature()), task.bleu_tokenizer)


@torch.no_grad()
def measure_bleu(model: Seq2Seq, task: Task, pairs: Batch) -> Bleu | None:
    """Decode pairs greedily, without padding, and compute their BLEU; None if the task is not a translation."""
    if task.bleu_tokenizer is None:
        return None
    outputs, references = [], []
    with evaluation_mode(model):
        for _, batch in unpadded_batches(pairs):
            result = generate(model, batch.src, max_steps=model.max_seq_len)
            outputs += [task.tgt_vocab.decode(until_eos(row)) for row in result.tokens.tolist()]
            references += [task.tgt_vocab.decode(until_eos(row)) for row in batch.tgt_out.tolist()]
    return corpus_bleu(task, outputs, references)
