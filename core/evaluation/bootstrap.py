"""Paired bootstrap resampling (Koehn 2004): could a difference in BLEU or chrF come from the choice of test pairs?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from core.evaluation.translation_quality import quality_metrics

RESAMPLES = 1_000
SEED = 12345  # sacrebleu's own
_BLOCK = 50  # resamples drawn together: little memory with many test pairs


@dataclass(frozen=True)
class PairedBootstrap:
    """One metric of two systems on the same test pairs, resampled.

    Attributes:
        first, second: the two scores on all test pairs, 0-100.
        p_value: two-sided, as sacrebleu computes it: the share of resamples in which the size of the difference is
            further above its mean than the measured difference is above 0, (k + 1) / (resamples + 1). 1 if the two
            scores are equal in every resample, which sacrebleu calls significant.
        interval: 95 % interval of ``difference`` over the resamples.
        first_better: share of resamples in which the first system has the higher score, 0-1.
    """

    first: float
    second: float
    p_value: float
    interval: tuple[float, float]
    first_better: float

    @property
    def difference(self) -> float:
        """Score of the first system minus score of the second."""
        return self.first - self.second


def paired_bootstraps(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    tokenizer: str,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[tuple[str, str], dict[str, PairedBootstrap]]:
    """Compare every two systems by paired bootstrap resampling.

    Test pairs are drawn with replacement, the same for all systems, and each system is scored on every such resample.
    Results are those of ``sacrebleu.significance.PairedTest`` with ``test_type="bs"`` and this seed; all pairs of
    systems share the resamples, and memory does not grow with their number.

    Args:
        systems: the translations of each system by its name.
        references: one for each translation.
        tokenizer: see ``quality_metrics``.

    Returns:
        For each two names, in the order of ``systems``: the comparison in ``bleu`` and in ``chrf``.

    Raises:
        LabError: sacrebleu is not installed.
    """
    metrics = quality_metrics(tokenizer)
    statistics = {
        # Private methods of a pinned version; the public ones score a resample in seconds instead of microseconds.
        (system, name): np.array(metric._extract_corpus_statistics(list(texts), [list(references)]), dtype=np.float64)
        for system, texts in systems.items()
        for name, metric in metrics.items()
    }
    scores: dict[tuple[str, str], list[float]] = {key: [] for key in statistics}
    for counts in _resampled_counts(len(references), resamples=resamples, seed=seed):
        for key, of_pairs in statistics.items():
            scores[key] += [_score(metrics[key[1]], sums) for sums in counts @ of_pairs]
    totals = {key: _score(metrics[key[1]], of_pairs.sum(axis=0)) for key, of_pairs in statistics.items()}
    return {
        (first, second): {
            name: _compared(
                totals[first, name], totals[second, name], np.array(scores[first, name]), np.array(scores[second, name])
            )
            for name in metrics
        }
        for first, second in combinations(systems, 2)
    }


def _score(metric: Any, sums: np.ndarray) -> float:
    """Return the score (0-100) of a corpus from the sums of its sentences' statistics."""
    return float(metric._compute_score_from_stats(sums).score)


def _resampled_counts(num_pairs: int, *, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each resample has each test pair, (R, num_pairs) float64, in blocks of resamples."""
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, _BLOCK):
        rows = min(_BLOCK, resamples - start)
        drawn = generator.choice(num_pairs, size=(rows, num_pairs), replace=True)
        cells = (drawn + num_pairs * np.arange(rows)[:, None]).ravel()
        yield np.bincount(cells, minlength=rows * num_pairs).reshape(rows, num_pairs).astype(np.float64)


def _compared(first: float, second: float, first_scores: np.ndarray, second_scores: np.ndarray) -> PairedBootstrap:
    differences = np.sort(first_scores - second_scores)
    sizes = np.abs(differences)
    extreme = int(((sizes - sizes.mean()) > abs(first - second)).sum())
    outside = len(differences) // 40  # on each side of the 95 % interval
    return PairedBootstrap(
        first=first,
        second=second,
        p_value=(extreme + 1) / (len(differences) + 1) if sizes.any() else 1.0,
        interval=(float(differences[outside]), float(differences[-outside - 1])),
        first_better=float((differences > 0).mean()),
    )
