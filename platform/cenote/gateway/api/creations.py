"""Creates runtimes and branches: each once, in fair turns, and to completion even when the caller has left.

Forks have a queue of their own, since the code in the jail decides how long a fork takes. Runs on one event loop.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final, TypeVar

from cenote.gateway.api.branches import AdmittedFork, Branches, ForkRequest
from cenote.gateway.api.fair_turns import SlowWork, TenantSemaphore, to_its_end
from cenote.gateway.api.runtime_registry import RuntimeRegistry, RuntimeRequest
from cenote.gateway.machines.nodes import RuntimeLocation
from cenote.gateway.store.runtimes import RuntimeRecord
from cenote.gateway.values.principal import Principal
from cenote_security.ids import RuntimeId
from cenote_security.policy import SandboxPolicy
from cenote_worker.node.placement import NoRoomError

T = TypeVar("T")

LOOK_EVERY: Final = 1.0
"""Seconds between two looks whether a machine has room: as often as machines are looked for."""

WAKING_SECONDS: Final = 20.0
"""Seconds for which a call of a hibernated runtime waits for room: it has 30 at its client."""

LEFT_SECONDS: Final = 5.0
"""Seconds for which a creation waits for room without a client that waits for it, which may be connecting again."""


class RoomQueue:
    """Has work wait that finds room on no machine, and counts it. Runs on one event loop.

    patience: seconds; 0 where nothing waits.
    """

    def __init__(self, patience: float = 0.0) -> None:
        self.patience = patience
        self._waiting = 0
        self.behind: Callable[[], int] = lambda: 0
        """The number of those that wait for a turn to begin such work."""

    @property
    def lacking(self) -> int:
        """Runtimes that wait for room. From any thread."""
        return self._waiting + self.behind() if self._waiting else 0

    async def carry_out(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        since: float | None = None,
        most: float = math.inf,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> T:
        """Does the work, again and again while it raises NoRoomError. Raises that when its time is over.

        since: when it began to wait, in the loop's time. most: seconds for it at most. is_wanted: whether the client
        still waits for it.
        """
        clock = asyncio.get_running_loop().time
        patience = min(self.patience, most)
        until = (clock() if since is None else since) + patience
        try:
            return await work()
        except NoRoomError as error:
            if clock() >= until:
                raise _in_time(error, patience) from None
        self._waiting += 1
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY)
                if not is_wanted():
                    raise NoRoomError("no machine had room, and its client did not wait any longer")
                try:
                    return await work()
                except NoRoomError as error:
                    if clock() >= until:
                        raise _in_time(error, patience) from None
        finally:
            self._waiting -= 1


def _in_time(error: NoRoomError, patience: float) -> NoRoomError:
    return NoRoomError(f"{error}; none had room for {patience:g} s") if patience else error


STARTS: Final = max(2, os.cpu_count() or 1)
"""Runtimes that are made at once: a start keeps a processor busy, so more would only make each slower."""


class Creations:
    """pool: runs blocking calls. admission: the lock under which names and quotas are taken. room: where they wait
    while no machine has any, in their turns: so none overtakes another of its tenant, and tenants take turns.
    """

    def __init__(self, registry: RuntimeRegistry, pool: Executor, room: RoomQueue | None = None) -> None:
        self._registry = registry
        self._pool = pool
        self._turns = TenantSemaphore(STARTS)
        self._room = room or RoomQueue()
        self._room.behind = lambda: self._turns.waiting
        self._awaited: dict[RuntimeId, _Callers] = {}
        self.admission = asyncio.Lock()
        self._admitting: set[asyncio.Task[RuntimeRecord]] = set()
        self._making: dict[RuntimeId, asyncio.Task[RuntimeLocation]] = {}

    @property
    def waiting(self) -> int:
        """Runtimes that wait for their turn to be made. From any thread."""
        return self._turns.waiting

    async def create(
        self, principal: Principal, wish: RuntimeRequest
    ) -> tuple[RuntimeRecord, RuntimeLocation | None]:
        """Returns the requested runtime once it is made, and where, if this call waited for that. See RuntimeRegistry
        for what it raises.
        """
        admitting = asyncio.create_task(self._admitted(principal, wish))
        self._admitting.add(admitting)
        admitting.add_done_callback(self._was_admitted)
        record = await asyncio.shield(admitting)
        return record, await self.made(record.id)

    async def made(self, runtime: RuntimeId) -> RuntimeLocation | None:
        """Waits until the runtime's creation is over. Returns where it was made; None if nothing was waited for.
        Raises the error that the creation failed with.
        """
        making = self._making.get(runtime)
        if making is None:
            return None
        with self._awaited[runtime].one():
            return await asyncio.shield(making)

    async def close(self) -> None:
        """Cancels creations and waits until they are taken back: no client knows of them. Waiting ones never
        begin.
        """
        await asyncio.gather(*self._admitting, return_exceptions=True)
        for making in self._making.values():
            making.cancel()
        await asyncio.gather(*self._making.values(), return_exceptions=True)

    async def _admitted(self, principal: Principal, wish: RuntimeRequest) -> RuntimeRecord:
        """Runs as a task of its own: a runtime that has a name must be made even if the caller leaves."""
        async with self.admission:  # a repeated request finds what the first one has begun
            record, fresh = await self._on_thread(lambda: self._registry.admit(principal, wish))
            if fresh:
                self._begin(principal, record, wish.policy)
        return record

    def _was_admitted(self, task: asyncio.Task[RuntimeRecord]) -> None:
        self._admitting.discard(task)
        if not task.cancelled():
            task.exception()  # the caller got it, if it is still connected

    def _begin(self, principal: Principal, record: RuntimeRecord, policy: SandboxPolicy) -> None:
        self._awaited[record.id] = _Callers()
        task = asyncio.create_task(self._make(principal, record, policy), name=f"make {record.id}")
        self._making[record.id] = task
        task.add_done_callback(lambda done: self._ended(record.id, done))

    async def _make(
        self, principal: Principal, record: RuntimeRecord, policy: SandboxPolicy
    ) -> RuntimeLocation:
        began = asyncio.get_running_loop().time()
        try:
            async with self._turns.turn(principal):
                await to_its_end(self._on_thread(lambda: self._registry.announce(principal, record, policy)))
                return await self._room.carry_out(
                    lambda: to_its_end(self._on_thread(lambda: self._registry.make(record))),
                    since=began,
                    is_wanted=self._awaited[record.id].are_there,
                )
        except BaseException:
            await self._on_thread(lambda: self._registry.abandon(record))
            raise

    def _ended(self, runtime: RuntimeId, task: asyncio.Task[RuntimeLocation]) -> None:
        del self._making[runtime], self._awaited[runtime]
        if not task.cancelled():
            task.exception()  # the caller got it, if it is still connected

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


class _Callers:
    """The callers that wait for a creation."""

    def __init__(self) -> None:
        self._here = 0
        self._left = asyncio.get_running_loop().time()

    @contextmanager
    def one(self) -> Iterator[None]:
        self._here += 1
        try:
            yield
        finally:
            self._here -= 1
            self._left = asyncio.get_running_loop().time()

    def are_there(self) -> bool:
        """Whether there is one, or was a moment ago."""
        return self._here > 0 or asyncio.get_running_loop().time() < self._left + LEFT_SECONDS


LEAVE_SECONDS: Final = 5.0
"""Seconds for forks to end when the platform does."""


class Forks:
    """admission: the lock of all runtimes, see Creations. pool: runs blocking calls that no jail can delay. slow:
    runs all others.
    """

    def __init__(self, branches: Branches, admission: asyncio.Lock, pool: Executor, slow: SlowWork) -> None:
        self._branches = branches
        self._admission = admission
        self._pool = pool
        self._slow = slow
        self._admissions = TenantSemaphore(1)
        """Queue for the admission, which takes a second for hundreds of branches."""
        self._admitting: set[asyncio.Task[AdmittedFork]] = set()
        self._making: dict[str, asyncio.Task[None]] = {}

    @property
    def waiting(self) -> int:
        """Forks that wait to be admitted. From any thread."""
        return self._admissions.waiting

    async def fork(self, principal: Principal, wish: ForkRequest) -> tuple[RuntimeRecord, ...]:
        """Returns the branches once they are made. See Branches.admit and Nodes.fork for what it raises."""
        admitting = asyncio.create_task(self._admitted(principal, wish))
        self._admitting.add(admitting)
        admitting.add_done_callback(self._was_admitted)
        fork = await asyncio.shield(admitting)
        making = self._making.get(_key(fork))
        if making is not None:
            await asyncio.shield(making)
        return fork.branches

    async def close(self) -> None:
        """Takes back forks that are being made: no client knows of them. The next start takes back slow ones."""
        await asyncio.gather(*self._admitting, return_exceptions=True)
        for making in self._making.values():
            making.cancel()
        if self._making:
            await asyncio.wait(self._making.values(), timeout=LEAVE_SECONDS)

    async def _admitted(self, principal: Principal, wish: ForkRequest) -> AdmittedFork:
        # One at a time: a repeated request finds what the first one has begun.
        async with self._admissions.turn(principal), self._admission:
            fork = await _on(self._pool, lambda: self._branches.admit(principal, wish))
            if fork.fresh:
                self._begin(principal, fork)
        return fork

    def _begin(self, principal: Principal, fork: AdmittedFork) -> None:
        task = asyncio.create_task(self._make(principal, fork), name=f"fork {fork.parent.id}")
        self._making[_key(fork)] = task
        task.add_done_callback(lambda done: self._ended(fork, done))

    async def _make(self, principal: Principal, fork: AdmittedFork) -> None:
        try:
            await self._slow.carry_out(principal, lambda: self._branches.make(principal, fork))
        except BaseException:
            await _on(self._pool, lambda: self._branches.abandon(fork))
            raise

    def _was_admitted(self, task: asyncio.Task[AdmittedFork]) -> None:
        self._admitting.discard(task)
        if not task.cancelled():
            task.exception()  # the caller got it, if it is still connected

    def _ended(self, fork: AdmittedFork, task: asyncio.Task[None]) -> None:
        del self._making[_key(fork)]
        if not task.cancelled():
            task.exception()  # the caller got it, if it is still connected


def _key(fork: AdmittedFork) -> str:
    return f"{fork.parent.tenant}/{fork.id}"


async def _on(pool: Executor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)
