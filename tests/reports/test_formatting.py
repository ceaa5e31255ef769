"""Ranges of time are written in one unit, without digits that an estimate does not have."""

import pytest

from core.reports.formatting import duration_range, training_time


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.2, 0.9, "less than 1 s"),
        (0.8, 1.2, "about 1 s"),
        (0.3, 2.4, "1–2 s"),
        (9.6, 14.4, "10–14 s"),
        (23, 31, "25–30 s"),
        (60, 89, "60–90 s"),
        (60, 90, "1–1.5 min"),
        (130, 190, "2–3 min"),
        (20 * 60, 33 * 60, "20–35 min"),
        (1.4 * 3600, 2.1 * 3600, "1.5–2 h"),
        (30 * 3600, 47 * 3600, "30–45 h"),
        (18 * 86400, 24.4 * 86400, "18–25 days"),
        (400 * 86400, 600 * 86400, "400–600 days"),
        (2 * 365 * 86400, 3 * 365 * 86400, "2–3 years"),
        (1e12, 2e12, "30,000–65,000 years"),
    ],
)
def test_a_range_has_one_unit_and_few_digits(low, high, text):
    assert duration_range(low, high).replace("\N{NO-BREAK SPACE}", " ") == text


def test_the_unit_stays_on_the_line_of_its_number():
    assert duration_range(9.6, 14.4) == "10–14\N{NO-BREAK SPACE}s"


def test_a_run_that_was_not_trained_here_has_a_dash_instead_of_a_training_time():
    assert (training_time(0.0), training_time(0.04), training_time(12.34)) == ("–", "0.0 s", "12.3 s")
