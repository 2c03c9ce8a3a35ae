"""Where a platform can listen, and what is said where it cannot."""

from __future__ import annotations

import pytest

from cenote.gateway.listening import check_host
from cenote_security.errors import UnavailableError

LONG = 70 * "a"
"""No label of a name is as long, so nobody is asked for it."""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::1", "[::1]"])
def test_what_this_machine_has(host: str) -> None:
    """By name or address."""
    check_host(host)


@pytest.mark.parametrize(
    ("host", "said"), [(LONG, "no machine is known as"), ("203.0.113.1", "is no address of this machine")]
)
def test_what_it_has_not(host: str, said: str) -> None:
    """With the option to change."""
    with pytest.raises(UnavailableError, match=f"{said}.*--host"):
        check_host(host)
