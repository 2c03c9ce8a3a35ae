"""The runtimes that a door serves, by name: in this process, in a store, or on a platform."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cenote.connection import Platform, RuntimeInfo
from cenote.harness.live_state import AsyncRuntimeState
from cenote.runtime import AsyncPythonRuntime, Variable
from cenote.runtime.core.backends import StoreURL
from cenote_security.environment import Environment
from cenote_security.errors import EntryExistsError, RejectedError, UnknownNameError, UsageError
from cenote_security.policy import SandboxPolicy, Weakness, weakness
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

    async def state(self) -> AsyncRuntimeState[AsyncPythonRuntime]:
        """Its record up to now; reading that may wait for a platform."""
        return await asyncio.to_thread(lambda: self.owner.state)

    async def put(self, name: str, value: object) -> None:
        """Stores a value, or the value of a reference, under a new or existing name."""
        try:
            await self.author.update_variable(name, value)
        except UnknownNameError:
            await self.author.inject(Variable(name, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRuntime:
    """A runtime that can be opened. info: of one of a platform; None for one that only this process has."""

    name: str
    info: RuntimeInfo | None = None


class NotOpenError(UsageError):
    """There is no open runtime of that name."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(name, tuple(names))
        self.name = name
        self.names = tuple(names)

    def __str__(self) -> str:
        return (
            f"no runtime {self.name!r:.120} is open: open it first. Open: {', '.join(self.names) or 'none'}"
        )


class RuntimeSource(Protocol):
    """Where runtimes come from."""

    async def make(
        self, name: str, policy: SandboxPolicy | None, *, stored: bool = False
    ) -> AsyncPythonRuntime:
        """The runtime of that name, made if there is none. policy: of one that is made; None for the usual one.
        stored: on a platform, one that is made is durable; elsewhere the server's own options decide.
        """

    async def listed(self) -> Sequence[ListedRuntime]:
        """Runtimes that can be opened besides those that a door has open."""

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        """Ends it; a stored one keeps its state."""


class WiderPolicyError(RejectedError):
    """A client requests a runtime that may do more than its server allows."""

    def __init__(self, weakness: Weakness) -> None:
        super().__init__(weakness.field, weakness.wanted, weakness.allowed)
        self.weakness = weakness

    def __str__(self) -> str:
        found = self.weakness
        return (
            f"{found.field}={found.wanted!r:.200} is more than this server allows, {found.allowed!r:.200}; ask for "
            "less, or start the server with more"
        )


class LocalSource:
    """Jails of this process. With a store, the next process finds their states again.

    policy: for runtimes without a requested one, and the most that a requested one may allow.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        checker: SecurityChecker | None = None,
        store: StoreURL | None = None,
    ) -> None:
        self._policy = policy
        self._checker = checker
        self._store = store

    async def make(
        self,
        name: str,
        policy: SandboxPolicy | None,
        *,
        stored: bool = False,  # noqa: ARG002  (its store is for all)
    ) -> AsyncPythonRuntime:
        if policy is not None and (found := weakness(policy, self._policy)) is not None:
            raise WiderPolicyError(found)
        policy = policy or self._policy
        if self._store is None:
            return AsyncPythonRuntime(
                name=name, sandbox=policy, security_checker=self._checker, address="embedded"
            )
        return await AsyncPythonRuntime.open(
            self._store, name, sandbox=policy, security_checker=self._checker
        )

    async def listed(self) -> Sequence[ListedRuntime]:
        return ()

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        await runtime.close()


class PlatformSource:
    """Runtimes of a platform: they outlive the door, and others may use them at the same time."""

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

    async def make(
        self, name: str, policy: SandboxPolicy | None, *, stored: bool = False
    ) -> AsyncPythonRuntime:
        _check_environment(policy)
        return await self._platform.async_runtime(
            name,
            sandbox=policy or self._policy,
            security_checker=self._checker,
            durable=self._durable or stored,
        )

    async def listed(self) -> Sequence[ListedRuntime]:
        known = await asyncio.to_thread(self._platform.runtimes)
        return [ListedRuntime(name=info.name, info=info) for info in known]

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        name = runtime.name
        await runtime.close()
        await asyncio.to_thread(self._platform.delete, name)


def _check_environment(policy: SandboxPolicy | None) -> None:
    """Refuses what would be read on the door's machine: its callers need not be users there. Raises RejectedError."""
    environment = None if policy is None else policy.environment
    if isinstance(environment, Environment) and (environment.lockfile or environment.path):
        raise RejectedError(
            "a lock file or a folder would be one of the platform's machine: name requirements, or build the "
            "environment with `cenote env build --lock FILE --address ADDRESS`, and name it"
        )


