"""The user's own pairs, read from the file that ``core.tasks.ingest`` writes."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from core.config import ConfigError, verified_pairs
from core.config.tasks import OwnPairsConfig
from core.tasks.pairs import SPLITS, PairTable, PairTask, RaggedRows, as_tensor, source_key, split_by_source
from core.text.tokenizers import detokenize, tokenize
from core.text.vocab import UNK_ID, Vocab

_EXAMPLES = 4


class OwnPairs(PairTask):
    """Pairs from a file, split by source: no source is in two splits.

    With ``unknown="unk"`` the vocabularies are the tokens that occur at least ``min_count`` times in the training
    split, and all others become UNK; with "refuse" they are all tokens of the file, and input with others is refused.

    Args:
        config: the preset's ``task`` section, which names the file by its SHA-256.
        pairs: the file.

    Raises:
        ConfigError: the file is missing or holds other pairs, or a split is empty.
    """

    length_unit = "tokens in the source"
    rate_names = ("wrong answers", "wrong tokens")

    def __init__(self, config: OwnPairsConfig, pairs: Path | None) -> None:
        contents = _read(pairs, _file_version(pairs), config)
        super().__init__(
            src_vocab=contents.src_vocab,
            tgt_vocab=contents.tgt_vocab,
            kinds=(config.source_tokens, config.answer_tokens),
            lengths=contents.lengths,
            examples=contents.examples,
        )
        self.pairs_file = pairs
        self._table = contents.table

    @property
    def table(self) -> PairTable:
        """The pairs, in the order of the file."""
        return self._table


@dataclass(frozen=True)
class _Contents:
    """What a task keeps of a file; ``lengths`` are those of the shortest and the longest source."""

    src_vocab: Vocab
    tgt_vocab: Vocab
    table: PairTable
    lengths: tuple[int, int]
    examples: tuple[str, ...]


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
def _read(pairs: Path | None, version: tuple[int, int] | None, config: OwnPairsConfig) -> _Contents:
    """Verify and read a file. Tokens are numbered while reading, and get their ids when all are known."""
    path = verified_pairs(config, pairs)
    src_numbers, tgt_numbers = _TokenNumbers(), _TokenNumbers()
    keys, is_test = array("q"), array("b")

    def rows() -> Iterator[tuple[list[int], list[int]]]:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                source, answer, *test_mark = line.rstrip("\n").split("\t")
                src, tgt = tokenize(source, config.source_tokens), tokenize(answer, config.answer_tokens)
                if len(src) > config.longest_source or len(tgt) > config.longest_answer:
                    continue
                keys.append(source_key(detokenize(src, config.source_tokens)))
                is_test.append(bool(test_mark))
                yield [src_numbers[token] for token in src], [tgt_numbers[token] for token in tgt]

    sources, answers = RaggedRows.from_pairs(rows())
    all_keys = as_tensor(keys)
    split = _split(all_keys, as_tensor(is_test).bool(), config)
    is_train = split == SPLITS.index("train")
    src_vocab = _number_to_id(sources, src_numbers, is_train, config)
    tgt_vocab = _number_to_id(answers, tgt_numbers, is_train, config)
    table = PairTable(sources, answers, all_keys, split)
    test_sources = [src_vocab.decode(sources.row(row)) for row in table.rows("test")[:_EXAMPLES].tolist()]
    examples = tuple(detokenize(symbols, config.source_tokens) for symbols in test_sources)
    lengths = sources.lengths
    return _Contents(src_vocab, tgt_vocab, table, (int(lengths.min()), int(lengths.max())), examples)


def _split(keys: torch.Tensor, is_test: torch.Tensor, config: OwnPairsConfig) -> torch.Tensor:
    """Return the split of each pair, (N,) int8; pairs marked as test pairs are the whole test split."""
    validation, seed = config.validation_percent / 100, config.split_seed
    if not is_test.any():
        split = split_by_source(keys, test=config.test_percent / 100, validation=validation, seed=seed)
    else:
        split = torch.full((len(keys),), SPLITS.index("test"), dtype=torch.int8)
        split[~is_test] = split_by_source(keys[~is_test], test=0, validation=validation, seed=seed)
    for index, name in enumerate(SPLITS):
        if not (split == index).any():
            limits = f"task.longest_source={config.longest_source}, task.longest_answer={config.longest_answer}"
            raise ConfigError([("task.longest_source", f"no pair is left for {name} with {limits}")])
    return split


def _number_to_id(rows: RaggedRows, numbers: _TokenNumbers, is_train: torch.Tensor, config: OwnPairsConfig) -> Vocab:
    """Build the vocabulary of a side, sorted by code point, and replace the token numbers of ``rows`` by its ids."""
    tokens = list(numbers)
    is_known = torch.ones(len(tokens), dtype=torch.bool)
    if config.unknown == "unk":
        train_numbers = rows.ids[is_train.repeat_interleave(rows.lengths)]
        is_known = torch.bincount(train_numbers, minlength=len(tokens)) >= config.min_count
    symbols = sorted(token for token, known in zip(tokens, is_known.tolist(), strict=True) if known)
    vocab = Vocab(symbols, has_unk=config.unknown == "unk")
    ids = {symbol: vocab.first_symbol_id + index for index, symbol in enumerate(symbols)}
    id_of_number = torch.tensor([ids.get(token, UNK_ID) for token in tokens], dtype=torch.int32)
    rows.ids = id_of_number[rows.ids.long()]
    return vocab
