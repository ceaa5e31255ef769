"""One input, looked into: what the model answered, how sure it was, and where every head looked meanwhile."""

import time
from dataclasses import dataclass

import torch

from core.analysis import HeadScore, frame_labels, score_decoded, step_labels
from core.decoding import decode
from core.errors import InputError
from core.models import AttentionMaps, Seq2Seq
from core.tasks import Batch, Task
from core.vocab import BOS_ID, EOS, EOS_ID, UNK

NUM_CANDIDATES = 5


@dataclass(frozen=True)
class Step:
    """One decoding step: what it produced, after reading what, and the likeliest tokens with probabilities 0-1."""

    produced: str
    read: str
    candidates: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Inspection:
    """A decode that happened, with everything there is to see in it.

    Attributes:
        symbols: the input as the model reads it: a word that is not known is UNK.
        output: the answer's symbols, EOS left out.
        expected: the right answer.
        stopped: whether the model ended by EOS rather than by running out of positions.
        steps: one a produced token, EOS included.
        maps: attention of this decode, batch of one; rows are the steps.
        scores: of the cross-attention heads on this decode.
        seconds: the decode took.
        note: what else there is to say about the input, or "".
    """

    symbols: list[str]
    output: list[str]
    expected: list[str]
    stopped: bool
    steps: tuple[Step, ...]
    maps: AttentionMaps
    scores: list[HeadScore]
    alignment: list[int]
    seconds: float
    note: str = ""

    @property
    def correct(self) -> bool:
        """Whether the answer is exactly right and the model stopped by itself."""
        return self.stopped and self.output == self.expected

    @property
    def source_labels(self) -> list[str]:
        """Names of the source positions: BOS, the input, EOS."""
        return frame_labels(self.symbols)


def inspect(model: Seq2Seq, task: Task, text: str) -> Inspection:
    """Decode what a person typed and record it all.

    Args:
        model: in evaluation mode.
        text: as typed.

    Raises:
        InputError: the text is not an input of this task, or too long for the model; the message says why.
    """
    typed = task.read(text)
    positions = len(typed) + 2
    if positions > model.max_seq_len:
        raise InputError(
            f"input has {len(typed)} tokens, {positions} with BOS and EOS; "
            f"this model reads at most max_seq_len={model.max_seq_len}"
        )
    ids = task.src_vocab.encode(typed)
    symbols = task.src_vocab.decode(ids)
    src = torch.tensor([[BOS_ID, *ids, EOS_ID]], device=model.device)
    started = time.perf_counter()
    decoded = decode(model, src, max_steps=model.max_seq_len, num_candidates=NUM_CANDIDATES, need_weights=True)
    seconds = time.perf_counter() - started
    tokens = task.tgt_vocab.decode(decoded.tokens[0].tolist())
    produced, read = step_labels(tokens)
    steps = tuple(
        Step(token, before, tuple(zip(task.tgt_vocab.decode(ids), probabilities, strict=True)))
        for token, before, ids, probabilities in zip(
            produced, read, decoded.candidates[0].tolist(), decoded.probabilities[0].tolist(), strict=True
        )
    )
    stopped = bool(decoded.stopped[0])
    return Inspection(
        symbols=symbols,
        output=[token for token in tokens if token != EOS],
        expected=task.answer(symbols),
        stopped=stopped,
        steps=steps,
        maps=decoded.maps,
        scores=score_decoded(task, Batch(src, src), decoded),
        alignment=task.alignment(symbols),
        seconds=seconds,
        note="; ".join(filter(None, [_unknown_note(typed, symbols), _range_note(task, len(symbols))])),
    )


def _unknown_note(typed: list[str], symbols: list[str]) -> str:
    unknown = dict.fromkeys(word[:20] for word, read in zip(typed, symbols, strict=True) if word != read)
    return f"not in its vocabulary, so read as {UNK}: {', '.join(unknown)}" if unknown else ""


def _range_note(task: Task, length: int) -> str:
    if task.min_length <= length <= task.max_length:
        return ""
    side = "shorter" if length < task.min_length else "longer"
    return f"{side} than any sequence it was trained on ({lengths_in_words(task)} tokens)"


def lengths_in_words(task: Task) -> str:
    """Write the lengths of a task's sequences: ``3–10``, or ``10`` where there is only one."""
    low, high = task.min_length, task.max_length
    return f"{low}–{high}" if low < high else str(low)
