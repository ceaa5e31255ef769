"""What a model answers to held-out inputs, each by itself: right, wrong, and in what way."""

from collections.abc import Iterator

import pandas as pd
import torch
import torch.nn.functional as F

from core.evaluation.accuracy import CHUNK, evaluation_mode, with_eos, without_padding
from core.evaluation.failures import kind_of
from core.generation import GenerationResult, generate
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import EOS_ID, PAD_ID, until_eos

TOKENS_AT_ONCE = 20_000  # written for one part: well under a second of a small model's time


def answer_table(model: Seq2Seq, task: Task, pairs: Batch) -> pd.DataFrame:
    """Let a model answer pairs greedily, each as if alone; its mode and its weights are left as they were.

    Returns:
        A row a pair, in their order, indexed by ``sequence``, with the columns

        - ``input``, ``output``, ``reference``: lists of tokens without BOS and EOS; ``length``: tokens of the input;
          ``typed``: the input as text;
        - ``stopped``: whether EOS ended the answer; ``kind``: of ``failures.KINDS``; ``is_exact``;
        - ``tokens``: of the reference, its EOS included;
        - ``right``: how many of them the free-running answer has at their very places, and ``right_fed``: how many are
          the likeliest when the model is fed the true answer so far, and ``loss``, in nats, over all of them then;
        - ``eos_probability``: of EOS after the right answer, 0-1.
    """
    return joined(list(answer_parts(model, task, pairs)))


def answer_parts(model: Seq2Seq, task: Task, pairs: Batch) -> Iterator[pd.DataFrame]:
    """Yield the table of ``answer_table`` in parts, sorted by length, so that one can be told how far it is."""
    pairs = Batch(pairs.src, with_eos(pairs.tgt))
    at_once = min(CHUNK, TOKENS_AT_ONCE // model.max_seq_len + 1)
    for places, chunk in without_padding(pairs):
        for rows in torch.arange(len(chunk)).split(at_once):
            yield _part(model, task, places[rows], chunk[rows])


def joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Put the parts of a table together again, in the order of the pairs."""
    return pd.concat(parts).sort_index()


@torch.no_grad()
def _part(model: Seq2Seq, task: Task, places: torch.Tensor, pairs: Batch) -> pd.DataFrame:
    """Return the rows of pairs whose sources are of one length, without PAD."""
    with evaluation_mode(model):
        decoded = generate(model, pairs.src, max_steps=model.max_seq_len)
        logits, _ = model(pairs.src, pairs.tgt_in[:, : int((pairs.tgt_out != PAD_ID).sum(dim=1).max())])
    rows = [_row(task, pairs, decoded, row) for row in range(len(pairs))]
    return pd.DataFrame(
        {"sequence": places.tolist()}
        | {name: [row[name] for row in rows] for name in rows[0]}
        | {
            "tokens": (pairs.tgt_out != PAD_ID).sum(dim=1).tolist(),
            "right": _right(decoded.tokens, pairs.tgt_out),
            "right_fed": _right(logits.argmax(dim=-1), pairs.tgt_out),
            "loss": _losses(logits, pairs.tgt_out),
            "eos_probability": _eos_probabilities(logits, pairs.tgt_out),
        }
    ).set_index("sequence")


def _row(task: Task, pairs: Batch, decoded: GenerationResult, row: int) -> dict:
    """Return what there is to say of one answer."""
    source = task.src_vocab.decode(pairs.src[row].tolist()[1:-1])
    reference = task.tgt_vocab.decode(until_eos(pairs.tgt_out[row].tolist()))
    output = task.tgt_vocab.decode(until_eos(decoded.tokens[row].tolist()))
    if output != reference and output in task.references(source):
        reference = output  # another right answer
    stopped = bool(decoded.stopped[row])
    kind = kind_of(output, reference, stopped=stopped)
    return {
        "input": source,
        "typed": task.typed(source),
        "output": output,
        "reference": reference,
        "length": len(source),
        "stopped": stopped,
        "kind": kind,
        "is_exact": kind == "exact",
    }


def _right(tokens: torch.Tensor, tgt_out: torch.Tensor) -> list[int]:
    """Count for each row the tokens of the reference (B, T2) int64, PAD left out, that ``tokens`` (B, T1) has too."""
    width = tgt_out.shape[1]
    tokens = F.pad(tokens, (0, max(0, width - tokens.shape[1])), value=PAD_ID)[:, :width]
    return ((tokens == tgt_out) & (tgt_out != PAD_ID)).sum(dim=1).tolist()


def _losses(logits: torch.Tensor, tgt_out: torch.Tensor) -> list[float]:
    """Return each row's cross-entropy in nats, summed over its tokens, PAD left out."""
    tgt_out = tgt_out[:, : logits.shape[1]]
    nats = F.cross_entropy(logits.transpose(1, 2), tgt_out, ignore_index=PAD_ID, reduction="none")
    return nats.sum(dim=1).tolist()


def _eos_probabilities(logits: torch.Tensor, tgt_out: torch.Tensor) -> list[float]:
    """Return how likely each row's EOS is where it belongs, having read the right answer up to there."""
    place = (tgt_out == EOS_ID).long().argmax(dim=1)
    return logits[torch.arange(len(place)), place].softmax(dim=-1)[:, EOS_ID].tolist()
