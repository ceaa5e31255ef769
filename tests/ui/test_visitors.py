"""Who is here, and from where: nothing that a program invents pushes out the visitors who stayed."""

import time

import anyio
import httpx
import pytest
from starlette.responses import PlainTextResponse
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from core.server.access import Visitor
from core.storage.errors import InputError
from ui.serving import visitors
from ui.serving.call_limits import refusal
from ui.serving.client_address import network_of, trusted_proxies
from ui.serving.visitors import Presence, VisitorCookies


def visit(presence: Presence, owner: str, network: str = "") -> None:
    presence.connected(owner, network)
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
    assert presence._first_seen.keys() == presence._last_seen.keys() == presence._network.keys()


def test_cookies_that_one_network_invents_and_keeps_push_out_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(visitors, "MAX_VISITORS", 100)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    presence = Presence()
    for seconds in (0.0, 3000.0):  # the program comes again with each, so that they seem to have stayed
        now[0] = seconds
        for number in range(90):
            visit(presence, f"invented {number}", "203.0.113.7")
    now[0] = 3600.0
    for student in range(8):  # a class that has just come
        visit(presence, f"student {student}", "198.51.100.1")
    now[0] = 3700.0
    for number in range(90, 1_000):
        visit(presence, f"invented {number}", "203.0.113.7")
    assert [presence.seconds_away(f"student {student}") for student in range(8)] == [100.0] * 8


def test_a_visitor_who_was_forgotten_does_not_count_as_having_left_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(visitors, "MAX_VISITORS", 100)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    presence = Presence()
    now[0] = 7200.0
    visit(presence, "anna")
    for number in range(1_000):
        visit(presence, f"invented {number}")
    assert "anna" not in presence._last_seen
    now[0] = 7260.0
    assert presence.seconds_away("anna") == 60.0


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


def test_256_networks_of_one_customer_get_no_more_than_three_quarters():
    customers = [Visitor(f"owner {number}", network=f"2001:db8:1:{number:02x}00::/56") for number in range(256)]
    assert {each.site for each in customers} == {"2001:db8:1::/48"}
    present: list[Visitor] = []
    for visitor in customers:
        if not refusal(visitor, present, per_visitor=16, per_network=100):
            present.append(visitor)
    assert len(present) == 150
    assert refusal(Visitor("other", network="2001:db8:2::/56"), present, per_visitor=16, per_network=100) == ""
    assert Visitor("x", network="203.0.113.7").site == "203.0.113.7"
    assert Visitor("x").site == ""


def test_only_named_proxies_are_trusted():
    assert trusted_proxies([], {}) == "127.0.0.1,::1"
    assert trusted_proxies(["10.1.2.3", "fd00::/8"], {}) == "127.0.0.1,::1,10.1.2.3,fd00::/8"
    assert "10.0.0.0/8" in trusted_proxies([], {"SPACE_HOST": "user-lab.hf.space"})
    for wrong in ("proxy", "*", "10.0.0.1/8", ""):
        with pytest.raises(InputError, match="trusted_proxy="):
            trusted_proxies([wrong], {})


@pytest.mark.parametrize(
    ("sent_by", "proto", "policy"),
    [
        ("10.0.0.1", "https", "SameSite=None; Secure; Partitioned"),  # the proxy
        ("10.0.0.1", "http", "SameSite=Lax"),
        ("203.0.113.7", "https", "SameSite=Lax"),  # anybody
    ],
)
def test_only_a_trusted_proxy_says_that_the_browser_uses_https(sent_by: str, proto: str, policy: str):
    app = ProxyHeadersMiddleware(VisitorCookies(PlainTextResponse(""), Presence()), trusted_hosts="10.0.0.1")

    async def cookie() -> str:
        transport = httpx.ASGITransport(app, client=(sent_by, 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://lab") as http:
            return (await http.get("/", headers={"x-forwarded-proto": proto})).headers["set-cookie"]

    assert anyio.run(cookie).endswith(f"HttpOnly; {policy}")
