"""Uploads count as they arrive: a request that only announces one takes nothing from other visitors."""

import time
from collections.abc import Callable

import pytest

from core.server.limits import LAPTOP, MEGABYTE
from ui.serving.request_limits import UploadQuota


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch) -> tuple[UploadQuota, Callable[[float], None]]:
    """A quota of 3 MB, 2 MB a visitor, and a function that lets time pass."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    limits = LAPTOP.model_copy(update={"max_uploads_mb": 3, "max_uploads_mb_per_visitor": 2})
    return UploadQuota(limits), wait


def test_bytes_count_for_an_hour(quota):
    uploads, wait = quota
    uploads.count("anna", 2 * MEGABYTE)
    assert "you have used 2,000,000 bytes of 2 MB" in uploads.refusal("anna", 1)
    assert uploads.refusal("ben", MEGABYTE) == ""
    wait(1800)
    uploads.count("ben", MEGABYTE)
    assert "all visitors have used 3,000,000 bytes of 3 MB" in uploads.refusal("carl", 1)
    wait(1860)
    assert uploads.refusal("anna", 2 * MEGABYTE) == ""
    assert "you have used 1,000,000" in uploads.refusal("ben", 2 * MEGABYTE)
    wait(3600)
    assert uploads.refusal("ben", 2 * MEGABYTE) == ""


def test_asking_counts_nothing(quota):
    uploads, _ = quota
    for _ in range(100):
        assert uploads.refusal("anna", 2 * MEGABYTE) == ""
