"""How long to go on trying when a line breaks. Knows no clock: it is told the time, in seconds."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 30.0
"""Seconds that a broken line may take to be taken up again before what waits on it is given up."""

AT_FIRST: Final = 3.0
"""Seconds for a first line: the gateway has just said that there is a server."""

STEADY: Final = 5.0
"""Seconds that a line has to stand for trying to begin anew: one that breaks at once each time is given up too."""

SAID_AFTER: Final = 1.0
"""Seconds without a line before a client says that it waits. One that comes back at once is not worth a word."""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
"""Seconds between two tries, doubled each time."""


class Patience:
    """Of one session. limit: seconds for which a line that stood is waited for."""

    def __init__(self, limit: float = PATIENCE) -> None:
        self._limit = max(limit, PATIENCE)  # a runtime that moves, or is woken, takes a while, too
        self._first = True
        self._broken_at = 0.0
        self._said = False
        self._since: float | None = None
        """When the line that stands now came to do so."""
        self._until: float | None = None
        """When what broke last is given up. Set by the first break."""
        self._pause = FIRST_PAUSE

    def stands(self, now: float) -> None:
        """There is a line."""
        if self._first:
            self._first, self._until = False, None
        self._since = now

    def broke(self, now: float) -> float | None:
        """Seconds to wait before the next try; None to give up."""
        since, self._since = self._since, None
        if self._until is None or (since is not None and now - since >= STEADY):
            self._until = now + (AT_FIRST if self._first else self._limit)
            self._pause = FIRST_PAUSE
            self._broken_at, self._said = now, False
        if now >= self._until:
            return None
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def worth_a_word(self, now: float) -> float | None:
        """Seconds that are left, once for each break that lasts; None while there is nothing to say."""
        if self._until is None or self._said or now - self._broken_at < SAID_AFTER:
            return None
        self._said = True
        return max(self._until - now, 0.0)
