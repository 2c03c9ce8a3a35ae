"""The policy value that lists the names a jail may reach."""

from __future__ import annotations

import pytest

from cenote_security.errors import UsageError
from cenote_security.network import MAX_CONNECTIONS, Allow, host_name, port_number
from cenote_security.policy import SandboxPolicy


@pytest.mark.parametrize(
    ("permitted", "destination", "host", "port"),
    [
        (True, "pypi.org", "pypi.org", 443),
        (False, "pypi.org", "pypi.org", 80),
        (False, "pypi.org", "www.pypi.org", 443),
        (False, "pypi.org", "evilpypi.org", 443),
        (False, "pypi.org", "pypi.org.evil.com", 443),
        (True, "PyPI.org:8443", "pypi.org", 8443),
        (False, "pypi.org:8443", "pypi.org", 443),
        (True, "*.example.com", "a.example.com", 443),
        (True, "*.example.com:80", "a.b.example.com", 80),
        (False, "*.example.com", "example.com", 443),
        (False, "*.example.com", "badexample.com", 443),
    ],
)
def test_names_match_whole_and_at_their_port(permitted: bool, destination: str, host: str, port: int) -> None:
    """Without a port it is 443; a wildcard stands for one or more whole labels."""
    assert permitted is Allow([destination]).permits(host, port)


UNLISTED = ["", "*", "*.com", "*.", "localhost", "a.*.com", "*a.com", "1.2.3.4", "127.1", "0x7f.1", "0x7f000001",
           "2130706433", "[::1]", "::1", "a.com:", "a.com:0", "a.com:65536", "a.com:https", "a.com:+1", "a.com:1:2",
           "a.com.", ".a.com", "a..com", "http://a.com", "a.com/x", "user@a.com", "bücher.de", "a_b.com", "-a.com",
           "a-.com", "a.com\n", "a\0.com", "a.1", "a.0x1", "x" * 64 + ".com", "a." * 127 + "com"]  # fmt: skip


@pytest.mark.parametrize("destination", UNLISTED, ids=[name.replace("0x", "hex ") for name in UNLISTED])
def test_what_is_no_name_cannot_be_listed(destination: str) -> None:
    """Addresses in any notation, single labels, wildcards over everything and odd spellings are refused at once."""
    with pytest.raises(UsageError, match="is not a destination"):
        Allow([destination])


@pytest.mark.parametrize("destinations", [[], "pypi.org", None, {"pypi.org"}])
def test_a_list_is_needed(destinations: object) -> None:
    """A single string would be read letter by letter; an empty list is written "none"."""
    with pytest.raises(UsageError, match="destinations is a list of names"):
        Allow(destinations)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limits",
    [
        {"connections": 0},
        {"connections": MAX_CONNECTIONS + 1},
        {"rate": 0},
        {"rate": 1001},
        {"rate": float("nan")},
        {"connections": "9"},
        {"rate": None},
    ],
)
def test_limits_have_limits(limits: dict[str, int]) -> None:
    """One past each end is refused."""
    with pytest.raises(UsageError, match=r"is a (whole|positive) number"):
        Allow(["a.com"], **limits)  # type: ignore[arg-type]
    assert 2 * 2**30 == Allow(["a.com"], connections=MAX_CONNECTIONS, rate=1000, volume="2GiB").volume_bytes


def test_longest_names() -> None:
    """A label has 63 letters at most and a name 253."""
    longest = ".".join(["x" * 63, "x" * 63, "x" * 63, "x" * 61])
    assert (longest, None) == (host_name(longest), host_name("x" + longest))
    assert (65535, None, None) == (port_number("65535"), port_number("65536"), port_number("\u0661"))


@pytest.mark.parametrize("isolation", ["landlock", "none"])
def test_a_level_without_a_network_namespace_has_no_allow_list(isolation: str) -> None:
    """It could not be enforced, so the policy is refused when it is made."""
    with pytest.raises(UsageError, match="takes a network namespace"):
        SandboxPolicy(network=Allow(["a.com"]), isolation=isolation)  # type: ignore[arg-type]


def test_a_network_is_none_or_a_list() -> None:
    """Any other value is an error, and never means unrestricted."""
    with pytest.raises(UsageError, match=r"either .none. or Allow"):
        SandboxPolicy(network="host")  # type: ignore[arg-type]
