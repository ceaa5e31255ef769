"""Paired bootstrap resampling of BLEU and chrF, against sacrebleu's own implementation."""

import numpy as np
import pytest

from core.evaluation.bootstrap import RESAMPLES, SEED, paired_bootstraps

sacrebleu = pytest.importorskip("sacrebleu")
significance = pytest.importorskip("sacrebleu.significance")

WORDS = ["the", "a", "dialog", "opens", "text", "cell", "of", "table", "row", "column", "insert", "select", "press"]


def sentences(count, seed=0):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, size=draw.integers(3, 13))) for _ in range(count)]


def damaged(texts, share, seed):
    """The texts with a share of their words replaced."""
    draw = np.random.default_rng(seed)
    return [" ".join("x" if draw.random() < share else word for word in text.split()) for text in texts]


REFERENCES = sentences(120)
SYSTEMS = {
    "good": damaged(REFERENCES, 0.10, seed=1),
    "fair": damaged(REFERENCES, 0.14, seed=2),
    "poor": damaged(REFERENCES, 0.40, seed=3),
}


def compare(systems=SYSTEMS, references=REFERENCES, **options):
    return paired_bootstraps(systems, references, tokenizer="13a", **options)


def test_scores_and_p_values_are_those_of_sacrebleu_s_paired_test():
    results = compare()
    assert list(results) == [("good", "fair"), ("good", "poor"), ("fair", "poor")]
    for (first, second), metrics in results.items():
        test = significance.PairedTest(
            [(first, SYSTEMS[first]), (second, SYSTEMS[second])],
            {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF()},
            [REFERENCES],
            test_type="bs",
        )
        _, scores = test()
        for name, label in (("bleu", "BLEU"), ("chrf", "chrF2")):
            expected_first, expected_second = scores[label]
            assert metrics[name].first == pytest.approx(expected_first.score)
            assert metrics[name].second == pytest.approx(expected_second.score)
            assert metrics[name].p_value == expected_second.p_value
    assert (RESAMPLES, SEED) == (1_000, 12345)  # what sacrebleu takes by default
    assert results["good", "poor"]["bleu"].p_value < 0.01
    assert results["good", "fair"]["bleu"].p_value > 0.002


def test_interval_and_share_are_those_of_the_resampled_differences():
    result = compare({"good": SYSTEMS["good"], "fair": SYSTEMS["fair"]}, resamples=40)["good", "fair"]["chrf"]
    drawn = np.random.default_rng(SEED).choice(120, size=(40, 120), replace=True)

    def score(system, rows):
        return sacrebleu.corpus_chrf([SYSTEMS[system][row] for row in rows], [[REFERENCES[row] for row in rows]]).score

    differences = sorted(score("good", rows) - score("fair", rows) for rows in drawn)
    assert result.interval == pytest.approx((differences[1], differences[-2]))
    assert result.first_better == sum(each > 0 for each in differences) / 40
    assert result.interval[0] < result.difference < result.interval[1]
    assert result.difference == pytest.approx(score("good", range(120)) - score("fair", range(120)))


def test_the_order_of_two_systems_only_changes_the_sign():
    forward = compare({"good": SYSTEMS["good"], "poor": SYSTEMS["poor"]})["good", "poor"]["bleu"]
    backward = compare({"poor": SYSTEMS["poor"], "good": SYSTEMS["good"]})["poor", "good"]["bleu"]
    assert backward.difference == -forward.difference
    assert backward.p_value == forward.p_value
    assert backward.interval == (-forward.interval[1], -forward.interval[0])


def test_equal_translations_do_not_differ_significantly():
    result = compare({"one": SYSTEMS["fair"], "other": list(SYSTEMS["fair"])})["one", "other"]["bleu"]
    assert (result.difference, result.interval, result.p_value, result.first_better) == (0, (0, 0), 1, 0)


def test_another_seed_draws_other_resamples():
    first, again, other = (compare(seed=seed, resamples=50)["good", "fair"]["bleu"] for seed in (1, 1, 2))
    assert first == again
    assert first.interval != other.interval
