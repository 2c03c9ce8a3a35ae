"""A platform that does not answer now: how long its clients try again and wait, and what they say meanwhile.

`Patience` knows no clock: it is told the time, in seconds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from cenote.runtime.remote.address import Destination, token_file
from cenote_security.loopback import host_of, is_loopback

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


class RetrySchedule:
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


FIRST_RETRY: Final = 0.1
LONGEST_RETRY: Final = 1.0
"""Seconds between two tries, doubled each time."""

MOST_KNOWN: Final = 64
"""Addresses that are remembered, the latest."""

_log = logging.getLogger("cenote.remote")

_HERE: Final = ("failed to connect", "DNS resolution failed")
"""In the details of a call that no server has taken."""

_TWICE: Final = ("Get", "List", "Describe")
_WITH_KEY: Final = ("CreateRuntime", "ForkRuntime")
"""Calls that may be made twice: those that change nothing, and those whose key says that they are the same."""


def say_waiting(what: str, patience: RetrySchedule, why: str) -> None:
    """Once for each break that lasts. On the loop whose time the patience has."""
    if (left := patience.worth_a_word(asyncio.get_running_loop().time())) is not None:
        _log.warning("%s", waiting_for(what, why, left))


def waiting_for(what: str, why: str, left: float) -> str:
    return f"{what} does not answer ({why}); waiting for it, {math.ceil(left)} s more at most"


class Returning:
    """One wait. what: what is waited for, in words. wait: seconds at most. said: gets the one line about it."""

    def __init__(
        self,
        what: str,
        wait: float,
        said: Callable[[str], object] = _log.warning,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._wait = wait
        self._said: Callable[[str], object] | None = said
        self._clock = clock
        self._began = clock()
        self._pause = FIRST_RETRY

    def pause(self, why: str) -> float | None:
        """Seconds before the next try; None when there is none. why: what stood in the way of the last one."""
        waited = self._clock() - self._began
        if waited >= self._wait:
            return None
        if self._said is not None and waited >= SAID_AFTER:
            self._said(waiting_for(self._what, why, self._wait - waited))
            self._said = None
        pause, self._pause = min(self._pause, self._wait - waited), min(2 * self._pause, LONGEST_RETRY)
        return pause


_waiting: ContextVar[bool] = ContextVar("waiting", default=True)


@contextmanager
def without_waiting() -> Iterator[None]:
    """For who has a patience of its own: calls fail at once inside."""
    token = _waiting.set(False)
    try:
        yield
    finally:
        _waiting.reset(token)


class ReturnWaiter(grpc.aio.UnaryUnaryClientInterceptor):
    """Of the calls to one gateway. It waits for one that was there before.

    wait, insists: see Destination. ending: set when the process ends; no call waits from then on.
    """

    def __init__(self, address: str, wait: float, ending: asyncio.Event, *, insists: bool) -> None:
        self._address = address
        self._wait = wait
        self._ending = ending
        self._known = insists
        """Also once it has answered."""
        self._said = False
        """Since it has answered last: however many calls wait for it, it is one wait."""

    async def intercept_unary_unary(
        self,
        continuation: Callable[[grpc.aio.ClientCallDetails, Any], Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        returning: Returning | None = None
        while True:
            call = await continuation(client_call_details, request)
            code, details = await call.code(), await call.details() or ""
            if code is grpc.StatusCode.OK:
                self._known, self._said = True, False
            if code is not grpc.StatusCode.UNAVAILABLE or await call.trailing_metadata():
                return call
            if not (_waiting.get() and (self._known or is_known(self._address))):
                return call
            if not may_be_sent_again(_method(client_call_details), request, details):
                return call
            returning = returning or Returning(f"the platform at {self._address}", self._wait, self._say)
            pause = returning.pause(short(details))
            if pause is None or self._ending.is_set():
                return call
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)

    def _say(self, text: str) -> None:
        if not self._said:
            self._said = True
            _log.warning("%s", text)


def is_coming_back(error: grpc.aio.AioRpcError, where: Destination, method: str, request: object) -> bool:
    """Whether a call that has failed is worth a wait. method: or the name of its request."""
    if error.code() is not grpc.StatusCode.UNAVAILABLE or error.trailing_metadata():
        return False
    return (where.insists or is_known(where.address)) and may_be_sent_again(
        method, request, error.details() or ""
    )


def may_be_sent_again(method: str, request: object, details: str) -> bool:
    """details: of a call that failed with UNAVAILABLE, and not by a word of the platform's."""
    if any(sign in details for sign in _HERE):
        return not any(sign in details for sign in ("WRONG_VERSION_NUMBER", "CERTIFICATE_VERIFY_FAILED"))
    name = method.rpartition("/")[2]
    return name.startswith(_TWICE) or (name in _WITH_KEY and bool(getattr(request, "key", "")))


def short(details: str) -> str:
    """What gRPC says of a connection, in the words of the system."""
    _, sign, why = details.rpartition("Failed to connect to remote host: ")
    return why.removeprefix("connect: ").partition("(")[0].strip(" );").lower() if sign else "no connection"


def _method(details: grpc.aio.ClientCallDetails) -> str:
    method = details.method
    return method.decode() if isinstance(method, bytes) else str(method)


# -- which platforms there were --


def is_known(address: str) -> bool:
    """Whether something may come back there: on this machine only what this user has started, elsewhere always."""
    return not is_loopback(host_of(address)) or _spelled(address) in _known()


def remember(address: str) -> None:
    """A platform of this user listens there. It is written beside its token; clients themselves leave nothing."""
    known, address = _known(), _spelled(address)
    if address in known:
        return
    with suppress(OSError, RuntimeError):
        path = _place()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text("\n".join([*known[1 - MOST_KNOWN :], address, ""]))
        fresh.replace(path)


def _spelled(address: str) -> str:
    """This machine has several names for itself."""
    return f":{address.rpartition(':')[2]}" if is_loopback(host_of(address)) else address


def _known() -> list[str]:
    try:
        return _place().read_text(errors="replace").splitlines()
    except (OSError, RuntimeError):  # none yet, or a user without a home
        return []


def _place() -> Path:
    return token_file().with_name("platforms")
