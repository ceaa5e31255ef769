"""The user's own pairs, read from the file that ``core.tasks.ingest`` writes."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from pathlib import Path

import torch

from core.config import ConfigError, verified_pairs
from core.config.tasks import SUBWORDS, VOCABULARY, OwnPairsConfig
from core.storage.errors import UnavailableError
from core.tasks.pairs import SPLITS, PairTable, PairTask, RaggedRows, TestSets, as_tensor, source_key, split_by_source
from core.tasks.subword_pairs import TextPair, encode_pairs, links_of, read_file, tokenizers_of, vocabularies_of
from core.tasks.vocabularies import check_hash, missing_vocabulary, read_vocabularies
from core.text.case import in_case
from core.text.subwords import SubwordTokenizers
from core.text.tokenizers import PlainTokenizer, Tokenizer, detokenize, plain_kind, tokenize
from core.text.vocab import Vocab

_EXAMPLES = 4
_EXAMPLE = "This is a test."  # without pairs, if the preset suggests nothing
# The split in the third column of the file, which most training pairs do not have
_MARKS: dict[str, int] = {"": SPLITS.index("train"), **{name: index for index, name in enumerate(SPLITS)}}
_TEXT_KINDS = {"word", "subword"}  # tokens of text; characters and symbols may be phones, say


class OwnPairs(PairTask):
    """Pairs from a file, split by source: no source is in two splits.

    Subwords are learned from the training split. Of other tokens, with ``unknown="unk"`` the vocabularies are those
    that occur at least ``min_count`` times in the training split, and the rest become UNK; with "refuse" they are all
    tokens of the file, and input with others is refused. A preset with a ``vocabulary`` has those of the run that it
    began from instead, which are beside the pairs.

    A run with subwords whose preset names the ``origin`` of its pairs decodes without them. What needs pairs then
    raises ``UnavailableError``, until ``with_pairs`` names the file.

    Args:
        config: the preset's ``task`` section, which names the file by its SHA-256.
        pairs: the file.
        saved: the tokenizers of a run, if it has subwords; None: those beside ``pairs``.

    Raises:
        ConfigError: the file is missing or holds other pairs, or a split is empty; or so is the file of vocabularies.
        SubwordError: the subwords cannot be learned, or the run's tokenizers are damaged or not those of the preset.
    """

    length_unit = "tokens in the source"
    rate_names = ("wrong answers", "wrong tokens")

    def __init__(self, config: OwnPairsConfig, pairs: Path | None, saved: Path | None = None) -> None:
        if saved is None and pairs is not None:
            saved = pairs.with_name(SUBWORDS if config.has_subwords or not config.vocabulary else VOCABULARY)
        contents = _read(pairs, _file_version(pairs), config, saved, _file_version(saved))
        super().__init__(
            src_vocab=contents.src_vocab,
            tgt_vocab=contents.tgt_vocab,
            tokenizers=contents.tokenizers,
            lengths=contents.lengths,
            examples=tuple(config.examples.splitlines()) or contents.examples,
        )
        if {config.source_tokens, config.answer_tokens} <= _TEXT_KINDS:
            self.bleu_tokenizer = "13a"
        self.pairs_file, self.subwords = pairs, contents.subwords
        self.has_pairs, self._table = contents.table is not None, contents.table
        self._config, self._saved, self.source_case = config, saved, config.source_case

    @property
    def table(self) -> PairTable:
        """The pairs, in the order of the file.

        Raises:
            UnavailableError: the run is there without its pairs.
        """
        if self._table is None:
            raise UnavailableError(
                "This model is published without its pairs, which measuring it needs. They are from "
                f"{self._config.origin}. On the command line, evaluate, report, compare, analyze and gradients take "
                f"their file: --pairs FILE, with the SHA-256 {self._config.data}"
            )
        return self._table

    def with_pairs(self, pairs: Path) -> "OwnPairs":
        """Return the task with the pairs of a file, and the same tokenizers.

        Raises:
            ConfigError: the file is missing or holds other pairs.
        """
        return OwnPairs(self._config, verified_pairs(self._config, pairs), self._saved)

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the alignment that the pairs give, or that of equal tokens if the preset says so."""
        return self._equal_tokens(symbols, self.answer(symbols)) or super().gold_alignment(symbols)

    def produced_alignment(self, symbols: Sequence[str], produced: Sequence[str]) -> list[list[int]]:
        """Return the alignment of the produced answer; see ``PairTask.produced_alignment``."""
        return self._equal_tokens(symbols, produced) or super().produced_alignment(symbols, produced)

    def _equal_tokens(self, symbols: Sequence[str], answer: Sequence[str]) -> list[list[int]]:
        """Align equal tokens; [] if the preset does not, or the pairs have alignments."""
        if self._config.alignment == "none" or (self._table is not None and self._table.links):
            return []
        return [[at for at, symbol in enumerate(symbols) if symbol == token] for token in answer]

    def tokenize(self, text: str) -> list[str]:
        """Split typed text into tokens, in the case of the data's sources if they have one; see ``Task.tokenize``."""
        return super().tokenize(in_case(text, self.source_case))


