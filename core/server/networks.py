"""Networks as quotas count them: an IPv4 address, or 56 bits of an IPv6 address, and the 48 bits around those."""

import ipaddress
from functools import lru_cache

SITE_BITS = 48  # what one customer is given at most; it holds 256 networks of 56 bits


@lru_cache(10_000)
def site_of(network: str) -> str:
    """Return the 48 bits of IPv6 that a network belongs to; an IPv4 address or "" is returned unchanged.

    A site gets half as much again as one network, so that nobody gets everything with 256 networks.
    """
    if "/" not in network:
        return network
    return str(ipaddress.IPv6Network(network).supernet(new_prefix=SITE_BITS))
