"""Prepare training on the user's own pairs: import their files and make a preset for them."""

import math
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from core.config import SPECIAL_TOKENS, Preset, parse_preset, preset_names
from core.config.tasks import OwnPairsConfig
from core.storage.errors import InputError, LabError
from core.tasks.ingest.choosing import choose_tokens, subword_sizes, unknown_shares
from core.tasks.ingest.formats import FileFormat
from core.tasks.ingest.lines import Row
from core.tasks.ingest.pairs import MAX_TOKENS, IngestResult, Kinds, SubwordSizes, ingest_pairs
from core.tasks.ingest.reading import read_pairs
from core.tasks.own_pairs import OwnPairs
from core.tasks.pairs import RaggedRows
from core.text.case import TextCase, in_case
from core.text.validation import quote
from core.text.vocab import Vocab

MAX_PRESET_NAME = 40  # characters of a preset's name that are taken from a file's name
_SMALL, _LARGE = 3_000, 30_000  # sources; a small data set gets fewer steps, a large one a larger model
_FEW_SENTENCES, _MANY_SENTENCES = 5_000, 20_000  # training pairs of subwords
_EPOCHS = 50  # over sentences: few enough steps for many, so that no preset trains for hours


@dataclass(frozen=True)
class PairFiles:
    """The files that hold a user's pairs.

    Attributes:
        pairs: the pairs, or the sources if there is a target file. It may mark pairs as held out.
        targets: a file with the target of each line of ``pairs``.
        test: pairs for the test split only, in the format of ``pairs``.
        file_format: of ``pairs`` and ``test``; None chooses by the file names.
    """

    pairs: Path
    targets: Path | None = None
    test: Path | None = None
    file_format: FileFormat | None = None


