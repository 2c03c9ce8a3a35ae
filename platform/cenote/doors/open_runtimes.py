"""The runtimes that a door serves, by name: in this process, in a store, or on a platform."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cenote.connection import Platform
from cenote.runtime import AsyncPythonRuntime
from cenote.runtime.storage import StoreURL
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.rules import SecurityChecker

MOST_OPEN: Final = 32
"""Runtimes that one door holds in this process: each has a jail and the memory that its policy allows."""

MAX_NAME: Final = 100
"""Characters of a runtime's name."""


@dataclass(frozen=True, slots=True)
class OpenRuntime:
    """A runtime as a door holds it. owner: forks and ends it. author: runs cells in the door's name."""

    owner: AsyncPythonRuntime
    author: AsyncPythonRuntime


class Source(Protocol):
    """Where runtimes come from."""

    async def make(self, name: str) -> AsyncPythonRuntime:
        """The runtime of that name, made if there is none."""

    async def names(self) -> Sequence[str]:
        """Those that can be opened beside the ones that a door has open."""

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        """Ends it; a stored one keeps its state."""


class LocalSource:
    """Jails of this process. With a store, their states are there again for the next process."""

    def __init__(
        self,
        policy: SandboxPolicy,
        checker: SecurityChecker | None = None,
        store: StoreURL | None = None,
    ) -> None:
        self._policy = policy
        self._checker = checker
        self._store = store

    async def make(self, name: str) -> AsyncPythonRuntime:
        if self._store is None:
            return AsyncPythonRuntime(
                name=name, sandbox=self._policy, security_checker=self._checker, address="embedded"
            )
        return await AsyncPythonRuntime.open(
            self._store, name, sandbox=self._policy, security_checker=self._checker
        )

    async def names(self) -> Sequence[str]:
        return ()

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        await runtime.close()


class PlatformSource:
    """Runtimes of a platform: they outlive the door, and others may hold them at the same time."""

    def __init__(
        self,
        platform: Platform,
        policy: SandboxPolicy | None = None,
        checker: SecurityChecker | None = None,
        *,
        durable: bool = False,
    ) -> None:
        self._platform = platform
        self._policy = policy
        self._checker = checker
        self._durable = durable

    async def make(self, name: str) -> AsyncPythonRuntime:
        return await self._platform.async_runtime(
            name, sandbox=self._policy, security_checker=self._checker, durable=self._durable
        )

    async def names(self) -> Sequence[str]:
        return [info.name for info in await asyncio.to_thread(self._platform.runtimes)]

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        name = runtime.name
        await runtime.close()
        await asyncio.to_thread(self._platform.delete, name)


class OpenRuntimes:
    """The runtimes that a door has open. One task at a time opens or ends one; cells run side by side."""

    def __init__(self, source: Source, door: str) -> None:
        """door: the author of what comes through it."""
        self._source = source
        self._door = door
        self._open: dict[str, OpenRuntime] = {}
        self._turn = asyncio.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """Of those that are open."""
        return tuple(self._open)

    async def known(self) -> list[str]:
        """Those that are open, and those that can be joined."""
        return sorted({*self._open, *await self._source.names()})

    async def open(self, name: str) -> OpenRuntime:
        """The runtime of that name, joined or made. Raises UsageError for a name that is none, or one too many."""
        if (known := self._open.get(name)) is not None:
            return known
        async with self._turn:
            if (known := self._open.get(name)) is not None:
                return known
            self._check_room(name)
            return await self._held(name, await self._source.make(name))

    def get(self, name: str) -> OpenRuntime:
        """One that is open. Raises UsageError."""
        if (known := self._open.get(name)) is None:
            raise UsageError(
                f"no runtime {name!r:.120} is open: open it first. Open: {', '.join(self._open) or 'none'}"
            )
        return known

    async def fork(self, name: str, branch: str, step: int | None) -> OpenRuntime:
        """A branch of an open one, under a name that is free. Raises UsageError."""
        source = self.get(name)
        async with self._turn:
            if branch in self._open:
                raise UsageError(f"a runtime {branch!r} is open already: choose another name, or close it")
            self._check_room(branch)
            return await self._held(branch, await source.owner.fork(step, name=branch))

    async def end(self, name: str) -> None:
        """Ends an open one."""
        async with self._turn:
            runtime = self.get(name)
            del self._open[name]
            await runtime.author.close()
            await self._source.end(runtime.owner)

    async def close(self) -> None:
        """Lets go of all: those in this process end, those of a platform stay."""
        async with self._turn:
            while self._open:
                _, runtime = self._open.popitem()
                await runtime.author.close()
                await runtime.owner.close()

    async def _held(self, name: str, owner: AsyncPythonRuntime) -> OpenRuntime:
        try:
            self._open[name] = held = OpenRuntime(owner, await owner.attach(self._door))
        except BaseException:
            await owner.close()
            raise
        return held

    def _check_room(self, name: str) -> None:
        if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
            raise UsageError(f"a runtime's name has 1 to {MAX_NAME} printable characters, not {name!r:.120}")
        if len(self._open) >= MOST_OPEN:
            raise UsageError(
                f"{MOST_OPEN} runtimes are open, which is the most: close one of {', '.join(self._open)}"
            )
