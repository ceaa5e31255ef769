"""Subword pieces as people read them: their names, the words they make, and the text."""

from collections.abc import Sequence
from enum import Enum
from itertools import groupby, pairwise

from core.text.byte_bpe import content_of, is_bytes
from core.text.subwords import WORD_START
from core.text.vocab import SPECIAL_TOKENS

JOINED = "\u00b7"
"""Prefix of the name of a piece that no space separates from the previous piece."""


class _Kind(Enum):
    """The role of a piece in a word: letters, digits and bytes are parts of words, punctuation is a separate word."""

    PART, SPACE, ALONE = range(3)


def piece_name(token: str) -> str:
    """Return a piece as people read it: ``Haus`` for ``▁Haus``, ``·tür`` for ``tür``, ``␣`` for a space.

    Special tokens and bytes are unchanged.
    """
    if is_bytes(token) or token in SPECIAL_TOKENS:
        return token
    if not token.startswith(WORD_START):
        return JOINED + token
    return token.removeprefix(WORD_START).replace(WORD_START, "␣") or "␣"


def join_pieces(pieces: Sequence[str]) -> str:
    """Return the text of pieces, as ``SubwordTokenizer.detokenize`` does, without the vocabulary."""
    return b"".join(map(content_of, pieces)).decode(errors="replace").removeprefix(" ")


def spelled_in_bytes(pieces: Sequence[str]) -> tuple[list[str], int]:
    """Return the characters that only bytes spell, white space aside, each once, and the number of other pieces."""
    characters: dict[str, None] = {}
    num_others = 0
    for spelled, run in groupby(pieces, key=is_bytes):
        if spelled:
            characters |= dict.fromkeys("".join(join_pieces(list(run)).split()))
        else:
            num_others += sum(piece != WORD_START for piece in run)
    return list(characters), num_others


def sentence_of(tokens: Sequence[str]) -> str:
    """Return the text of tokens without the special ones, such as an answer with its EOS."""
    return join_pieces([token for token in tokens if token not in SPECIAL_TOKENS])


def word_groups(tokens: Sequence[str]) -> list[range]:
    """Return the positions of the pieces of each word, in order; every piece is in exactly one word.

    A punctuation piece and a special token are each a word; a new word begins after them.
    """
    starts: list[int] = []
    previous = _Kind.ALONE
    for position, token in enumerate(tokens):
        kind = _kind_of(token)
        continues = (kind is not _Kind.SPACE and previous is _Kind.SPACE) or kind is previous is _Kind.PART
        if not continues or token.startswith(WORD_START) or token in SPECIAL_TOKENS:
            starts.append(position)
        previous = kind
    return [range(*each) for each in pairwise([*starts, len(tokens)])]


def word_names(tokens: Sequence[str]) -> list[str]:
    """Return the text of each word of ``word_groups``; ``␣`` for a space alone."""
    return [join_pieces(tokens[word.start : word.stop]).strip() or "␣" for word in word_groups(tokens)]


def shared_words(source: Sequence[str], produced: Sequence[str]) -> list[list[int]]:
    """Align the words that occur literally in a text and its translation: numbers, identifiers and names.

    A word counts if it occurs once on each side and has a digit, a capital letter after its first character, or a
    capital first letter and at least four characters; such a word is its own translation. Unlike a statistical aligner
    this needs no training, and it ignores all other words.

    Returns:
        For each piece of ``produced`` the positions of the pieces of its word in ``source``; [] for other words.
    """
    places = [_places_by_name(tokens) for tokens in (source, produced)]
    alignment: list[list[int]] = [[] for _ in produced]
    for name, words in places[1].items():
        in_source = places[0].get(name, [])
        if len(words) == len(in_source) == 1 and _is_identifier(name):
            for position in words[0]:
                alignment[position] = list(in_source[0])
    return alignment


def _places_by_name(tokens: Sequence[str]) -> dict[str, list[range]]:
    places: dict[str, list[range]] = {}
    for name, word in zip(word_names(tokens), word_groups(tokens), strict=True):
        places.setdefault(name, []).append(word)
    return places


def _is_identifier(word: str) -> bool:
    if word in SPECIAL_TOKENS:
        return False
    is_name = word[0].isupper() and len(word) >= 4
    return is_name or any(each.isdigit() for each in word) or any(each.isupper() for each in word[1:])


def _kind_of(token: str) -> _Kind:
    if is_bytes(token):
        return _Kind.PART
    text = token.replace(WORD_START, "")
    if not text:
        return _Kind.SPACE
    is_part = token not in SPECIAL_TOKENS and any(each.isalnum() or each == "_" for each in text)
    return _Kind.PART if is_part else _Kind.ALONE
