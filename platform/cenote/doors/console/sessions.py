"""Who has signed in to the console, by the cookie of their browser."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_SESSIONS: Final = 1_000
"""At once; the one that has been quiet for longest ends first."""

LONGEST: Final = 12 * 3600.0
"""Seconds after which a session ends."""


@dataclass(frozen=True, slots=True)
class Session:
    """token: what its user has signed in with. form_key: what each form of its pages sends back, so that no page of
    another site sends one. ends: on the monotonic clock.
    """

    token: str
    form_key: str
    ends: float


class Sessions:
    """Those of one process. Their cookies are of no use after it has ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_cookie: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, token: str) -> str:
        """Gives the cookie. The token is good."""
        cookie = secrets.token_urlsafe(32)
        self._by_cookie[_key(cookie)] = Session(token, secrets.token_urlsafe(32), self._clock() + LONGEST)
        while len(self._by_cookie) > MOST_SESSIONS:
            self._by_cookie.popitem(last=False)
        return cookie

    def get(self, cookie: str) -> Session | None:
        """None for one that has ended, or never was."""
        session = self._by_cookie.get(_key(cookie))
        if session is None:
            return None
        if session.ends <= self._clock():
            self.end(cookie)
            return None
        self._by_cookie.move_to_end(_key(cookie))
        return session

    def end(self, cookie: str) -> None:
        self._by_cookie.pop(_key(cookie), None)


def _key(cookie: str) -> bytes:
    """Not the cookie itself: a search in memory takes a time that depends on what is searched for."""
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
