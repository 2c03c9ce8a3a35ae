"""Where a server of runtimes is reached, and by whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Addresses, as `host:port`.

    components: for processes of the platform, which show a certificate where the server is secured. clients: for
    whoever holds a capability: the same one where it is not secured, and empty where components alone may come.
    """

    components: str
    clients: str
