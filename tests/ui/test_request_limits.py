"""Uploads count as they arrive: a request that only announces one takes nothing from other visitors."""

import time
from collections.abc import Callable

import pytest

from core.server.access import Visitor
from core.server.limits import LAPTOP, MEGABYTE
from ui.serving.request_limits import UploadQuota

ANNA, BEN, CARL = Visitor("anna"), Visitor("ben"), Visitor("carl")


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch) -> tuple[UploadQuota, Callable[[float], None]]:
    """A quota of 3 MB, 2 MB a visitor, 1 MB a network, and a function that lets time pass."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    limits = LAPTOP.model_copy(update={"max_uploads_mb": 3, "max_uploads_mb_per_visitor": 2})
    return UploadQuota(limits), wait


def test_bytes_count_for_an_hour(quota):
    uploads, wait = quota
    uploads.count(ANNA, 2 * MEGABYTE)
    assert "you have used 2,000,000 bytes of 2 MB" in uploads.refusal(ANNA, 1)
    assert uploads.refusal(BEN, MEGABYTE) == ""
    wait(1800)
    uploads.count(BEN, MEGABYTE)
    assert "all visitors have used 3,000,000 bytes of 3 MB" in uploads.refusal(CARL, 1)
    wait(1860)
    assert uploads.refusal(ANNA, 2 * MEGABYTE) == ""
    assert "you have used 1,000,000" in uploads.refusal(BEN, 2 * MEGABYTE)
    wait(3600)
    assert uploads.refusal(BEN, 2 * MEGABYTE) == ""


def test_asking_counts_nothing(quota):
    uploads, _ = quota
    for _ in range(100):
        assert uploads.refusal(ANNA, 2 * MEGABYTE) == ""


def test_a_network_has_half_of_the_quota_however_many_cookies_it_invents(quota):
    uploads, wait = quota
    for number in range(10):
        invented = Visitor(f"invented {number}", network="203.0.113.7")
        assert uploads.refusal(invented, MEGABYTE // 10) == ""
        uploads.count(invented, MEGABYTE // 10)
    refusal = uploads.refusal(Visitor("one more", network="203.0.113.7"), MEGABYTE // 10)
    assert "your network has used 1,000,000 bytes of 1 MB an hour" in refusal
    assert uploads.refusal(Visitor("real", network="203.0.113.8"), MEGABYTE // 10) == ""
    assert uploads.refusal(ANNA, MEGABYTE) == ""  # of this machine, or behind a proxy that names no address
    wait(3660)
    assert uploads.refusal(Visitor("one more", network="203.0.113.7"), MEGABYTE) == ""
