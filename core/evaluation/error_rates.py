"""Error rates against several references: of whole sequences (WER of pronunciations) and of tokens (PER)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rapidfuzz.distance import Levenshtein

from core.evaluation.accuracy import evaluation_mode, sequences_per_pass
from core.generation import GREEDY, Strategy, generate
from core.models import Seq2Seq
from core.tasks import Batch, Task, unpadded_batches
from core.text.vocab import until_eos


@dataclass(frozen=True)
class ErrorRates:
    """Error rates over a set of distinct sources, each of which may have several references.

    For words and phones these are WER and PER as defined in the literature on pronunciation (Yao & Zweig 2015,
    section 4.1): a word is wrong if the output equals none of its references; phone errors are the edits (insertions,
    deletions, substitutions) to the nearest reference, divided by the number of phones in the nearest references.

    Attributes:
        names: what the task calls the two rates, such as ("WER", "PER").
        sources: number of sources.
        sequence_rate: share of sources whose output equals none of their references, 0-1.
        token_rate: edits to the nearest references per reference token; above 1 if outputs are far too long.
    """

    names: tuple[str, str]
    sources: int
    sequence_rate: float
    token_rate: float


@torch.no_grad()
def measure_error_rates(model: Seq2Seq, task: Task, pairs: Batch, *, strategy: Strategy = GREEDY) -> ErrorRates | None:
    """Decode sources without padding and compare with all references; None if the task has no error rates."""
    if task.rate_names is None:
        return None
    wrong = edits = tokens = 0
    batch_size = max(1, sequences_per_pass(model, model.max_seq_len) // strategy.sequences_per_source)
    with evaluation_mode(model):
        for _, same_length in unpadded_batches(pairs):
            for rows in torch.arange(len(same_length)).split(batch_size):
                src = same_length[rows].src
                result = generate(model, src, max_steps=model.max_seq_len, strategy=strategy)
                for source, ids in zip(src.tolist(), result.tokens.tolist(), strict=True):
                    references = task.references(task.src_vocab.decode(source[1:-1]))
                    distance, reference = nearest_reference(task.tgt_vocab.decode(until_eos(ids)), references)
                    wrong += distance > 0
                    edits += distance
                    tokens += len(reference)
    return ErrorRates(task.rate_names, len(pairs), wrong / len(pairs), edits / max(1, tokens))


def nearest_reference(output: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, Sequence[str]]:
    """Return the reference with the smallest edit distance to an output (the first of several), and that distance.

    The distance counts inserted, deleted and substituted tokens (Levenshtein 1966).
    """
    distances = [Levenshtein.distance(output, reference) for reference in references]
    smallest = min(distances)
    return smallest, references[distances.index(smallest)]
