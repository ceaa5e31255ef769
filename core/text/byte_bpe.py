"""Byte-level BPE as in GPT-2 and BART (Radford et al. 2019, section 2.2), for imported models.

Text is split into words, each with the space before it, and the UTF-8 bytes of a word are merged in the learned order.
A piece is written as its text with ``▁`` for the space, as in SentencePiece, or as its bytes, such as ``<0xE2><0x96>``,
if it is not valid text on its own.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

_SPACE = "\u2581"
_BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")
_CONTRACTION = re.compile("'(?:s|t|re|ve|m|ll|d)")
_GROUP = re.compile(" ?L+| ?N+| ?O+|[ S]+(?![LNO])|[ S]+")  # of letters, numbers, others and white space
_WORDS_KEPT = 20_000


def piece_of(content: bytes) -> str:
    """Return the name of a piece."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or _SPACE in text or "\0" in text or is_bytes(text):
        return "".join(f"<0x{byte:02X}>" for byte in content)
    return text.replace(" ", _SPACE)


def is_bytes(piece: str) -> bool:
    """Whether a piece is written as bytes, such as ``<0xF0>``."""
    return bool(_BYTES.fullmatch(piece))


def content_of(piece: str) -> bytes:
    """Return the bytes of a piece, the inverse of ``piece_of``."""
    if is_bytes(piece):
        return bytes.fromhex(piece.replace("<0x", "").replace(">", ""))
    return piece.replace(_SPACE, " ").encode()


def alphabet() -> dict[str, int]:
    """Return the characters that stand for the 256 bytes in files of GPT-2 and BART, with their bytes.

    Printable characters of Latin-1 stand for themselves; the other bytes are U+0100 and following, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


class ByteBPE:
    """Split text into pieces and join them again; every text is restored.

    Args:
        pieces: the 256 bytes, then the result of each merge, in the order of the merges.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._ranks = {content_of(piece): rank for rank, piece in enumerate(pieces)}
        self._merged = lru_cache(_WORDS_KEPT)(self._merge)

    def encode(self, text: str) -> list[str]:
        """Split a text into pieces."""
        return [piece for word in split_words(text) for piece in self._merged(word)]

    def decode(self, pieces: Sequence[str]) -> str:
        """Join pieces to text; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(content_of, pieces)).decode(errors="replace")

    def _merge(self, word: str) -> tuple[str, ...]:
        """Merge the bytes of a word, at each step the neighbors with the earliest learned merge."""
        parts = [bytes([byte]) for byte in word.encode()]
        never = len(self._ranks)
        while len(parts) > 1:
            ranks = [self._ranks.get(left + right, never) for left, right in pairwise(parts)]
            first = min(ranks)
            if first == never:
                break
            at = ranks.index(first)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return tuple(map(piece_of, parts))


def split_words(text: str) -> Iterator[str]:
    r"""Split a text into contractions, letters, numbers, other characters, and white space.

    The regular expression of GPT-2: ``'s|'t|… | ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+``.
    """
    kinds = "".join(map(_kind, text))
    position = 0
    while position < len(text):
        match = _CONTRACTION.match(text, position) or _GROUP.match(kinds, position)
        assert match is not None  # noqa: S101 - every kind is in a group
        yield text[position : match.end()]
        position = match.end()


def _kind(character: str) -> str:
    if character == " ":
        return " "
    if character.isspace():
        return "S"
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "O"