@dataclass(frozen=True, slots=True)
class _Held:
    owner: AsyncPythonRuntime
    authors: dict[str, AsyncPythonRuntime]


class OpenRuntimes:
    """The runtimes that a process has open for its doors. They are opened one at a time; cells run concurrently."""

    def __init__(self, source: RuntimeSource) -> None:
        self.changes = True
        """Whether its user may run cells there, and change states."""
        self._source = source
        self._held: dict[str, _Held] = {}
        self._turn = asyncio.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the open ones."""
        return tuple(self._held)

    def through(self, door: str) -> Door:
        """The same runtimes, for one door."""
        return Door(self, door)

    async def listed(self) -> list[ListedRuntime]:
        """Those that are open, and those that can be attached to, by name."""
        listed = {name: ListedRuntime(name=name) for name in self._held}
        listed |= {each.name: each for each in await self._source.listed()}
        return [listed[name] for name in sorted(listed)]

    async def open(
        self, name: str, door: str, policy: SandboxPolicy | None = None, *, stored: bool = False
    ) -> OpenRuntime:
        """The runtime of that name, attached to or made. policy, stored: see RuntimeSource.make.

        Raises UsageError for a bad name, or one too many.
        """
        async with self._turn:
            if name not in self._held:
                self._check_room(name)
                self._held[name] = _Held(await self._source.make(name, policy, stored=stored), {})
            return await self._attached(name, door)

    async def get(self, name: str, door: str) -> OpenRuntime:
        """One that is open, or can be attached to. Raises NotOpenError."""
        held = self._held.get(name)
        if held is not None and (author := held.authors.get(door)) is not None:
            return OpenRuntime(held.owner, author)
        if held is None and all(name != each.name for each in await self._source.listed()):
            raise NotOpenError(name, self.names)
        return await self.open(name, door)

    async def fork(
        self, name: str, branch: str, step: int | str | None, door: str, *, partial: bool
    ) -> OpenRuntime:
        """A branch of an open one, under a name that is free. partial: see PythonRuntime.fork.

        Raises EntryExistsError, UsageError.
        """
        source = await self.get(name, door)
        async with self._turn:
            if branch in self._held:
                raise EntryExistsError("open runtime", branch)
            self._check_room(branch)
            self._held[branch] = _Held(await source.owner.fork(step, partial=partial, name=branch), {})
            return await self._attached(branch, door)

    async def end(self, name: str, door: str) -> None:
        """Ends an open one. If that fails, it can be tried again."""
        await self.get(name, door)
        async with self._turn:
            if (held := self._held.get(name)) is not None:
                await _let_go(held)
                await self._source.end(held.owner)
                del self._held[name]

    async def close(self) -> None:
        """Releases all: those in this process end, those of a platform stay."""
        async with self._turn:
            while self._held:
                _, held = self._held.popitem()
                await _let_go(held)
                await held.owner.close()

    async def _attached(self, name: str, door: str) -> OpenRuntime:
        held = self._held[name]
        if door not in held.authors:
            held.authors[door] = await held.owner.attach(door)
        return OpenRuntime(held.owner, held.authors[door])

    def _check_room(self, name: str) -> None:
        if not name.strip(" .") or len(name) > MAX_NAME or not name.isprintable() or "/" in name:
            raise UsageError(
                f"a runtime's name has 1 to {MAX_NAME} printable characters, no '/' and more than dots, "
                f"not {name!r:.120}"
            )
        if len(self._held) >= MOST_OPEN:
            raise UsageError(
                f"{MOST_OPEN} runtimes are open, which is the most: close one of {', '.join(self._held)}"
            )


async def _let_go(held: _Held) -> None:
    for author in held.authors.values():
        await author.close()


class Door:
    """The open runtimes, for one door: its name is the author of the steps."""

    def __init__(self, runtimes: OpenRuntimes, name: str) -> None:
        self._runtimes = runtimes
        self._name = name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the open runtimes."""
        return self._runtimes.names

    async def listed(self) -> list[ListedRuntime]:
        """See OpenRuntimes."""
        return await self._runtimes.listed()

    async def open(
        self, name: str, policy: SandboxPolicy | None = None, *, stored: bool = False
    ) -> OpenRuntime:
        """See OpenRuntimes."""
        return await self._runtimes.open(name, self._name, policy, stored=stored)

    async def get(self, name: str) -> OpenRuntime:
        """See OpenRuntimes."""
        return await self._runtimes.get(name, self._name)

    async def fork(
        self, name: str, branch: str, step: int | str | None = None, *, partial: bool = False
    ) -> OpenRuntime:
        """See OpenRuntimes."""
        return await self._runtimes.fork(name, branch, step, self._name, partial=partial)

    async def end(self, name: str) -> None:
        """See OpenRuntimes."""
        await self._runtimes.end(name, self._name)
