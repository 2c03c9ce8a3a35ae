"""A rate limit for connections. Pure: the time comes from the caller."""

from __future__ import annotations

from typing import Final

BURST_SECONDS: Final = 4.0
"""A page's worth of connections at once is ordinary; a stream of them is a flood."""


class ConnectionRate:
    """Turns at a steady rate, with a burst after a rest."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate
        self._due = float("-inf")

    def wait(self, now: float) -> float:
        """Takes a turn. Gives the seconds until it comes. now: seconds, always of the same clock."""
        self._due = max(self._due, now - BURST_SECONDS) + self._gap
        return max(self._due - now, 0.0)
