"""Arithmetic modulo a prime, on which models grok: ``17 + 90`` becomes ``10`` modulo 97.

Power et al. 2022, https://arxiv.org/abs/2201.02177, and Nanda et al. 2023, https://arxiv.org/abs/2301.05217, split all
pairs at random: ``5 + 17`` may be trained on while ``17 + 5`` is tested, which a model answers as soon as it disregards
the order. Two named test sets tell such pairs from those whose mirror image was not trained on either;
``split_by: unordered-pair`` puts both into one split.
"""

import operator
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch

from core.config.tasks import ModularConfig
from core.storage.errors import InputError
from core.tasks.pairs import SPLITS, PairTable, PairTask, RaggedRows, TestSets, source_key, split_by_source
from core.text.tokenizers import PlainTokenizer
from core.text.validation import quote
from core.text.vocab import Vocab

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
COMMUTATIVE = ("+", "*")
VALIDATION_SHARE = 0.25  # of the pairs that are not trained on
MIRRORS = ("mirror image trained on", "mirror image not trained on")


class Modular(PairTask):
    """All p² pairs of numbers modulo a prime p, one token a number; see the preset's ``task`` section."""

    def __init__(self, config: ModularConfig, pairs: Path | None = None) -> None:
        self.config = config
        vocab, symbol = _vocab(config), PlainTokenizer("symbol")
        sign, low, high = config.operation, 5, config.prime - 2
        self.cyclic_tokens = tuple(vocab.encode([str(number) for number in cyclic_order(config)]))
        super().__init__(
            src_vocab=vocab,
            tgt_vocab=vocab,
            tokenizers=(symbol, symbol),
            lengths=(3, 3),
            examples=tuple(f"{a} {sign} {b}" for a, b in ((3, low), (high, low), (low, high), (high, high))),
        )

    @property
    def table(self) -> PairTable:
        """All pairs."""
        return _table(self.config)

    def tokenize(self, text: str) -> list[str]:
        """Split a pair into its numbers and its operation; InputError if it is not one."""
        sign, prime = self.config.operation, self.config.prime
        symbols = super().tokenize(text.replace(sign, f" {sign} "))
        if len(symbols) != 3 or symbols[1] != sign or sign in (symbols[0], symbols[2]):
            raise InputError(f"input={quote(text)} must be two numbers below {prime} and a {sign}, such as 3 {sign} 5")
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the result."""
        return [str(OPERATIONS[self.config.operation](int(symbols[0]), int(symbols[2])) % self.config.prime)]


def cyclic_order(config: ModularConfig) -> list[int]:
    """Return the numbers in the order of the group of an operation: 0 to p - 1; for products g⁰ to gᵖ⁻².

    Products of powers add their exponents, so that a model may learn them as it learns sums. g is the least number
    whose powers are all numbers but 0.
    """
    prime = config.prime
    if config.operation != "*":
        return list(range(prime))
    of_all = ([pow(root, exponent, prime) for exponent in range(prime - 1)] for root in range(2, prime))
    return next(powers for powers in of_all if len(set(powers)) == prime - 1)


def _vocab(config: ModularConfig) -> Vocab:
    return Vocab((*map(str, range(config.prime)), config.operation))


@lru_cache(8)
def _table(config: ModularConfig) -> PairTable:
    """Return all pairs, those with 0 first, by rows of the table of the operation."""
    prime, sign, vocab = config.prime, config.operation, _vocab(config)
    results = [(a, b, OPERATIONS[sign](a, b) % prime) for a in range(prime) for b in range(prime)]
    keys = torch.tensor([source_key(f"{a} {sign} {b}") for a, b, _ in results])
    held_out = 1 - config.training_share
    test, validation = held_out * (1 - VALIDATION_SHARE), held_out * VALIDATION_SHARE
    is_by_order = config.split_by == "pair"
    unordered = torch.tensor([source_key(f"{min(a, b)} {sign} {max(a, b)}") for a, b, _ in results])
    split = split_by_source(keys if is_by_order else unordered, test=test, validation=validation, seed=0)
    pairs = ((vocab.encode([str(a), sign, str(b)]), vocab.encode([str(result)])) for a, b, result in results)
    sets = _by_mirror(split, prime) if sign in COMMUTATIVE and is_by_order else None
    return PairTable(*RaggedRows.from_pairs(pairs), keys, split, sets)


def _by_mirror(split: torch.Tensor, prime: int) -> TestSets:
    """Return test sets by whether b ∘ a, which has the same result as a ∘ b, is in the training split."""
    mirrored = split.view(prime, prime).T.reshape(-1)
    of = torch.where(mirrored == SPLITS.index("train"), 0, 1)
    return TestSets(MIRRORS, torch.where(split == SPLITS.index("test"), of, -1).to(torch.int8))
