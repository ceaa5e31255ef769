"""How often answers are wrong where several are right: in whole answers and in tokens, by the nearest reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.evaluation.accuracy import CHUNK, evaluation_mode, without_padding
from core.generation import GREEDY, Strategy, generate
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import until_eos


@dataclass(frozen=True)
class ErrorRates:
    """Errors over a set of sources, each asked for once.

    For words and phones these are WER and PER as the literature on pronunciation has them (Yao & Zweig 2015, section
    4.1): a word is wrong if it is none of its references; a phone error is a phone put in, left out or exchanged on the
    way to the reference that takes the fewest of them, and the rate is over the phones of those references.

    Attributes:
        names: of both rates, as the task has them.
        sources: how many there were.
        answers: share of them answered by none of their references, 0-1.
        tokens: edits to the nearest references, per token of these; above 1 where far too much is written.
    """

    names: tuple[str, str]
    sources: int
    answers: float
    tokens: float


@torch.no_grad()
def error_rates_of(model: Seq2Seq, task: Task, pairs: Batch, *, strategy: Strategy = GREEDY) -> ErrorRates | None:
    """Let a model answer sources, each as if alone, and compare; None where exact match says it all."""
    if task.rate_names is None:
        return None
    wrong = edits = tokens = 0
    at_once = max(1, CHUNK // strategy.rows_per_source)
    with evaluation_mode(model):
        for _, same_length in without_padding(pairs):
            for rows in torch.arange(len(same_length)).split(at_once):
                src = same_length[rows].src
                decoded = generate(model, src, max_steps=model.max_seq_len, strategy=strategy)
                for source, ids in zip(src.tolist(), decoded.tokens.tolist(), strict=True):
                    references = task.references(task.src_vocab.decode(source[1:-1]))
                    distance, reference = nearest(task.tgt_vocab.decode(until_eos(ids)), references)
                    wrong, edits, tokens = (
                        wrong + (distance > 0),
                        edits + distance,
                        tokens + len(reference),
                    )
    return ErrorRates(task.rate_names, len(pairs), wrong / len(pairs), edits / max(1, tokens))


def nearest(written: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, Sequence[str]]:
    """Return the fewest edits that make an answer one of its references, and the first reference it takes so few to."""
    return min(((edit_distance(written, each), each) for each in references), key=lambda found: found[0])


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the tokens to put in, leave out or exchange to make one sequence the other (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for place, token in enumerate(one, start=1):
        before, row[0] = row[0], place
        for column, wanted in enumerate(other, start=1):
            before, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, before + (token != wanted))
    return row[-1]
