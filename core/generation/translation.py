"""Decode many texts with one run: files by line, and paragraphs by sentence."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from core.generation import Strategy, generate
from core.generation.reading import read_input
from core.models import Seq2Seq
from core.storage.errors import InputError
from core.tasks import Task
from core.text.sentences import split_sentences
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, until_eos

WINDOW = 2_000  # texts that are read, sorted by length and decoded before any of their outputs is returned
TOKENS_PER_BATCH = 8_000  # source tokens of a batch, PAD and every hypothesis of a beam search counted
SCORES_PER_STEP = 1_000_000  # logits of a decoding step, 4 MB
_EMPTY = "the output is empty: the model's first token was <EOS>"


@dataclass(frozen=True)
class Translation:
    """The output for one text.

    Attributes:
        output: as text; "" for a text without words, and for one that could not be decoded.
        problem: why it could not be decoded; "" if it was.
        note: what the vocabulary does not have of the text, or that the output has no words; "" if all is well.
    """

    output: str
    problem: str = ""
    note: str = ""


@dataclass(frozen=True)
class _Source:
    """A text that is decoded whole, or one of its sentences.

    Attributes:
        ids: of its tokens, without BOS and EOS.
        space: the white space between it and the next sentence.
        note: of ``core.generation.reading``.
    """

    ids: list[int]
    space: str = ""
    note: str = ""


def translate(
    model: Seq2Seq,
    task: Task,
    texts: Iterable[str],
    *,
    strategy: Strategy,
    report: Callable[[int], object] = lambda count: None,
) -> Iterator[Translation]:
    """Yield the output for each text, in order; memory does not grow with their number.

    ``WINDOW`` texts are decoded together, in batches of similar lengths. In tasks that translate sentences, a text that
    is too long for the model is decoded sentence by sentence.

    Args:
        model: in evaluation mode.
        texts: read as they are needed. A text without words has an empty output.
        strategy: the decoding strategy; only the best hypothesis is returned.
        report: called after each batch with the number of texts or sentences in it.
    """
    remaining = iter(texts)
    while window := list(islice(remaining, WINDOW)):
        yield from _translate_window(model, task, window, strategy, report)


def _translate_window(
    model: Seq2Seq, task: Task, texts: Sequence[str], strategy: Strategy, report: Callable[[int], object]
) -> list[Translation]:
    """Decode texts together; return their outputs in order."""
    sources: list[list[_Source]] = []
    problems = []
    for text in texts:
        try:
            sources.append(_read(model, task, text))
            problems.append("")
        except InputError as error:
            sources.append([])
            problems.append(str(error))
    ids = [source.ids for of_text in sources for source in of_text]
    outputs = iter(decode_sources(model, ids, strategy=strategy, report=report))
    found = []
    for of_text, problem in zip(sources, problems, strict=True):
        texts = [_text(task, next(outputs)) for _ in of_text]
        notes = [source.note for source in of_text] + [_EMPTY for text in texts if not text.strip()]
        output = "".join(text + source.space for text, source in zip(texts, of_text, strict=True))
        found.append(Translation(output, problem, "; ".join(filter(None, dict.fromkeys(notes)))))
    return found


def _text(task: Task, ids: list[int]) -> str:
    return task.answer_text(task.tgt_vocab.decode(ids))


def _read(model: Seq2Seq, task: Task, text: str) -> list[_Source]:
    """Tokenize a text, or its sentences if the model cannot read it whole; [] for a text without words.

    Raises:
        InputError: the task refuses the text, or it is too long for the model and has no shorter sentences.
    """
    if not text.strip():
        return []
    try:
        return [_source(model, task, text)]
    except InputError:
        sentences = split_sentences(text.strip()) if task.is_translation else []
        if len(sentences) < 2:
            raise
    return [_source(model, task, each, each[len(each.rstrip()) :]) for each in sentences]


def _source(model: Seq2Seq, task: Task, text: str, space: str = "") -> _Source:
    """Read a text; InputError if the task or the model cannot."""
    reading = read_input(model, task, text)
    return _Source(reading.ids, space, reading.note)


def decode_sources(
    model: Seq2Seq,
    sources: Sequence[list[int]],
    *,
    strategy: Strategy,
    batch_size: int | None = None,
    report: Callable[[int], object] = lambda count: None,
) -> list[list[int]]:
    """Decode sources in batches of similar lengths; return the best output for each, in order.

    Args:
        model: in evaluation mode.
        sources: ids without BOS and EOS, as the outputs; none is too long for the model.
        strategy: the decoding strategy.
        batch_size: sources of a batch; None bounds the memory of a batch instead.
        report: called after each batch with the number of sources in it.
    """
    outputs: list[list[int]] = [[]] * len(sources)
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    if batch_size is None:
        batches = _batches(order, sources, strategy.sequences_per_source, model.vocab_sizes[1])
    else:
        batches = (order[start : start + batch_size] for start in range(0, len(order), batch_size))
    for indices in batches:
        width = len(sources[indices[-1]])
        rows = [[BOS_ID, *sources[each], EOS_ID] + [PAD_ID] * (width - len(sources[each])) for each in indices]
        src = torch.tensor(rows, device=model.device)
        tokens = generate(model, src, max_steps=model.max_seq_len, strategy=strategy).tokens.tolist()
        for index, ids in zip(indices, tokens, strict=True):
            outputs[index] = until_eos(ids)
        report(len(indices))
    return outputs


def _batches(
    order: Sequence[int], sources: Sequence[list[int]], sequences_per_source: int, vocab_size: int
) -> Iterator[list[int]]:
    """Cut indices of sources, sorted by length, into batches of bounded memory; each has at least one source."""
    most_rows = max(1, SCORES_PER_STEP // (vocab_size * sequences_per_source))
    batch: list[int] = []
    for index in order:
        tokens = (len(batch) + 1) * (len(sources[index]) + 2) * sequences_per_source
        if batch and (tokens > TOKENS_PER_BATCH or len(batch) == most_rows):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
