"""The network that a request comes from: the second key of quotas, beside the cookie, which anyone can invent."""

import ipaddress
from collections.abc import Iterable, Mapping

from starlette.types import Scope

from core.storage.error_messages import short_repr
from core.storage.errors import InputError

TRUSTED_PROXIES = "FORWARDED_ALLOW_IPS"  # environment variable that uvicorn reads when it starts
_THIS_MACHINE = ("127.0.0.1", "::1")
_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")  # where a Space's proxy is


def network_of(scope: Scope) -> str:
    """Return the address of a request, of IPv6 the first 56 bits, which most providers give to one subscriber.

    It is "" if the request comes from this machine, such as from a proxy that names no other. uvicorn takes the address
    from ``X-Forwarded-For`` if a trusted proxy has sent the request.
    """
    try:
        address = ipaddress.ip_address((scope.get("client") or ("",))[0])
    except ValueError:
        return ""
    if address.version == 6:
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return ""
    return str(address if address.version == 4 else ipaddress.ip_network((address, 56), strict=False))


def trusted_proxies(addresses: Iterable[str], environment: Mapping[str, str]) -> str:
    """Return the value of ``TRUSTED_PROXIES``: this machine, the given addresses, and on a Space all private networks.

    Raises:
        InputError: one is neither an address nor a network such as 10.0.0.0/8.
    """
    given = list(addresses)
    for each in given:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise InputError(
                f"trusted_proxy={short_repr(each, 100)} is neither an address nor a network: {error}"
            ) from error
    if not given and environment.get("SPACE_HOST"):
        given = list(_PRIVATE)
    return ",".join((*_THIS_MACHINE, *given))
