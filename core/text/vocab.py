"""The vocabulary: tokens to ids and back."""

from collections.abc import Sequence

from core.storage.errors import InputError
from core.text.validation import visible

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
SPECIAL_TOKENS = PAD, BOS, EOS, UNK = "<PAD>", "<BOS>", "<EOS>", "<UNK>"


class Vocab:
    """The tokens of one language: special tokens first, then symbols.

    PAD fills up batches, BOS starts every sequence, EOS ends it. UNK stands for unknown symbols; a task without unknown
    symbols has no UNK, so the ten digits give a vocabulary of size 13.

    Args:
        symbols: distinct strings, none of them a special token.
        has_unk: whether unknown symbols are encoded as UNK instead of refused.

    Raises:
        ValueError: a symbol occurs twice or is a special token.
    """

    def __init__(self, symbols: Sequence[str], *, has_unk: bool = False) -> None:
        self.symbols = tuple(symbols)
        self.has_unk = has_unk
        self.tokens = (PAD, BOS, EOS) + ((UNK,) if has_unk else ()) + self.symbols
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        if len(self._ids) != len(self.tokens):
            twice = next(token for at, token in enumerate(self.tokens) if token in self.tokens[:at])
            raise ValueError(f"symbol {twice!r}: symbols must differ from each other and from the special tokens")

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def first_symbol_id(self) -> int:
        """Id of the first symbol; all smaller ids are special tokens."""
        return len(self.tokens) - len(self.symbols)

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of symbols. Special tokens count as unknown.

        Raises:
            InputError: a symbol is unknown and the vocabulary has no UNK.
        """
        first_symbol_id, ids = self.first_symbol_id, []
        for position, token in enumerate(tokens, start=1):
            index = self._ids.get(token, 0)
            is_known = index >= first_symbol_id
            if not is_known and not self.has_unk:
                raise InputError(f"{_shorten(token)} at position {position} is not one of {_list(self.symbols)}")
            ids.append(index if is_known else UNK_ID)
        return ids

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of ids, special tokens included."""
        return [self.tokens[index] for index in ids]


def until_eos(ids: Sequence[int]) -> list[int]:
    """Return the ids before the first EOS; all ids if there is none."""
    ids = list(ids)
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids


def _shorten(token: str) -> str:
    if len(token) == 1 and visible(token) != token:
        return visible(token)
    return repr(token if len(token) <= 20 else token[:17] + "...")


def _list(symbols: Sequence[str]) -> str:
    listed = " ".join(symbols[:12])
    return listed if len(symbols) <= 12 else f"{listed} … ({len(symbols)} in all)"
