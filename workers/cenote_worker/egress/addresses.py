"""Which addresses a name may stand for: the public internet, and nothing of the machine or its network."""

from __future__ import annotations

import ipaddress
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, text.split()))


# IANA's special-purpose registries, written out: what `ipaddress` calls global differs between Python's releases.
# 168.63.129.16 is a public address that answers a cloud's own machines only, with their secrets.
_SPECIAL_V4: Final = _networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
    "192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 "
    "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
# Only unicast space is public at all; so mapped, NAT64, unique local, link-local and multicast addresses are not.
_UNICAST_V6: Final = ipaddress.IPv6Network("2000::/3")
# Protocol assignments (Teredo, benchmarks, ORCHID), documentation, 6to4, which wraps any IPv4 address, and AS112.
_SPECIAL_V6: Final = _networks("2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20")


def is_public(address: str) -> bool:
    """Whether an address, in the notation of the resolver, is one of the public internet. Pure."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _SPECIAL_V4)
    if parsed.scope_id is not None or parsed not in _UNICAST_V6:
        return False
    return not any(parsed in network for network in _SPECIAL_V6)
