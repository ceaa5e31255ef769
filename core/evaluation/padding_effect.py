"""Whether padding changes what a model decodes: the same sources without padding, and in padded batches."""

from dataclasses import dataclass

from core.evaluation.headline import headline_of
from core.evaluation.outputs import Outputs, decode_padded
from core.generation import GREEDY, Strategy
from core.models import Seq2Seq
from core.tasks import Task

COMPARED = 1_000  # sequences: enough to see a difference of a percent


@dataclass(frozen=True)
class PaddingEffect:
    """How well a model decodes the same sources without padding and with it, which should make no difference.

    Attributes:
        sequences: number of sources.
        alone, padded: exact match without padding, and in padded batches, 0-1.
        bleu_alone, bleu_padded: BLEU, 0-100; None if the task's answers have no BLEU.
    """

    sequences: int
    alone: float
    padded: float
    bleu_alone: float | None = None
    bleu_padded: float | None = None


def measure_padding_effect(
    model: Seq2Seq, task: Task, outputs: Outputs, *, strategy: Strategy = GREEDY
) -> PaddingEffect:
    """Decode sources in padded batches, and compare. The model's training mode and weights are left unchanged.

    Args:
        model: decodes in evaluation mode.
        task: the task of the pairs.
        outputs: what the model decodes from pairs without padding; the first ``COMPARED`` of them are compared.
        strategy: the decoding strategy of ``outputs``.
    """
    pairs = outputs.pairs[:COMPARED]
    alone = Outputs(pairs, outputs.tokens[:COMPARED], outputs.log_probs[:COMPARED])
    padded = decode_padded(model, pairs, strategy=strategy, max_steps=model.max_seq_len)
    if headline_of(task).bleu_tokenizer is None:
        bleu = []
    else:
        bleu = [found.bleu for each in (alone, padded) if (found := each.quality(task))]
    return PaddingEffect(len(pairs), alone.exact_match(task), padded.exact_match(task), *bleu)
