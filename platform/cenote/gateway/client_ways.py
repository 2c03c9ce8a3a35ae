"""How clients get to their runtimes: themselves, where they can, and else through the gateway."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.gateway.component_lines import ComponentLines
from cenote.gateway.nodes import Place
from cenote_security.loopback import host_of, is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where a client goes by itself. authority: PEM of whom to know the server by; empty in the clear."""

    address: str
    authority: str


class ClientWays:
    """relayed: nobody goes by himself. public: the gateway has clients on other machines than its own."""

    def __init__(self, lines: ComponentLines, *, relayed: bool, public: bool) -> None:
        self._lines = lines
        self._relayed = relayed
        self._public = public

    def direct(self, place: Place) -> Way | None:
        """None for what is to go through the gateway: it reaches its own loopback, and others do not."""
        address = place.doors.clients
        if self._relayed or not address or (self._public and is_loopback(host_of(address))):
            return None
        secured = self._lines.secures(address)
        return Way(address=address, authority=self._lines.authority.decode() if secured else "")
