"""The addresses of this machine at which others in the room may reach the page."""

import ipaddress
import socket
from contextlib import suppress

_TEST_NETWORK = ("192.0.2.1", 9)  # no packet is sent: it is asked only from which address one would go there
CONNECT_SECONDS = 0.5


def is_loopback(host: str) -> bool:
    """Whether only this machine itself reaches a host, as of an address in the browser."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def reachable_addresses(port: int) -> list[str]:
    """Return this machine's IPv4 addresses that accept connections at a port, without those of loopback.

    None is returned if the server listens on loopback only.
    """
    found: dict[str, None] = {}  # in this order, without repetitions
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # unless there is no network
        probe.connect(_TEST_NETWORK)
        found[probe.getsockname()[0]] = None
    with suppress(OSError):  # unless the machine does not know its own name
        named = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        found |= dict.fromkeys(str(each[4][0]) for each in named)
    return [each for each in found if not is_loopback(each) and _accepts(each, port)]


def _accepts(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS):
            return True
    except OSError:
        return False
