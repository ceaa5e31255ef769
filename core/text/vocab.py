"""Tokens to ids and back."""

from collections.abc import Sequence

from core.storage.errors import InputError

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
PAD, BOS, EOS, UNK = "<PAD>", "<BOS>", "<EOS>", "<UNK>"


class Vocab:
    """The tokens of one language: the special ones first, then its symbols.

    PAD fills a batch, BOS starts every sequence, EOS ends it. UNK stands for what is not known; a task whose
    symbols are all known has none, so the ten digits make a vocabulary of 13.
    """

    def __init__(self, symbols: Sequence[str], *, has_unk: bool = False) -> None:
        self.symbols = tuple(symbols)
        self.has_unk = has_unk
        self.tokens = (PAD, BOS, EOS) + ((UNK,) if has_unk else ()) + self.symbols
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        if len(self._ids) != len(self.tokens):
            raise ValueError("symbols must differ from each other and from the special tokens")

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def first_symbol_id(self) -> int:
        """Id of the first symbol; every smaller id is a special token."""
        return len(self.tokens) - len(self.symbols)

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of symbols.

        Raises:
            InputError: a token is unknown and the vocabulary has no UNK.
        """
        ids = []
        for place, token in enumerate(tokens, start=1):
            known = self._ids.get(token, 0) >= self.first_symbol_id
            if not known and not self.has_unk:
                raise InputError(f"{_shown(token)} at position {place} is not one of {_listed(self.symbols)}")
            ids.append(self._ids[token] if known else UNK_ID)
        return ids

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of ids, special tokens included."""
        return [self.tokens[index] for index in ids]


def until_eos(ids: Sequence[int]) -> list[int]:
    """Return the ids before the first EOS; all of them where there is none."""
    ids = list(ids)
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids


def _shown(token: str) -> str:
    return repr(token if len(token) <= 20 else token[:17] + "...")


def _listed(symbols: Sequence[str]) -> str:
    shown = " ".join(symbols[:12])
    return shown if len(symbols) <= 12 else f"{shown} … ({len(symbols)} in all)"
