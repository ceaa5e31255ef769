"""Error rates against several references: of whole sequences (WER of pronunciations) and of tokens (PER)."""

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from core.evaluation.outputs import Outputs
from core.tasks import Task
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


def measure_error_rates(task: Task, outputs: Outputs) -> ErrorRates | None:
    """Compare outputs with all references of their sources; None if the task has no error rates."""
    if task.rate_names is None:
        return None
    edits = tokens = 0
    rows = (outputs.pairs.src.tolist(), outputs.pairs.tgt_out.tolist(), outputs.tokens.tolist())
    for source, target, ids in zip(*rows, strict=True):
        # A source with an unknown token cannot be looked up: its tokens no longer say which text it was
        known = task.references(task.src_vocab.decode(until_eos(source)[1:]))
        references = known or [task.tgt_vocab.decode(until_eos(target))]
        distance, reference = nearest_reference(task.tgt_vocab.decode(until_eos(ids)), references)
        edits += distance
        tokens += len(reference)
    total = len(outputs.pairs)
    wrong = int((~outputs.is_exact(task)).sum())
    return ErrorRates(task.rate_names, total, wrong / total, edits / max(1, tokens))


def nearest_reference(output: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, Sequence[str]]:
    """Return the reference with the smallest edit distance to an output (the first of several), and that distance.

    The distance counts inserted, deleted and substituted tokens (Levenshtein 1966).
    """
    distances = [Levenshtein.distance(output, reference) for reference in references]
    smallest = min(distances)
    return smallest, references[distances.index(smallest)]
