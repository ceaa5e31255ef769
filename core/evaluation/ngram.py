"""A language model of counts: n-grams smoothed by Kneser and Ney's method, for neural ones to be measured against."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from core.text.vocab import BOS_ID, EOS_ID

MAX_ORDER = 12


class NGram:
    """Interpolated, modified Kneser-Ney over token ids, EOS counted and BOS before every sequence.

    Of each order ``n`` the probability of a token is its discounted count after the last ``n - 1`` tokens, and what
    was discounted goes to the order below (Kneser & Ney 1995, modified as by Chen & Goodman 1999). The highest
    order counts how often a token stands there; the others in how many different places, that is, behind how many
    different tokens. Below the first stands the same probability for every token.

    Args:
        sequences: to learn from, without BOS and EOS.
        order: tokens in the longest n-gram.
        num_tokens: how many different tokens there are to expect, EOS among them.
    """

    def __init__(self, sequences: Iterable[Sequence[int]], *, order: int, num_tokens: int) -> None:
        if not 1 <= order <= MAX_ORDER:
            raise ValueError(f"order={order} must be from 1 to {MAX_ORDER}")
        self.order, self.num_tokens = order, num_tokens
        grams: Counter[tuple[int, ...]] = Counter()
        for sequence in sequences:
            grams.update(self._grams(sequence))
        self._levels: list[_Level] = []
        for _ in range(order):
            self._levels.insert(0, _Level(grams))
            grams = Counter(gram[1:] for gram in grams)  # behind how many different tokens each shorter one stands

    def probability(self, token: int, history: Sequence[int]) -> float:
        """Return how likely a token is after others, 0-1; BOS is taken to stand before them."""
        context = self._context(history)
        share = 1 / self.num_tokens
        for level, counts in enumerate(self._levels):
            share = counts.probability((*context[len(context) - level :], token), below=share)
        return share

    def loss(self, sequences: Iterable[Sequence[int]]) -> float:
        """Return the cross-entropy of sequences, nats per token, EOS counted."""
        total, tokens = 0.0, 0
        for sequence in sequences:
            for gram in self._grams(sequence):
                total -= math.log(self.probability(gram[-1], gram[:-1]))
                tokens += 1
        return total / tokens

    def _grams(self, sequence: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the n-gram of the highest order that ends at each token, EOS the last."""
        whole = (*[BOS_ID] * (self.order - 1), *sequence, EOS_ID)
        return [whole[place : place + self.order] for place in range(len(sequence) + 1)]

    def _context(self, history: Sequence[int]) -> tuple[int, ...]:
        """Return the last ``order - 1`` tokens of a history, BOS in front where there are not as many."""
        return (*[BOS_ID] * (self.order - 1), *history)[len(history) :] if self.order > 1 else ()


class _Level:
    """The n-grams of one order.

    Attributes:
        discounts: taken from a count of one, of two, and of three or more: Y = n1 / (n1 + 2 n2), 2 - 3 Y n3 / n2 and
            3 - 4 Y n4 / n3, where nk n-grams were counted k times (Chen & Goodman 1999, modified Kneser-Ney). From
            data too few to have each of these counts, Y is taken from all.
    """

    def __init__(self, grams: Counter[tuple[int, ...]]) -> None:
        self.counts = grams
        self.discounts = _discounts(Counter(grams.values()))
        self.totals: dict[tuple[int, ...], int] = defaultdict(int)
        self.taken: dict[tuple[int, ...], float] = defaultdict(float)  # from all counts after a context together
        for gram, count in grams.items():
            self.totals[gram[:-1]] += count
            self.taken[gram[:-1]] += self._discount(count)

    def probability(self, gram: tuple[int, ...], *, below: float) -> float:
        """Return how likely the last token is after the others, given what the order below says."""
        total = self.totals.get(gram[:-1])
        if not total:
            return below
        count = self.counts.get(gram, 0)
        own = count - self._discount(count) if count else 0.0
        return (own + self.taken[gram[:-1]] * below) / total

    def _discount(self, count: int) -> float:
        return self.discounts[min(count, 3) - 1]


def _discounts(of_counts: Counter[int]) -> tuple[float, float, float]:
    """Return what to take from a count of one, two and more, given how many n-grams have each count."""
    once, twice = of_counts[1], of_counts[2]
    first = once / (once + 2 * twice) if once and twice else 0.5
    if not all(of_counts[count] for count in (1, 2, 3, 4)):
        return first, first, first
    second, third = (k - (k + 1) * first * of_counts[k + 1] / of_counts[k] for k in (2, 3))
    return first, max(first, second), max(first, third)  # never less of a larger count