@dataclass(frozen=True)
class _Contents:
    """What a task keeps of a file; ``lengths`` are those of the shortest and the longest source.

    Without the pairs, ``table`` is None.
    """

    src_vocab: Vocab
    tgt_vocab: Vocab
    table: PairTable | None
    lengths: tuple[int, int]
    examples: tuple[str, ...]
    tokenizers: tuple[Tokenizer, Tokenizer]
    subwords: SubwordTokenizers | None


class _TokenNumbers(dict[str, int]):
    """Numbers tokens in the order in which they are first looked up."""

    def __missing__(self, token: str) -> int:
        self[token] = number = len(self)
        return number


def _file_version(path: Path | None) -> tuple[int, int] | None:
    """Return size in bytes and modification time in nanoseconds, so that a changed file is read again."""
    try:
        return None if path is None else ((stat := path.stat()).st_size, stat.st_mtime_ns)
    except OSError:
        return None


@lru_cache(4)
def _read(
    pairs: Path | None,
    version: tuple[int, int] | None,
    config: OwnPairsConfig,
    saved: Path | None,
    saved_version: tuple[int, int] | None,
) -> _Contents:
    """Verify and read a file, and encode its pairs. Another version of a file is read again."""
    if config.has_subwords and config.vocabulary and not saved_version:
        raise missing_vocabulary(config.vocabulary)
    if version is None and config.data_origin and saved is not None and saved_version:
        return _without_pairs(saved, config)
    path = verified_pairs(config, pairs)
    if config.has_subwords:
        return _read_subwords(path, config, saved if saved_version else None)
    return _read_tokens(path, config, saved)


def _read_tokens(path: Path, config: OwnPairsConfig, saved: Path | None) -> _Contents:
    """Read pairs of characters, words or symbols: numbered while reading, tokens get their ids when all are known."""
    src_numbers, tgt_numbers = _TokenNumbers(), _TokenNumbers()
    keys, marks, set_of, sets = array("q"), array("b"), array("b"), _TokenNumbers()
    links: list[Sequence[int]] = []

    def rows() -> Iterator[tuple[list[int], list[int]]]:
        for source, answer, mark, name, alignment in _lines(path):
            src, tgt = tokenize(source, source_kind), tokenize(answer, answer_kind)
            if len(src) > config.longest_source or len(tgt) > config.longest_answer:
                continue
            keys.append(source_key(detokenize(src, source_kind)))
            marks.append(mark)
            set_of.append(sets[name] if name else -1)
            links.append(links_of(alignment, (source, answer), (src, tgt), (source_kind, answer_kind)))
            yield [src_numbers[token] for token in src], [tgt_numbers[token] for token in tgt]

    source_kind, answer_kind = plain_kind(config.source_tokens), plain_kind(config.answer_tokens)
    sources, answers = RaggedRows.from_pairs(rows())
    all_keys = as_tensor(keys)
    split = _split(all_keys, as_tensor(marks), config)
    _check_splits(split, config)
    is_train = split == SPLITS.index("train")
    if config.vocabulary:
        vocabs = read_vocabularies(saved, expected=config.vocabulary)
    else:
        vocabs = _vocab_of(sources, src_numbers, is_train, config), _vocab_of(answers, tgt_numbers, is_train, config)
    for rows_of_side, numbers, vocab in zip((sources, answers), (src_numbers, tgt_numbers), vocabs, strict=True):
        _number_to_id(rows_of_side, numbers, vocab)
    tokenizers = PlainTokenizer(source_kind), PlainTokenizer(answer_kind)
    named = TestSets(tuple(sets), as_tensor(set_of)) if sets else None
    aligned = RaggedRows.from_rows(links) if any(links) else None
    return _contents(vocabs, PairTable(sources, answers, all_keys, split, named, aligned), tokenizers)


