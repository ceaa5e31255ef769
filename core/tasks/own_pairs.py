"""Pairs that somebody brought, as ``core.tasks.ingest`` keeps them."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch

from core.config import ConfigError, verified_pairs
from core.config.tasks import OwnPairsConfig
from core.tasks.pair_table import SPLITS, PairTable, Ragged, key_of, split_by_source, tensor_of
from core.tasks.pairs import Pairs
from core.text.tokenizers import TokenKind, text_of, tokens_of
from core.text.vocab import UNK_ID, Vocab

_EXAMPLES = 4


class OwnPairs(Pairs):
    """Pairs out of a file, divided by source: no source stands in two parts.

    With ``unknown="unk"`` the vocabularies are the tokens that the pairs to learn from have often enough, and all
    others are UNK; with "refuse" they are all tokens there are, and what is typed with others is refused.

    Args:
        config: the preset's ``task`` section, which names the file by its SHA-256.
        pairs: the file.

    Raises:
        ConfigError: the file is missing or holds other pairs, or a split is empty.
    """

    length_unit = "tokens in the source"
    rate_names = ("wrong answers", "wrong tokens")

    def __init__(self, config: OwnPairsConfig, pairs: Path | None) -> None:
        made = _read(pairs, _version_of(pairs), config)
        super().__init__(
            src_vocab=made.src_vocab,
            tgt_vocab=made.tgt_vocab,
            kinds=(config.source_tokens, config.answer_tokens),
            lengths=made.lengths,
            examples=made.examples,
        )
        self.pairs_file = pairs
        self._table = made.table

    @property
    def table(self) -> PairTable:
        """The pairs, in the order of the file."""
        return self._table


@dataclass(frozen=True)
class _Made:
    src_vocab: Vocab
    tgt_vocab: Vocab
    table: PairTable
    lengths: tuple[int, int]
    examples: tuple[str, ...]


class _Numbering(dict):
    """Numbers tokens in the order in which they are first met."""

    def __missing__(self, token: str) -> int:
        self[token] = number = len(self)
        return number


@dataclass
class _Side:
    kind: TokenKind
    numbering: _Numbering = field(default_factory=_Numbering)

    def numbers(self, tokens: list[str]) -> list[int]:
        return [self.numbering[token] for token in tokens]


def _version_of(path: Path | None) -> tuple[int, int] | None:
    """Return a file's size in bytes and the time of its last change in nanoseconds; None if there is no file."""
    try:
        return None if path is None else ((stat := path.stat()).st_size, stat.st_mtime_ns)
    except OSError:
        return None


@lru_cache(4)
def _read(pairs: Path | None, version: tuple[int, int] | None, config: OwnPairsConfig) -> _Made:
    """Check and read a version of a file once: tokens are numbered as they come, and get their ids at the end."""
    path = verified_pairs(config, pairs)
    sides = _Side(config.source_tokens), _Side(config.answer_tokens)
    keys, marked = array("q"), array("b")

    def rows() -> Iterator[tuple[list[int], list[int]]]:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                source, answer, *mark = line.rstrip("\n").split("\t")
                tokens = tokens_of(source, config.source_tokens), tokens_of(answer, config.answer_tokens)
                if len(tokens[0]) > config.longest_source or len(tokens[1]) > config.longest_answer:
                    continue
                keys.append(key_of(text_of(tokens[0], config.source_tokens)))
                marked.append(bool(mark))
                yield tuple(side.numbers(of_side) for side, of_side in zip(sides, tokens, strict=True))

    sources, answers = Ragged.of_both(rows())
    all_keys = tensor_of(keys)
    split = _split(all_keys, tensor_of(marked).bool(), config)
    vocabs = []
    for side, ragged in zip(sides, (sources, answers), strict=True):
        vocab, ids = _vocabulary(side, ragged, split == SPLITS.index("train"), config)
        ragged.ids = ids[ragged.ids.long()]
        vocabs.append(vocab)
    table = PairTable(sources, answers, all_keys, split)
    lengths = sources.lengths
    examples = [vocabs[0].decode(sources.row(row)) for row in table.rows("test")[:_EXAMPLES].tolist()]
    texts = tuple(text_of(each, config.source_tokens) for each in examples)
    return _Made(*vocabs, table, (int(lengths.min()), int(lengths.max())), texts)


def _split(keys: torch.Tensor, marked: torch.Tensor, config: OwnPairsConfig) -> torch.Tensor:
    """Return the part of each pair, (N,) int8; what is marked is for the test, and then nothing else is."""
    shares = {"validation": config.validation_percent / 100, "seed": config.split_seed}
    if not marked.any():
        split = split_by_source(keys, test=config.test_percent / 100, **shares)
    else:
        split = torch.full((len(keys),), SPLITS.index("test"), dtype=torch.int8)
        split[~marked] = split_by_source(keys[~marked], test=0, **shares)
    for part in SPLITS:
        if not (split == SPLITS.index(part)).any():
            sizes = f"task.longest_source={config.longest_source}, task.longest_answer={config.longest_answer}"
            raise ConfigError([("task.longest_source", f"no pair is left for {part} with {sizes}")])
    return split


def _vocabulary(
    side: _Side, ragged: Ragged, learned: torch.Tensor, config: OwnPairsConfig
) -> tuple[Vocab, torch.Tensor]:
    """Return a side's vocabulary, in the order of the characters' numbers, and the id of each number, int32."""
    tokens = list(side.numbering)
    known = torch.ones(len(tokens), dtype=torch.bool)
    if config.unknown == "unk":
        of_learned = ragged.ids[learned.repeat_interleave(ragged.lengths)]
        known = torch.bincount(of_learned, minlength=len(tokens)) >= config.min_count
    symbols = sorted(token for token, is_known in zip(tokens, known.tolist(), strict=True) if is_known)
    vocab = Vocab(symbols, has_unk=config.unknown == "unk")
    place = {symbol: vocab.first_symbol_id + number for number, symbol in enumerate(symbols)}
    return vocab, torch.tensor([place.get(token, UNK_ID) for token in tokens], dtype=torch.int32)
