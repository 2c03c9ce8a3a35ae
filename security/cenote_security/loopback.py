"""Which addresses are of this machine alone. Values only: nothing is looked up."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address by that name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The first part of `host:port`."""
    return address.rpartition(":")[0]


def port_of(address: str) -> int:
    """The last part of `host:port`. Raises ValueError."""
    return int(address.rpartition(":")[2])
