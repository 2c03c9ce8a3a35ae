"""What a jail can say of its own network, for hints and refusals."""

from __future__ import annotations

import os

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_NONE = "this runtime has no network"
_PROXIED = (
    "no direct connections here: listed names only, through the proxy that HTTPS_PROXY names "
    "(requests, httpx, urllib and pip use it by themselves)"
)


def has_way_out() -> bool:
    """Whether programs here are told of a proxy."""
    return "HTTPS_PROXY" in os.environ


def network_hint() -> str:
    """What to say to code that tried to connect by itself."""
    return _PROXIED if has_way_out() else _NONE
