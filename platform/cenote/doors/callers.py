"""Callers of an HTTP door, by their tokens, and the runtimes that each may reach."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from cenote.connection import Platform
from cenote.doors.metrics import MetricSample, of_machines, of_tenant, of_this_process
from cenote.doors.open_runtimes import OpenRuntimes
from cenote_security.auth.tokens import Scope
from cenote_security.errors import NotAuthenticatedError, RejectedError, ScopeMissingError, UsageError

MOST_CALLERS: Final = 64
"""Tokens whose runtimes are open at once; the one that has been idle for longest is released."""

RECHECK: Final = 30.0
"""Seconds for which a platform's answer about a token is cached."""


def is_token(text: str) -> bool:
    """Whether the text may be a token: no other text is sent to the platform."""
    return text != "" and text.isascii() and text.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who has presented a token. platform: as that token sees it; None for a server with runtimes of its own.

    scopes: of the token; all of them for a server's own one.
    """

    runtimes: OpenRuntimes
    platform: Platform | None = None
    scopes: frozenset[str] = frozenset(Scope)

    def require(self, scope: Scope) -> None:
        """Raises ScopeMissingError."""
        if scope not in self.scopes:
            raise ScopeMissingError(scope.value, tuple(sorted(self.scopes)))

    def the_platform(self) -> Platform:
        """Raises UsageError where there is none."""
        if self.platform is None:
            raise UsageError(
                "only a platform has this, and this server has runtimes of its own: `cenote up` starts a platform, "
                "and `cenote serve --address` serves one"
            )
        return self.platform


class Callers(Protocol):
    """All possible callers."""

    async def caller(self, token: str) -> Caller:
        """Raises what `runtimes` does."""

    async def runtimes(self, token: str) -> OpenRuntimes:
        """Those of the token's holder. Raises RejectedError for an invalid token, UnavailableError."""

    async def samples(self, token: str) -> Iterable[MetricSample]:
        """The metrics for the token's holder. Raises what `runtimes` does."""

    def figures(self) -> Iterable[MetricSample]:
        """The metrics of all tenants, for curves; none where this process does not have them. Blocks.

        Raises CenoteError.
        """

    async def close(self) -> None:
        """Releases all runtimes."""


class OneCaller:
    """One token, for all runtimes of this process."""

    def __init__(self, token: str, runtimes: OpenRuntimes) -> None:
        self._token = token.encode()
        self._runtimes = runtimes

    async def caller(self, token: str) -> Caller:
        return Caller(runtimes=await self.runtimes(token))

    async def runtimes(self, token: str) -> OpenRuntimes:
        if not hmac.compare_digest(self._token, token.encode()):
            raise NotAuthenticatedError("the token is not the one of this server")
        return self._runtimes

    async def samples(self, token: str) -> Iterable[MetricSample]:
        return of_this_process((await self.runtimes(token)).names)

    def figures(self) -> Iterable[MetricSample]:
        return of_this_process(self._runtimes.names)

    async def close(self) -> None:
        await self._runtimes.close()


@dataclass(slots=True)
class _Known:
    caller: Caller
    checked: float


class PlatformCallers:
    """Tokens of a platform, which decides which of them are valid, and what their holders may do."""

    def __init__(
        self,
        connected: Callable[[str], Platform],
        opened: Callable[[Platform], OpenRuntimes],
        metrics: Callable[[], Iterable[MetricSample]] | None = None,
    ) -> None:
        """connected: the platform, for a token. metrics: of all tenants, where the platform is in this process."""
        self._connected = connected
        self._opened = opened
        self._metrics = metrics
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._turn = asyncio.Lock()

    async def runtimes(self, token: str) -> OpenRuntimes:
        return (await self.caller(token)).runtimes

    async def caller(self, token: str) -> Caller:
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None and time.monotonic() - known.checked < RECHECK:
            self._known.move_to_end(key)
            return known.caller
        platform = self._connected(token)
        try:
            info = await asyncio.to_thread(platform.describe)
        except RejectedError:
            await self._forget(key)
            raise
        async with self._turn:
            former = self._known.get(key)
            runtimes = self._opened(platform) if former is None else former.caller.runtimes
            runtimes.changes = Scope.RUNTIMES_WRITE in info.scopes
            caller = Caller(runtimes=runtimes, platform=platform, scopes=frozenset(info.scopes))
            self._known[key] = _Known(caller, time.monotonic())
            self._known.move_to_end(key)
            quiet = [self._known.popitem(last=False)[1] for _ in range(len(self._known) - MOST_CALLERS)]
        for one in quiet:
            await one.caller.runtimes.close()
        return caller

    async def samples(self, token: str) -> Iterable[MetricSample]:
        return await asyncio.to_thread(self._samples, self._connected(token))

    def _samples(self, platform: Platform) -> list[MetricSample]:
        info = platform.describe()
        if self._metrics is not None and Scope.MACHINES in info.scopes:
            return [*of_machines(info), *self._metrics()]
        return [*of_machines(info), *of_tenant(platform.runtimes())]

    def figures(self) -> Iterable[MetricSample]:
        return () if self._metrics is None else self._metrics()

    async def close(self) -> None:
        while self._known:
            await self._known.popitem()[1].caller.runtimes.close()

    async def _forget(self, key: bytes) -> None:
        if (known := self._known.pop(key, None)) is not None:
            await known.caller.runtimes.close()
