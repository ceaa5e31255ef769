"""Prepare training on the user's own pairs: import their files and make a preset for them."""

import hashlib
import math
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from core.config import Preset, preset_names
from core.storage.errors import InputError, LabError
from core.tasks.ingest.choosing import choose_tokens, subword_sizes, unknown_shares
from core.tasks.ingest.columns import Columns
from core.tasks.ingest.formats import FileFormat
from core.tasks.ingest.lines import Row
from core.tasks.ingest.pairs import IngestResult, Kinds, ingest_pairs
from core.tasks.ingest.reading import Reading, read_pairs, reading_of
from core.tasks.ingest.recipes import preset_for, task_for
from core.tasks.own_pairs import OwnPairs
from core.tasks.pairs import SPLITS, RaggedRows
from core.text.case import TextCase, in_case
from core.text.validation import quote
from core.text.vocab import Vocab

PART = 200_000  # pairs by which the tokens are chosen and measured
MAX_PRESET_NAME = 40  # characters of a preset's name that are taken from a file's name


@dataclass(frozen=True)
class HeldOutFile:
    """A file of pairs that are never trained on.

    Attributes:
        path: the pairs, or the sources if there is a target file.
        targets: a file with the target of each line of ``path``.
        split: "test" or "validation".
        set: the name of its test set; "" for none.
    """

    path: Path
    targets: Path | None = None
    split: str = "test"
    set: str = ""


@dataclass(frozen=True)
class PairFiles:
    """The files that hold a user's pairs.

    Attributes:
        pairs: the pairs, or the sources if there is a target file. It may mark pairs as held out.
        targets: a file with the target of each line of ``pairs``.
        held_out: files of held-out pairs only.
        file_format: of ``pairs`` and ``held_out``; None chooses by each file's name and lines.
        columns: what the columns of ``pairs`` and ``held_out`` are; None recognizes them.
    """

    pairs: Path
    targets: Path | None = None
    held_out: tuple[HeldOutFile, ...] = ()
    file_format: FileFormat | None = None
    columns: Columns | None = None


def prepare_preset(
    files: PairFiles,
    out: Path,
    *,
    kinds: Kinds | None = None,
    name: str | None = None,
    like: Preset | None = None,
    max_pairs: int | None = None,
    on_row: Callable[[], object] = lambda: None,
) -> tuple[IngestResult, Preset]:
    """Import pairs and make a preset for them.

    Args:
        out: the pairs file to write, for ``build_task(…, pairs=out)``.
        kinds: tokens of source and target; None chooses them by the pairs.
        name: of the preset; None names it after the file with ``preset_name_for``.
        like: the preset whose model and training it gets; None chooses both by the number of pairs.
        on_row: called for each row that is read; the files may be read several times.

    Raises:
        InputError: the files hold no usable pairs, or too few or too many, or only one side's tokens are subwords.
        ConfigError: the pairs cannot be split, or the model of ``like`` cannot learn them.
        SubwordError: no subwords can be learned from the pairs.
    """
    if kinds is not None and (kinds[0] == "subword") != (kinds[1] == "subword"):
        raise InputError(f"tokens={kinds[0]},{kinds[1]} must be subword on both sides or on neither")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        draft, choice = Path(folder) / "pairs", ""
        if kinds is None:
            part = _ingest(files, draft, ("word", "word"), on_row, max_rows=PART)
            kinds, choice = choose_tokens(draft, part)
        result = _ingest(files, draft, kinds, on_row, max_pairs=max_pairs)
        result.choice = choice
        if kinds[0] == "subword":
            result.subwords = subword_sizes(draft)
        draft.replace(out)
    try:
        _measure_tokens(result, out)
        return result, preset_for(result, name=name or preset_name_for(files.pairs), like=like)
    except LabError:
        out.unlink()
        raise


def _ingest(
    files: PairFiles,
    out: Path,
    kinds: Kinds,
    on_row: Callable[[], object],
    *,
    max_pairs: int | None = None,
    max_rows: int | None = None,
) -> IngestResult:
    """Import the files. If held-out sources are in another case than all training sources, they are converted to it.

    Args:
        max_rows: of each file that are read; None reads all.
    """
    result = _ingest_in(files, out, kinds, on_row, "as-is", max_pairs=max_pairs, max_rows=max_rows)
    if not result.other_case:
        return result
    result = _ingest_in(files, out, kinds, on_row, result.source_case, max_pairs=max_pairs, max_rows=max_rows)
    result.other_case = True
    return result