def prepare_preset(
    files: PairFiles,
    out: Path,
    *,
    kinds: Kinds | None = None,
    name: str | None = None,
    like: Preset | None = None,
    max_pairs: int | None = None,
) -> tuple[IngestResult, Preset]:
    """Import pairs and make a preset for them.

    Args:
        out: the pairs file to write, for ``build_task(…, pairs=out)``.
        kinds: tokens of source and target; None chooses them by the pairs.
        name: of the preset; None names it after the file with ``preset_name_for``.
        like: the preset whose model and training it gets; None chooses both by the number of pairs.

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
        result = _ingest(files, draft, kinds or ("word", "word"), max_pairs)
        case: TextCase = "as-is"
        if result.other_case:
            case = result.source_case
            result = _ingest(files, draft, result.kinds, max_pairs, case)
        if kinds is None:
            kinds, choice = choose_tokens(draft, result)
            if kinds != result.kinds:
                result = _ingest(files, draft, kinds, max_pairs, case)
            result.choice = choice
        result.other_case = case != "as-is"
        if kinds[0] == "subword":
            result.subwords = subword_sizes(draft)
        draft.replace(out)
    try:
        _measure_tokens(result, out)
        return result, preset_for(result, name=name or preset_name_for(files.pairs), like=like)
    except LabError:
        out.unlink()
        raise


def _ingest(files: PairFiles, out: Path, kinds: Kinds, max_pairs: int | None, case: TextCase = "as-is") -> IngestResult:
    """Import the files, their sources converted to a case."""

    def read(path: Path, targets: Path | None = None) -> Iterator[Row]:
        name = f"{quote(path.name)}, " if files.test else ""
        for row in read_pairs(path, file_format=files.file_format, targets=targets):
            yield replace(row, source=in_case(row.source, case), file=name)

    def rows() -> Iterator[Row]:
        return read(files.pairs, files.targets)

    def held_out() -> Iterator[Row]:
        if files.test:
            yield from (replace(row, split=row.split or "test") for row in read(files.test))
        yield from (row for row in rows() if row.split)

    training = (row for row in rows() if not row.split)
    return ingest_pairs(training, out, kinds=kinds, held_out_rows=held_out(), max_pairs=max_pairs)


def _measure_tokens(result: IngestResult, pairs: Path) -> None:
    """Count the tokens as a training on the pairs has them: subwords, unknown ones, and the first pair's.

    Raises:
        ConfigError: a split is empty.
        SubwordError: no subwords can be learned.
    """
    task = OwnPairs(_task_for(result), pairs)
    table, vocabs = task.table, (task.src_vocab, task.tgt_vocab)
    if result.subwords:
        result.too_long = result.pairs - len(table)
        result.source_lengths, result.target_lengths = (
            Counter(rows.lengths.tolist()) for rows in (table.src, table.tgt)
        )
        result.source_tokens, result.target_tokens = (
            _occurrences(rows, vocab) for rows, vocab in zip((table.src, table.tgt), vocabs, strict=True)
        )
    result.unknown = unknown_shares(table)
    source, target = (
        tokenizer.tokenize(text) for tokenizer, text in zip(task.tokenizers, result.first_pairs[0], strict=True)
    )
    result.example = source, target


def _occurrences(rows: RaggedRows, vocab: Vocab) -> Counter[str]:
    counts = torch.bincount(rows.ids.long(), minlength=len(vocab)).tolist()
    return Counter({token: count for token, count in zip(vocab.tokens, counts, strict=True) if count})


def _task_for(result: IngestResult) -> OwnPairsConfig:
    """Return the task section for imported pairs; its lengths are the largest possible until they are counted."""
    longest = result.longest if result.source_lengths else (MAX_TOKENS, MAX_TOKENS)
    document = {
        "data": result.sha256,
        "num_sources": result.sources,
        "source_tokens": result.kinds[0],
        "answer_tokens": result.kinds[1],
        "source_case": result.source_case,
        "longest_source": longest[0],
        "longest_answer": longest[1],
    }
    if result.sources > _LARGE:
        document["validation_percent"] = 2  # hundreds of sources, which measure the loss well enough
    if result.subwords:
        document |= {"vocabulary_size": result.subwords.vocabulary_size, "joint_vocabulary": result.subwords.joint}
    return OwnPairsConfig.model_validate(document)


def preset_name_for(file: Path) -> str:
    """Return the name of a preset for the pairs in a file: ``My pairs.tsv`` gives ``my-pairs``.

    Accents are dropped, and other characters than a-z and 0-9 become hyphens; ``own-pairs`` is for a file without any.
    A name that a shipped preset has gets ``-pairs``.
    """
    letters = [each for each in unicodedata.normalize("NFKD", file.stem.lower()) if not unicodedata.combining(each)]
    name = re.sub(r"[^a-z0-9]+", "-", "".join(letters))[:MAX_PRESET_NAME].strip("-") or "own-pairs"
    return f"{name}-pairs" if name in preset_names() else name


def preset_for(result: IngestResult, *, name: str, like: Preset | None = None) -> Preset:
    """Return a preset for imported pairs, with a model and training that fit their number or are those of a preset.

    Args:
        like: that preset; its model reads longer sequences if the pairs have some. If it shares the embeddings of both
            sides, subwords have one vocabulary for both.

    Raises:
        ConfigError: the model of ``like`` cannot learn these pairs.
    """
    task = _task_for(result)
    positions = min(512, max(task.longest_source, task.longest_answer) + SPECIAL_TOKENS)
    if like is not None:
        model, training = like.model.model_dump(), like.training.model_dump()
        model["max_seq_len"] = max(positions, like.model.max_seq_len)
        if task.has_subwords and model.get("tie_embeddings") == "all":
            task = task.model_copy(update={"joint_vocabulary": True})
    else:
        model, training = _for_sentences(result, result.subwords) if result.subwords else _for_sequences(result)
        model = {"family": "transformer", "norm": "pre", "num_heads": 4, "max_seq_len": positions} | model
        training = {"group_by_length": True, "learning_rate": 0.002} | training
    document = {
        "name": name,
        "description": f"Own data: {result.pairs:,} pairs with {result.sources:,} different sources.",
        "task": task.model_dump(exclude_defaults=True) | {"family": task.family},
        "model": model,
        "training": training,
    }
    return parse_preset(document)


def _for_sequences(result: IngestResult) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return model and training for pairs of characters, words or symbols."""
    is_large = result.sources > _LARGE
    d_model = 128 if is_large else 64
    model = {
        "d_model": d_model,
        "num_encoder_layers": 3 if is_large else 2,
        "num_decoder_layers": 2,
        "d_ff": 4 * d_model,
        "dropout": 0.1,
    }
    training = {
        "steps": 6_000 if is_large else 3_000 if result.training_pairs > _SMALL else 1_500,
        "batch_size": 64,
        "warmup_steps": 100,
        "label_smoothing": 0.1 if result.sources > _SMALL else 0.0,
        "evaluate_every": 100,
        "validation_sequences": 500,
    }
    return model, training


def _for_sentences(result: IngestResult, subwords: SubwordSizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return model and training for pairs of subwords: those of ``translate-en-de``, smaller for fewer pairs.

    Fewer pairs get more dropout, smaller batches and a smaller model, as Sennrich & Zhang (2019) find best.
    """
    few, many = result.training_pairs <= _FEW_SENTENCES, result.training_pairs > _MANY_SENTENCES
    d_model, layers, budget = (128, 2, 1_024) if few else (192, 3, 4_096)
    tokens = max(
        sum(length * count for length, count in side.items()) for side in (result.source_lengths, result.target_lengths)
    )
    steps = min(3_000, max(300, 100 * math.ceil(_EPOCHS * tokens / budget / 100)))
    model = {
        "d_model": d_model,
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "d_ff": 4 * d_model,
        "dropout": 0.3 if few else 0.15 if many else 0.2,
        "activation": "gelu",
        "tie_embeddings": "all" if subwords.joint else "output",
    }
    training = {
        "steps": steps,
        "tokens_per_batch": budget,
        "optimizer": "muon",
        "muon_learning_rate": 0.016,
        "schedule": "linear",
        "warmup_steps": steps // 10 if few else 200,
        "label_smoothing": 0.1,
        "evaluate_every": steps // 10,
        "validation_sequences": 300,
    }
    return model, training
