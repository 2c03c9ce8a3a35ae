"""Which addresses a name may resolve to."""

from __future__ import annotations

import pytest

from cenote_worker.egress.addresses import is_own, is_public


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.254",
     "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1",
     "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255",
     "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1",
     "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1",
     "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1", "",
     "localhost", "0x7f.1", "2130706433", "127.1", "010.0.0.1", "8.8.8.8 "],
)  # fmt: skip
def test_special_addresses_are_not_public(address: str) -> None:
    """Private, shared, loopback, link-local, metadata, multicast, documentation, wrapped and unreadable ones."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.0", "172.15.255.255",
     "172.32.0.0", "223.255.255.255", "2606:4700::1111", "2001:4860:4860::8888", "2a00:1450:4001::1"],
)  # fmt: skip
def test_public_addresses(address: str) -> None:
    """The neighbours of the special ranges are public."""
    assert is_public(address)


def test_own_addresses() -> None:
    """Connections within this machine are local, for any address."""
    assert is_own("127.0.0.1")