def _ingest_in(
    files: PairFiles,
    out: Path,
    kinds: Kinds,
    on_row: Callable[[], object],
    case: TextCase,
    *,
    max_pairs: int | None,
    max_rows: int | None,
) -> IngestResult:
    """Import the files, their sources converted to a case."""
    reading = None if files.targets else reading_of(files.pairs, file_format=files.file_format, columns=files.columns)

    def read(path: Path, targets: Path | None, how: Reading | None) -> Iterator[Row]:
        name = f"{quote(path.name)}, " if files.held_out else ""
        for row in islice(read_pairs(path, how, targets=targets), max_rows):
            on_row()
            yield row._replace(source=in_case(row.source, case), file=name) if name or case != "as-is" else row

    def rows() -> Iterator[Row]:
        return read(files.pairs, files.targets, reading)

    def held_out() -> Iterator[Row]:
        for each in files.held_out:
            how = None if each.targets else _reading_like(each.path, reading, files)
            for row in read(each.path, each.targets, how):
                yield row._replace(split=row.split or each.split, set=each.set or row.set)
        if reading is not None and "split" in reading.columns.roles:
            yield from (row for row in rows() if row.split)

    training = (row for row in rows() if not row.split)
    result = ingest_pairs(training, out, kinds=kinds, held_out_rows=held_out(), max_pairs=max_pairs)
    result.reading = reading
    return result


def _reading_like(path: Path, main: Reading | None, files: PairFiles) -> Reading:
    """Return how to read held-out pairs: as the main file, if theirs has as many columns, otherwise as it shows."""
    found = reading_of(path, file_format=files.file_format, columns=files.columns)
    if main is None or main.recognized.width != found.recognized.width:
        return found
    return reading_of(path, file_format=files.file_format, columns=main.columns)


def _measure_tokens(result: IngestResult, pairs: Path) -> None:
    """Count the tokens as a training on the pairs has them: subwords, unknown ones, and the first pair's.

    Of more than ``PART`` pairs, every other one is read, or every third, and so on.

    Raises:
        ConfigError: a split is empty.
        SubwordError: no subwords can be learned.
    """
    config = task_for(result)
    result.measured_every = math.ceil(result.pairs / PART)
    if result.measured_every == 1:
        return _measure(result, OwnPairs(config, pairs))
    with tempfile.TemporaryDirectory(dir=pairs.parent) as folder:
        part = Path(folder) / "pairs"
        with pairs.open("rb") as whole:
            part.write_bytes(b"".join(islice(whole, None, None, result.measured_every)))
        digest = hashlib.sha256(part.read_bytes()).hexdigest()
        return _measure(result, OwnPairs(config.model_copy(update={"data": digest}), part))


def _measure(result: IngestResult, task: OwnPairs) -> None:
    table, vocabs = task.table, (task.src_vocab, task.tgt_vocab)
    if result.subwords:
        result.too_long = max(0, math.ceil(result.pairs / result.measured_every) - len(table))
        result.source_lengths, result.target_lengths = (
            Counter(rows.lengths.tolist()) for rows in (table.src, table.tgt)
        )
    if result.subwords or result.measured_every == 1:
        is_train = table.split == SPLITS.index("train")
        result.source_tokens, result.target_tokens = (
            _occurrences(rows, vocab, is_train) for rows, vocab in zip((table.src, table.tgt), vocabs, strict=True)
        )
    result.unknown = unknown_shares(table)
    source, target = (
        tokenizer.tokenize(text) for tokenizer, text in zip(task.tokenizers, result.first_pairs[0], strict=True)
    )
    result.example = source, target


def _occurrences(rows: RaggedRows, vocab: Vocab, is_train: torch.Tensor) -> Counter[str]:
    """Count the tokens of the training rows, (N,) bool, which are those of the vocabulary."""
    ids = rows.ids[is_train.repeat_interleave(rows.lengths)]
    counts = torch.bincount(ids.long(), minlength=len(vocab)).tolist()
    return Counter({token: count for token, count in zip(vocab.tokens, counts, strict=True) if count})


def preset_name_for(file: Path) -> str:
    """Return the name of a preset for the pairs in a file: ``My pairs.tsv`` gives ``my-pairs``.

    Accents are dropped, and other characters than a-z and 0-9 become hyphens; ``own-pairs`` is for a file without any.
    A name that a shipped preset has gets ``-pairs``.
    """
    letters = [each for each in unicodedata.normalize("NFKD", file.stem.lower()) if not unicodedata.combining(each)]
    name = re.sub(r"[^a-z0-9]+", "-", "".join(letters))[:MAX_PRESET_NAME].strip("-") or "own-pairs"
    return f"{name}-pairs" if name in preset_names() else name
