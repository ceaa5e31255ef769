"""Pairs of texts as subwords, with vocabularies learned from the training pairs, or those of a saved run."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from core.config.tasks import ImportedConfig, OwnPairsConfig, TranslationConfig
from core.storage.text_checksum import has_changed, without_checksum
from core.tasks.pairs import PairTable, RaggedRows, TestSets, link, source_key
from core.text.subwords import SubwordError, SubwordTokenizer, SubwordTokenizers
from core.text.tokenizers import TokenKind
from core.text.units import token_ranges
from core.text.vocab import Vocab

MAX_BYTES = 32 * 1024 * 1024  # of that file, which may come from anyone
TextPair = tuple[str, str]
_SUBWORDS: tuple[TokenKind, TokenKind] = ("subword", "subword")
SubwordsConfig = TranslationConfig | OwnPairsConfig


def tokenizers_of(
    saved: Path | None, config: SubwordsConfig, training_pairs: Callable[[], Sequence[TextPair]]
) -> SubwordTokenizers:
    """Return the tokenizers of a run; if it has none yet, learn them.

    Args:
        saved: the file with the tokenizers of a run; None, or a file that does not exist, learns them.
        training_pairs: returns the pairs to learn from.

    Raises:
        SubwordError: the saved tokenizers are damaged or others than the config describes, or none can be learned.
    """
    if saved is not None and saved.is_file():
        return read_tokenizers(saved, config)
    pairs = training_pairs()

    def learn(*sides: int) -> SubwordTokenizer:
        texts = (pair[side] for pair in pairs for side in sides)
        return SubwordTokenizer.learn(texts, algorithm=config.subword_algorithm, vocabulary_size=config.vocabulary_size)

    if config.joint_vocabulary:
        return SubwordTokenizers(joint=True, source=learn(0, 1), target=None)
    return SubwordTokenizers(joint=False, source=learn(0), target=learn(1))


def read_tokenizers(path: Path, config: SubwordsConfig) -> SubwordTokenizers:
    """Read the tokenizers of a run.

    Raises:
        SubwordError: they are damaged, or others than the config describes.
    """
    tokenizers = read_file(path)
    if tokenizers.joint != config.joint_vocabulary:
        raise SubwordError(f"{path.name} does not have task.joint_vocabulary={config.joint_vocabulary}")
    for side in tokenizers.sides:
        if side.algorithm != config.subword_algorithm or len(side.pieces) > config.vocabulary_size:
            raise SubwordError(
                f"{path.name} does not have task.subword_algorithm={config.subword_algorithm!r} and at most "
                f"task.vocabulary_size={config.vocabulary_size} pieces, as its preset says"
            )
    return tokenizers


def read_file(path: Path) -> SubwordTokenizers:
    """Read ``subwords.json``; SubwordError if it is too large, damaged or was changed."""
    if path.stat().st_size > MAX_BYTES:
        raise SubwordError(f"{path.name} has {path.stat().st_size:,} bytes; the limit is {MAX_BYTES:,}")
    content = path.read_bytes()
    if has_changed(content):
        raise SubwordError(f"{path.name} was changed after it was written: its content does not match its checksum")
    return SubwordTokenizers.from_json(without_checksum(content), path.name)


def vocabularies_of(tokenizers: SubwordTokenizers) -> tuple[Vocab, Vocab]:
    """Return the vocabularies of source and target, the same object if they are joint or an imported model's equal."""
    source, target = (Vocab(side.tokens, has_unk=side.has_unk) for side in tokenizers.sides)
    is_shared = tokenizers.joint or bool(tokenizers.source.vocabulary and source.tokens == target.tokens)
    return (source, source) if is_shared else (source, target)


def encode_pairs(
    pairs: Sequence[TextPair],
    split: torch.Tensor,
    tokenizers: SubwordTokenizers,
    config: SubwordsConfig | ImportedConfig,
    *,
    sets: TestSets | None = None,
    alignments: Sequence[str] = (),
) -> PairTable:
    """Encode pairs of source and answer; pairs that are longer than the config says are dropped.

    Args:
        split: index of each pair into ``SPLITS``, (N,) int8.
        sets: the test sets of the pairs, if some have names.
        alignments: of the pairs, see ``links_of``; none if there are none.
    """
    vocabs, kept, links = vocabularies_of(tokenizers), [], []

    def rows() -> Iterator[tuple[list[int], list[int]]]:
        for row, texts in enumerate(pairs):
            src, tgt = (side.tokenize(text) for side, text in zip(tokenizers.sides, texts, strict=True))
            if len(src) <= config.longest_source and len(tgt) <= config.longest_answer:
                kept.append(row)
                links.append(links_of(alignments[row], texts, (src, tgt), _SUBWORDS) if alignments else ())
                yield vocabs[0].encode(src), vocabs[1].encode(tgt)

    sources, answers = RaggedRows.from_pairs(rows())
    keys = torch.tensor([source_key(pairs[row][0]) for row in kept], dtype=torch.int64)
    chosen = torch.tensor(kept, dtype=torch.int64)
    aligned = RaggedRows.from_rows(links) if any(links) else None
    return PairTable(sources, answers, keys, split[chosen], sets and sets[chosen], aligned)


def links_of(
    alignment: str, texts: TextPair, tokens: tuple[Sequence[str], Sequence[str]], kinds: tuple[TokenKind, TokenKind]
) -> Sequence[int]:
    """Return the links between the tokens of a pair; those of words become links of all their tokens.

    Args:
        alignment: links between the units of both texts, as ``0-0 1-2``; "" for none.
    """
    if not alignment:
        return ()
    ranges = [token_ranges(*each) for each in zip(texts, tokens, kinds, strict=True)]
    pairs = (map(int, each.split("-")) for each in alignment.split(" "))
    return [link(s, t) for source, target in pairs for s in ranges[0][source] for t in ranges[1][target]]
