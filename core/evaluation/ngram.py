"""N-gram language model with modified Kneser-Ney smoothing: a baseline for neural language models."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from core.text.vocab import BOS_ID, EOS_ID

MAX_ORDER = 12


class NGram:
    """Interpolated modified Kneser-Ney over token ids; sequences are padded with BOS and end with EOS.

    The probability of a token under order ``n`` is its discounted count after the last ``n - 1`` tokens, and the
    discounted mass goes to order ``n - 1`` (Kneser & Ney 1995, modified by Chen & Goodman 1999). The highest order
    uses the token counts; lower orders use continuation counts, the number of different tokens an n-gram follows.
    Below order 1 the distribution is uniform.

    Args:
        sequences: training data, without BOS and EOS.
        order: number of tokens in the longest n-gram.
        num_tokens: vocabulary size of the uniform distribution, EOS included.
    """

    def __init__(self, sequences: Iterable[Sequence[int]], *, order: int, num_tokens: int) -> None:
        if not 1 <= order <= MAX_ORDER:
            raise ValueError(f"order={order} must be from 1 to {MAX_ORDER}")
        self.order, self.num_tokens = order, num_tokens
        ngrams: Counter[tuple[int, ...]] = Counter()
        for sequence in sequences:
            ngrams.update(self._ngrams(sequence))
        self._levels: list[_Level] = []  # of order 1, 2, …
        for _ in range(order):
            self._levels.insert(0, _Level(ngrams))
            ngrams = Counter(ngram[1:] for ngram in ngrams)  # continuation counts

    def probability(self, token: int, history: Sequence[int]) -> float:
        """Return P(token | history), 0-1; ``history`` starts after BOS."""
        context = self._context(history)
        probability = 1 / self.num_tokens
        for length, level in enumerate(self._levels):
            ngram = (*context[len(context) - length :], token)
            probability = level.probability(ngram, lower_order=probability)
        return probability

    def loss(self, sequences: Iterable[Sequence[int]]) -> float:
        """Return the cross-entropy of sequences in nats per token, EOS included."""
        total, tokens = 0.0, 0
        for sequence in sequences:
            for ngram in self._ngrams(sequence):
                total -= math.log(self.probability(ngram[-1], ngram[:-1]))
                tokens += 1
        return total / tokens

    def _ngrams(self, sequence: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the n-gram of the highest order that ends at each token, EOS last."""
        padded = (*[BOS_ID] * (self.order - 1), *sequence, EOS_ID)
        return [padded[start : start + self.order] for start in range(len(sequence) + 1)]

    def _context(self, history: Sequence[int]) -> tuple[int, ...]:
        """Return the last ``order - 1`` tokens of a history, padded with BOS on the left."""
        return (*[BOS_ID] * (self.order - 1), *history)[len(history) :] if self.order > 1 else ()


class _Level:
    """The n-grams of one order.

    Attributes:
        discounts: subtracted from counts of one, of two, and of three or more: Y = n1 / (n1 + 2 n2), 2 - 3 Y n3 / n2
            and 3 - 4 Y n4 / n3, where nk is the number of n-grams with count k (Chen & Goodman 1999). If some nk is
            zero, Y is used for all counts.
    """

    def __init__(self, counts: Counter[tuple[int, ...]]) -> None:
        self.counts = counts
        self.discounts = _discounts(Counter(counts.values()))
        self.context_counts: dict[tuple[int, ...], int] = defaultdict(int)
        self.discounted_mass: dict[tuple[int, ...], float] = defaultdict(float)  # over all tokens after a context
        for ngram, count in counts.items():
            self.context_counts[ngram[:-1]] += count
            self.discounted_mass[ngram[:-1]] += self._discount(count)

    def probability(self, ngram: tuple[int, ...], *, lower_order: float) -> float:
        """Return the probability of the last token after the others, given its probability under the lower order."""
        total = self.context_counts.get(ngram[:-1])
        if not total:
            return lower_order
        count = self.counts.get(ngram, 0)
        discounted = count - self._discount(count) if count else 0.0
        return (discounted + self.discounted_mass[ngram[:-1]] * lower_order) / total

    def _discount(self, count: int) -> float:
        return self.discounts[min(count, 3) - 1]


def _discounts(count_of_counts: Counter[int]) -> tuple[float, float, float]:
    """Return the discounts of counts of one, two, and three or more; see ``_Level``."""
    n1, n2 = count_of_counts[1], count_of_counts[2]
    y = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    if not all(count_of_counts[count] for count in (1, 2, 3, 4)):
        return y, y, y
    second, third = (k - (k + 1) * y * count_of_counts[k + 1] / count_of_counts[k] for k in (2, 3))
    return y, max(y, second), max(y, third)  # a larger count never gets a smaller discount
