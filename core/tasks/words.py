"""Sentences of random words: ``the cat sat`` becomes ``sat cat the``."""

import torch

from core.tasks.symbols import SymbolTask
from core.text.vocab import PAD_ID, UNK_ID, Vocab

_LIST = (
    "the a cat dog bird fox mouse horse tree house river garden man woman child sat ran saw found chased liked "
    "big small red blue old quick quiet on under near behind and then"
)
WORDS = tuple(_LIST.split())
UNKNOWN_SHARE = 0.02  # of the words in training: a model that has never met UNK does not know what to do with it
_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?", " "))


class Words(SymbolTask):
    """Sentences of 34 words, drawn at random, repeated words included; reversed or copied.

    Args:
        has_unk: whether a word that is not known is read as UNK (and some words in training are); else it is refused.
    """

    def __init__(self, *, transform: str, min_length: int, max_length: int, has_unk: bool) -> None:
        super().__init__(
            Vocab(WORDS, has_unk=has_unk),
            transform=transform,
            min_length=min_length,
            max_length=max_length,
            candidates=(
                "the cat sat",
                "the quick fox chased the old dog",
                "the the the",
                "a big red bird sat on the small blue house",
                "the unicorn saw a mouse",
            )[: 5 if has_unk else 4],
        )

    def split_text(self, text: str) -> list[str]:
        """Split what a person typed into words; case and punctuation do not matter."""
        return text.lower().translate(_PUNCTUATION).split()

    def as_trained_on(self, symbols: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Put UNK in place of some words of training sentences (B, N) int64."""
        if not self.src_vocab.has_unk:
            return symbols
        unknown = torch.rand(symbols.shape, generator=generator, device=symbols.device) < UNKNOWN_SHARE
        return symbols.masked_fill(unknown & (symbols != PAD_ID), UNK_ID)
