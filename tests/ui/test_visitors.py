"""Who is here, and from where: nothing that a program invents pushes out the visitors who stayed."""

import time

import pytest

from core.storage.errors import InputError
from ui.serving import visitors
from ui.serving.client_address import network_of, trusted_proxies
from ui.serving.visitors import Presence


def visit(presence: Presence, owner: str) -> None:
    presence.connected(owner)
    presence.disconnected(owner)


def test_invented_visitors_are_forgotten_before_those_who_stayed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(visitors, "MAX_VISITORS", 100)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    presence = Presence()
    presence.connected("anna")
    now[0] = 3000.0
    presence.disconnected("anna")  # she closes her page, and her run goes on
    presence.connected("ben")  # his page is open
    now[0] = 3060.0
    for number in range(1_000):
        visit(presence, f"invented {number}")
    assert presence.seconds_away("anna") == 60.0
    assert presence.seconds_away("ben") == 0.0
    assert len(presence._last_seen) <= 100
    assert presence._first_seen.keys() == presence._last_seen.keys()


@pytest.mark.parametrize(
    ("client", "network"),
    [
        (("203.0.113.7", 5), "203.0.113.7"),
        (("::ffff:203.0.113.7", 5), "203.0.113.7"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1::/56"),
        (("127.0.0.1", 5), ""),
        (("::1", 5), ""),
        (("::ffff:127.0.0.1", 5), ""),
        (("", 0), ""),
        (("unix", 0), ""),
        (None, ""),
    ],
)
def test_the_network_of_a_request(client, network: str):
    assert network_of({"client": client}) == network


def test_only_named_proxies_are_trusted():
    assert trusted_proxies([], {}) == "127.0.0.1,::1"
    assert trusted_proxies(["10.1.2.3", "fd00::/8"], {}) == "127.0.0.1,::1,10.1.2.3,fd00::/8"
    assert "10.0.0.0/8" in trusted_proxies([], {"SPACE_HOST": "user-lab.hf.space"})
    for wrong in ("proxy", "*", "10.0.0.1/8", ""):
        with pytest.raises(InputError, match="trusted_proxy="):
            trusted_proxies([wrong], {})
