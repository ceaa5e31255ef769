"""Choose the tokens of the user's pairs: characters, words or symbols while these are known, subwords otherwise."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch

from core.config.counting import percent
from core.config.tasks import OwnPairsConfig
from core.tasks.ingest.pairs import MAX_TOKENS, RESERVED, IngestResult, Kinds, SubwordSizes
from core.tasks.own_pairs import OwnPairs
from core.tasks.pairs import SPLITS, PairTable
from core.text.subwords import CHARACTER_COVERAGE, NUM_BYTES
from core.text.tokenizers import FEATURES, PlainKind, TokenKind, tokenize
from core.text.vocab import UNK_ID

MAX_UNKNOWN = 0.01
"""Share of the held-out words that may be unknown; with more, the tokens are subwords."""
MIN_INFLECTED = 0.9
"""Share of the sources that must be words with features."""
_SIDES = "sources", "targets"
_LETTERS_PER_WORD = 6  # with the space after it; also counts "words" where nothing stands between them
_MERGES_PER_ROOT_WORD = 2_000 / math.sqrt(100_000)
_MIN_SIZE, _MAX_SIZE = 400, 16_000  # of a vocabulary, as ``SubwordsConfig`` has them
_MIN_OVERLAP = 0.5


def choose_tokens(path: Path, result: IngestResult) -> tuple[Kinds, str]:
    """Choose tokens that leave few held-out tokens unknown.

    Words with morphological features get characters and features. A side without spaces gets characters. One with
    spaces gets symbols, which are split at spaces, or words, with punctuation apart, whichever restores the text best
    with at most ``MAX_UNKNOWN`` unknown held-out tokens. If both leave more unknown, source and target get subwords.

    Args:
        path: the pairs file.
        result: of writing it, with words as tokens.

    Returns:
        The tokens of source and target, and the reason in a sentence for the user.
    """
    if _are_inflected(path):
        return (
            "inflection",
            "character",
        ), "Characters and features: the sources are words with morphological features."
    have_spaces, have_punctuation, have_reserved = _spaces_punctuation_and_reserved(path)
    of_words = unknown_shares(OwnPairs(_config(result, "word"), path).table)
    of_symbols = 1.0, 1.0
    if have_punctuation != [False, False] and not have_reserved:
        of_symbols = unknown_shares(OwnPairs(_config(result, "symbol"), path).table)
    kinds: list[TokenKind] = []
    unknown: list[float] = []
    for side, spaces in enumerate(have_spaces):
        if not spaces:
            kind: PlainKind = "character"
        else:
            kind = "symbol" if have_punctuation[side] and of_symbols[side] <= MAX_UNKNOWN else "word"
        kinds.append(kind)
        unknown.append({"character": 0.0, "word": of_words[side], "symbol": of_symbols[side]}[kind])
    if max(unknown) > MAX_UNKNOWN:
        worst = unknown.index(max(unknown))
        share = percent(unknown[worst])
        return ("subword", "subword"), (
            f"Subwords: {share} of the words in held-out {_SIDES[worst]} would be unknown with words as tokens."
        )
    if kinds[0] == kinds[1]:
        return (kinds[0], kinds[1]), f"{_reason(kinds[0], max(unknown))}."
    parts = [_reason(kind, share) for kind, share in zip(kinds, unknown, strict=True)]
    return (kinds[0], kinds[1]), f"Sources: {_lower(parts[0])}. Targets: {_lower(parts[1])}."


def subword_sizes(path: Path) -> SubwordSizes:
    """Choose the size of the subword vocabulary by the amount of text, and whether both sides share it.

    The number of merges is 2,000 for 100,000 words of a side and grows with the square root of the words: Sennrich &
    Zhang (2019, "Revisiting Low-Resource Neural Machine Translation") find 2,000 subwords best for 100,000 words, and
    about 14,000 for 3.2 million. All characters and the 256 bytes are in the vocabulary besides. The sides share it if
    at least half of their characters, counted as they occur, are the same.
    """
    characters: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for texts in _texts(path):
        for counter, text in zip(characters, texts, strict=True):
            counter.update(text)
    words = max(counter.total() for counter in characters) / _LETTERS_PER_WORD
    merges = _MERGES_PER_ROOT_WORD * math.sqrt(words)
    joint = _overlap(*characters) >= _MIN_OVERLAP
    sides = [characters[0] + characters[1]] if joint else characters
    size = NUM_BYTES + max(map(_count_common, sides)) + merges
    return SubwordSizes(min(_MAX_SIZE, max(_MIN_SIZE, 50 * math.ceil(size / 50))), joint)


def unknown_shares(table: PairTable) -> tuple[float, float]:
    """Return the share of UNK among the tokens of held-out sources and targets, 0-1."""
    is_held_out = table.split != SPLITS.index("train")
    source, target = (rows.ids[is_held_out.repeat_interleave(rows.lengths)] for rows in (table.src, table.tgt))
    return _share(source == UNK_ID), _share(target == UNK_ID)


def _share(is_unknown: torch.Tensor) -> float:
    return float(is_unknown.double().mean()) if is_unknown.numel() else 0.0


def _reason(kind: TokenKind, unknown: float) -> str:
    if kind == "character":
        return "Characters: most texts are a single word, or have no spaces"
    name = "Words" if kind == "word" else "Symbols, split at spaces"
    known = (
        "all of those in held-out pairs are known"
        if unknown == 0
        else f"{percent(unknown)} of those in held-out pairs are unknown"
    )
    return f"{name}: {known}"


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _config(result: IngestResult, kind: Literal["word", "symbol"]) -> OwnPairsConfig:
    return OwnPairsConfig(
        data=result.sha256,
        num_sources=result.sources,
        source_tokens=kind,
        answer_tokens=kind,
        source_case=result.source_case,
        longest_source=MAX_TOKENS,
        longest_answer=MAX_TOKENS,
    )


def _spaces_punctuation_and_reserved(path: Path) -> tuple[list[bool], list[bool], bool]:
    """Return for each side whether most texts have spaces, and whether words are other tokens than symbols.

    And whether any symbol is a special token, such as ``<UNK>``: then symbols cannot be the tokens.
    """
    spaces, has_punctuation, has_reserved, pairs = [0, 0], [False, False], False, 0
    for texts in _texts(path):
        pairs += 1
        for side, text in enumerate(texts):
            symbols = text.split()
            spaces[side] += len(symbols) > 1
            has_punctuation[side] = has_punctuation[side] or tokenize(text, "word") != symbols
            has_reserved = has_reserved or not RESERVED.isdisjoint(symbols)
    return [2 * count > pairs for count in spaces], has_punctuation, has_reserved


def _are_inflected(path: Path) -> bool:
    """Return whether nearly all sources are words with morphological features after the last space."""
    inflected = several = pairs = 0
    for source, _ in _texts(path):
        _, space, features = source.rpartition(" ")
        pairs += 1
        inflected += bool(space and FEATURES.fullmatch(features))
        several += ";" in features
    return inflected >= MIN_INFLECTED * pairs and several > 0


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            source, target, *_ = line.rstrip("\n").split("\t")
            yield source, target


def _overlap(one: Counter[str], other: Counter[str]) -> float:
    """Return how much of two texts' characters is the same, 0-1: the overlap of their relative frequencies."""
    frequencies: list[Counter[str]] = []
    for counter in (one, other):
        folded: Counter[str] = Counter()
        for character, count in counter.items():
            if not character.isspace():
                folded[character.casefold()] += count
        frequencies.append(folded)
    totals = [counter.total() for counter in frequencies]
    return sum(
        min(count / totals[0], frequencies[1][character] / totals[1]) for character, count in frequencies[0].items()
    )


def _count_common(characters: Counter[str]) -> int:
    """Count the characters that the vocabulary must hold: the most frequent ones, up to the coverage."""
    needed, seen, number = CHARACTER_COVERAGE * characters.total(), 0, 0
    for _, count in characters.most_common():
        if seen >= needed:
            break
        seen, number = seen + count, number + 1
    return number