def _read_subwords(path: Path, config: OwnPairsConfig, saved: Path | None) -> _Contents:
    """Read pairs of subwords, which are learned from the training pairs unless a run has them."""
    lines = list(_lines(path))
    keys = torch.tensor([source_key(source) for source, *_ in lines])
    split = _split(keys, torch.tensor([mark for _, _, mark, _, _ in lines], dtype=torch.int8), config)
    pairs, sets = [(source, answer) for source, answer, *_ in lines], _TokenNumbers()
    set_of = torch.tensor([sets[name] if name else -1 for _, _, _, name, _ in lines], dtype=torch.int8)
    is_train = (split == SPLITS.index("train")).tolist()
    subwords = _tokenizers(saved, config, lambda: list(compress(pairs, is_train)))
    table = encode_pairs(
        pairs,
        split,
        subwords,
        config,
        sets=TestSets(tuple(sets), set_of) if sets else None,
        alignments=[alignment for *_, alignment in lines],
    )
    _check_splits(table.split, config)
    return _contents(vocabularies_of(subwords), table, subwords.sides, subwords)


def _tokenizers(
    saved: Path | None, config: OwnPairsConfig, training_pairs: Callable[[], list[TextPair]]
) -> SubwordTokenizers:
    """Return the tokenizers of a run, those that the preset names by their hash, or learn them."""
    if saved is None or not config.vocabulary:
        return tokenizers_of(saved, config, training_pairs)
    tokenizers = read_file(saved)
    check_hash(tokenizers, config.vocabulary, saved.name)
    return tokenizers


def _without_pairs(saved: Path, config: OwnPairsConfig) -> _Contents:
    """Read the tokenizers of a run that is there without its pairs."""
    subwords = _tokenizers(saved, config, list)
    lengths = 1, config.longest_source
    return _Contents(*vocabularies_of(subwords), None, lengths, (_EXAMPLE,), subwords.sides, subwords)


def _lines(path: Path) -> Iterator[tuple[str, str, int, str, str]]:
    """Yield source, answer, mark, test set and alignment of each pair; the mark is an index into ``SPLITS``."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            source, answer, *further = line.rstrip("\n").split("\t")
            mark, alignment = (*further, "", "")[:2]
            split, _, name = mark.partition(":")
            yield source, answer, _MARKS[split], name, alignment


def _contents(
    vocabs: tuple[Vocab, Vocab],
    table: PairTable,
    tokenizers: tuple[Tokenizer, Tokenizer],
    subwords: SubwordTokenizers | None = None,
) -> _Contents:
    test_sources = [vocabs[0].decode(table.src.row(row)) for row in table.rows("test")[:_EXAMPLES].tolist()]
    examples = tuple(map(tokenizers[0].detokenize, test_sources))
    lengths = table.src.lengths
    return _Contents(*vocabs, table, (int(lengths.min()), int(lengths.max())), examples, tokenizers, subwords)


def _split(keys: torch.Tensor, marks: torch.Tensor, config: OwnPairsConfig) -> torch.Tensor:
    """Return the split of each pair, (N,) int8.

    Pairs that are marked as test pairs are the whole test split, and those marked as validation pairs the whole
    validation split; the rest is split by source.
    """
    shares = {"test": config.test_percent / 100, "validation": config.validation_percent / 100}
    given = {name: 0.0 if (marks == _MARKS[name]).any() else share for name, share in shares.items()}
    split = marks.clone()
    split[marks == 0] = split_by_source(keys[marks == 0], **given, seed=config.split_seed)
    return split


def _check_splits(split: torch.Tensor, config: OwnPairsConfig) -> None:
    for index, name in enumerate(SPLITS):
        if not (split == index).any():
            message = (
                f"no pair is left for {name}: sources above {config.longest_source} tokens (task.longest_source) "
                f"and answers above {config.longest_answer} (task.longest_answer) do not count"
            )
            raise ConfigError([("task.longest_source", message)])


def _vocab_of(rows: RaggedRows, numbers: _TokenNumbers, is_train: torch.Tensor, config: OwnPairsConfig) -> Vocab:
    """Build the vocabulary of a side, sorted by code point."""
    tokens = list(numbers)
    is_known = torch.ones(len(tokens), dtype=torch.bool)
    if config.unknown == "unk":
        train_numbers = rows.ids[is_train.repeat_interleave(rows.lengths)]
        is_known = torch.bincount(train_numbers, minlength=len(tokens)) >= config.min_count
    symbols = sorted(token for token, known in zip(tokens, is_known.tolist(), strict=True) if known)
    return Vocab(symbols, has_unk=config.unknown == "unk")


def _number_to_id(rows: RaggedRows, numbers: _TokenNumbers, vocab: Vocab) -> None:
    """Replace the token numbers of ``rows`` by ids; InputError if the vocabulary lacks a token, and has no UNK."""
    rows.ids = torch.tensor(vocab.encode(list(numbers)), dtype=torch.int32)[rows.ids.long()]
