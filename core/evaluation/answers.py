"""Per-item answers: one table row for each held-out input, with output, reference and kind of error."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from core.evaluation.failures import classify_answer
from core.evaluation.outputs import Outputs, with_eos
from core.evaluation.passes import evaluation_mode, sequences_per_pass
from core.generation import generate
from core.models import Seq2Seq
from core.tasks import Batch, Task, unpadded_batches
from core.text.vocab import EOS_ID, PAD_ID, until_eos

TOKENS_PER_PART = 20_000  # tokens decoded for one part of the table: well under a second for a small model


def answer_table(model: Seq2Seq, task: Task, pairs: Batch, *, outputs: Outputs | None = None) -> pd.DataFrame:
    """Decode pairs greedily, without padding. The model's training mode and weights are left unchanged.

    Args:
        model: decodes and scores in evaluation mode.
        task: the task of the pairs.
        pairs: with any padding.
        outputs: what the model decodes from the pairs, up to its maximum length, if that is known already.

    Returns:
        One row per pair, in order, with index ``sequence`` and the columns

        - ``input``, ``output``, ``reference``: lists of tokens without BOS and EOS; ``length``: tokens in the input;
          ``input_text``, ``output_text``, ``reference_text``: as text; of tokens that are no subwords, the output and
          the reference are the tokens with spaces between them;
        - ``stopped``: whether the output ended with EOS; ``outcome``: one of ``failures.OUTCOMES``; ``is_exact``;
        - ``num_tokens``: tokens in the reference, EOS included; ``scored_tokens``: those that token accuracy counts
          (``Batch.is_scored``);
        - ``correct_tokens``: scored tokens that the free-running output has at the same position;
          ``correct_tokens_teacher_forced``: scored tokens that are the argmax under teacher forcing; ``loss``:
          cross-entropy in nats, summed over all reference tokens, teacher-forced;
        - ``eos_probability``: probability of EOS after the complete reference, 0-1.
    """
    return join_parts(list(answer_parts(model, task, pairs, outputs=outputs)))


def answer_parts(model: Seq2Seq, task: Task, pairs: Batch, *, outputs: Outputs | None = None) -> Iterator[pd.DataFrame]:
    """Yield the rows of ``answer_table`` in parts, by input length, so that the caller can report progress."""
    pairs = replace(pairs, tgt=with_eos(pairs.tgt))
    part_size = min(sequences_per_pass(model, model.max_seq_len), TOKENS_PER_PART // model.max_seq_len + 1)
    for indices, batch in unpadded_batches(pairs):
        for rows in torch.arange(len(batch)).split(part_size):
            known = None if outputs is None else outputs.tokens[indices[rows]]
            yield _part(model, task, indices[rows], batch[rows], known)


def join_parts(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the parts of a table, in the order of the pairs."""
    return pd.concat(parts).sort_index()


@torch.no_grad()
def _part(model: Seq2Seq, task: Task, indices: torch.Tensor, pairs: Batch, tokens: torch.Tensor | None) -> pd.DataFrame:
    """Return the rows of pairs whose sources all have the same length; ``tokens`` (B, T) int64, None to decode."""
    with evaluation_mode(model):
        if tokens is None:
            tokens = generate(model, pairs.src, max_steps=model.max_seq_len).tokens
        logits = model(pairs.src, pairs.tgt_in[:, : int((pairs.tgt_out != PAD_ID).sum(dim=1).max())])
    rows = [_row(task, pairs, tokens, row) for row in range(len(pairs))]
    return pd.DataFrame(
        {"sequence": indices.tolist()}
        | {name: [row[name] for row in rows] for name in rows[0]}
        | {
            "num_tokens": (pairs.tgt_out != PAD_ID).sum(dim=1).tolist(),
            "scored_tokens": pairs.is_scored.sum(dim=1).tolist(),
            "correct_tokens": _count_correct(tokens, pairs),
            "correct_tokens_teacher_forced": _count_correct(logits.argmax(dim=-1), pairs),
            "loss": _losses(logits, pairs.tgt_out),
            "eos_probability": _eos_probabilities(logits, pairs.tgt_out),
        }
    ).set_index("sequence")


def _row(task: Task, pairs: Batch, tokens: torch.Tensor, row: int) -> dict[str, Any]:
    """Return the columns of one answer that are computed item by item."""
    source = task.src_vocab.decode(pairs.src[row].tolist()[1:-1])
    reference = task.tgt_vocab.decode(until_eos(pairs.tgt_out[row].tolist()))
    ids = tokens[row].tolist()
    output = task.tgt_vocab.decode(until_eos(ids))
    if output != reference and output in task.references(source):
        reference = output  # another correct answer
    text = " ".join if task.subwords is None else task.answer_text
    stopped = EOS_ID in ids
    outcome = classify_answer(output, reference, stopped=stopped)
    return {
        "input": source,
        "input_text": task.source_text(source),
        "output": output,
        "output_text": text(output),
        "reference": reference,
        "reference_text": text(reference),
        "length": len(source),
        "stopped": stopped,
        "outcome": outcome,
        "is_exact": outcome == "exact",
    }


def _count_correct(tokens: torch.Tensor, pairs: Batch) -> list[int]:
    """Count the scored tokens of each reference that ``tokens`` (B, T) has at the same position."""
    width = pairs.tgt_out.shape[1]
    tokens = F.pad(tokens, (0, max(0, width - tokens.shape[1])), value=PAD_ID)[:, :width]
    return ((tokens == pairs.tgt_out) & pairs.is_scored).sum(dim=1).tolist()


def _losses(logits: torch.Tensor, tgt_out: torch.Tensor) -> list[float]:
    """Return the cross-entropy of each row in nats, summed over its non-PAD tokens."""
    tgt_out = tgt_out[:, : logits.shape[1]]
    nats = F.cross_entropy(logits.transpose(1, 2), tgt_out, ignore_index=PAD_ID, reduction="none")
    return nats.sum(dim=1).tolist()


def _eos_probabilities(logits: torch.Tensor, tgt_out: torch.Tensor) -> list[float]:
    """Return the probability of each row's EOS, teacher-forced, 0-1."""
    position = (tgt_out == EOS_ID).long().argmax(dim=1)
    return logits[torch.arange(len(position)), position].softmax(dim=-1)[:, EOS_ID].tolist()
